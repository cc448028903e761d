// Goal: a run whose drives die at any write goes on from its newest commit and ends with the bits
// of a run that nothing happened to. Method: tiny jobs that commit every step; all operations of
// the drives fail from the n-th write on, for every third n; the engine says so, and another one
// resumes, under another placement, and trains the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "engine/train/engine.h"
#include "tests/engine/train/tiny_run.h"

namespace headrace::engine::tests {
namespace {

using offload::Status;
using ::testing::HasSubstr;

constexpr int64_t step_count = 4;
constexpr int64_t bad_step = 2;  // its gradients are not finite: it is skipped

// Drives that end at the n-th write after they are armed.
class EndingDrives {
  public:
    nvme::FileOperations operations() {
        nvme::FileOperations operations;
        operations.before_request =
            [this](const nvme::Request& request) -> std::optional<nvme::Fault> {
            const bool is_write = request.direction == offload::Direction::write;
            if (is_armed_ && is_write) write_count_++;
            if (!is_over()) return {};
            return nvme::Fault{.executed_bytes = 0, .result = -EIO};
        };
        operations.sync_data = [this](int descriptor) {
            return is_over() ? -EIO : nvme::sync_data({}, descriptor);
        };
        return operations;
    }
    void arm(int64_t last_write) {
        last_write_ = last_write;
        is_armed_ = true;
    }
    int64_t write_count() const { return write_count_; }

  private:
    bool is_over() const { return is_armed_ && write_count_ > last_write_; }
    std::atomic<bool> is_armed_ = false;
    std::atomic<int64_t> write_count_ = 0;
    std::atomic<int64_t> last_write_ = 0;
};

TinyPlan plan_at(size_t index) {
    const TinyPlan plans[] = {
        {.name = "on nvme", .window = 2, .store = TinyStore::threads},
        {.name = "weights in ram", .hi = "r", .act = "r", .store = TinyStore::uring},
        {.name = "states in ram, serial",
         .hi = "rn",
         .opt = "r",
         .stash = "r",
         .acc = "r",
         .act = "g",
         .store = TinyStore::threads,
         .is_serial = true},
    };
    TinyPlan plan = plans[index % std::size(plans)];
    plan.part_blocks = 9;
    plan.path_count = 2;
    plan.commit = TinyCommit::every_step;
    return plan;
}

TinyJob make_job() {
    TinyJob job{.model = tiny_model(tiny_config(false, 1), offload::Dtype::bf16),
                .steps = tiny_steps(step_count, 1)};
    // Untied: only the bad step reads the last row of the embedding, which holds an infinity.
    constexpr int32_t last_token = tiny_vocabulary - 1;
    const TinyBatch batch{.seed = 5, .token_end = last_token};
    for (StepBatch& step : job.steps) step = make_step({make_tiny_batch(batch)});
    TokenBatch bad = make_tiny_batch(batch);
    bad.input_ids[0] = last_token;
    job.steps[bad_step] = make_step({bad});
    const uint16_t infinity = 0x7F80;
    std::byte* row = job.model.weights.front().data() + size_t{last_token} * 64 * sizeof(infinity);
    std::memcpy(row, &infinity, sizeof(infinity));
    job.bad_steps = {bad_step};
    job.loss_scale = {.initial_scale_power = 10, .window = 1, .hysteresis = 1};
    return job;
}

// Goes on to the end from what is there.
HomesDigest finish(const TinyJob& job, TinyPlan plan, int64_t steps_at_least) {
    plan.is_resumed = true;
    TinyRun run(job, plan);
    const int64_t first = run.engine().progress().attempts;
    EXPECT_GE(first, steps_at_least) << plan;
    const Status status = run.train(first, step_count - first);
    EXPECT_TRUE(status.ok()) << status.error().text();
    EXPECT_EQ(run.engine().progress().skipped_count, 1) << plan;
    EXPECT_EQ(run.engine().progress().loss_scale,
              (LossScale{.scale = 1024, .good_step_count = 1, .hysteresis_left = 1}))
        << plan;
    return run.engine().digest().value();
}

// Each placement with another format of states: their checksums are compared at the resume. The
// loss scale is that of one skipped step and three others, wherever the run was cut.
TEST(Crash, ckpt_1_ARunWhoseDrivesEndAtAnyWriteGoesOn) {
    TinyJob job = make_job();
    for (size_t index = 0; index < 3; ++index) {
        job.states = static_cast<offload::StateFormat>(index);
        const RunBits expected = engine_bits(job, plan_at(index));
        bool is_over = false;
        int64_t cut = 0;
        for (; !is_over && !testing::Test::HasFailure(); cut += 3) {
            const TestFolder folder;
            EndingDrives drives;
            TinyPlan plan = plan_at(index);
            plan.drives = folder.path("");
            plan.operations = drives.operations();
            int64_t told = 0;
            {
                TinyRun run(job, plan);
                drives.arm(cut);
                const Status status = run.train(0, step_count);
                told = std::ssize(run.outcomes());
                is_over = status.ok();
                if (is_over) break;
                EXPECT_THAT(status.error().text(), HasSubstr("EIO")) << plan;
            }
            // A step is told when it is computed; its update is committed a step later.
            TinyPlan other = plan_at(index + 1);
            other.drives = plan.drives;
            EXPECT_EQ(finish(job, other, std::max<int64_t>(told - 2, 0)), expected.homes)
                << plan << " cut at write " << cut << ", resumed as " << other;
        }
        EXPECT_TRUE(is_over);
        EXPECT_GT(cut, 20) << "too few writes to be worth it";
    }
}

}  // namespace
}  // namespace headrace::engine::tests
