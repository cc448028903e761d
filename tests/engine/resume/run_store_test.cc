// Goal: a resume goes on from the commit that it read, or says that it cannot; a repack leaves the
// blocks where the drives' speeds want them; and a drive that hangs while drives are measured ends
// the start with words.
// Method: small stores made by hand under a run's name, changed between the look and the opening;
// two folders that count as two drives, and a lost request in a child process.
#include "engine/resume/run_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "cpu_adam/state.h"
#include "nvme/probe.h"
#include "offload/units.h"
#include "tests/nvme/fixture.h"

namespace headrace::engine {
namespace {

using nvme::IoEngine;
using nvme::Opening;
using nvme::PageBuffer;
using offload::Copies;
using offload::kib;
using offload::mib;
using offload::PlaceSpec;
using offload::Status;

constexpr LlamaConfig model = {.hidden_size = 32,
                               .intermediate_size = 64,
                               .block_count = 1,
                               .head_count = 2,
                               .kv_head_count = 2,
                               .head_dim = 16,
                               .vocabulary_size = 256,
                               .max_positions = 64,
                               .rms_norm_eps = 1e-6,
                               .tied = false,
                               .rope = {},
                               .extras = {}};

class RunStoreTest : public testing::Test {
  protected:
    RunStoreTest() {
        for (const char* name : {"a", "b"}) paths_.push_back(folder_.make(name));
        config_.output_dir = folder_.path() + "/out";
        config_.dtype = offload::Dtype::bf16;
        config_.resume_from_checkpoint = true;
        config_.offload.nvme_paths = paths_;
        config_.offload.advanced.io_engine = engine::IoEngine::threads;
        identity_.numerics = {{states_fact, "fp32"}};
    }

    static offload::Layout layout(uint64_t part_bytes) {
        return layout_of(model, offload::Dtype::bf16, part_bytes).value();
    }
    static std::vector<PlaceSpec> places_of(const offload::Layout& layout) {
        std::vector<PlaceSpec> places;
        for (const bool is_weight : {true, false}) {
            for (size_t part = 0; part < layout.parts.size(); ++part) {
                const uint64_t count = layout.parts[part].element_count;
                const uint64_t weight_bytes = bytes_of(offload::Dtype::bf16, count);
                const uint64_t state_bytes =
                    offload::opt_bytes(offload::Dtype::bf16, offload::StateFormat::fp32, count);
                places.push_back({.name = (is_weight ? "hi " : "opt ") + std::to_string(part),
                                  .size_bytes = is_weight ? weight_bytes : state_bytes,
                                  .copies = Copies::two});
            }
        }
        return places;
    }

    // What a run that was cut so leaves after some steps; `opening` fresh or resume.
    void leave(uint64_t part_bytes, Opening opening, int64_t step_count) {
        Identity identity = identity_;
        identity.part_bytes = part_bytes;
        auto store = nvme::open_store({.paths = paths_,
                                       .run_name = store_name_of(config_),
                                       .places = places_of(layout(part_bytes)),
                                       .weights = {3, 1},
                                       .engine = IoEngine::threads,
                                       .block_bytes = 4 * kib,
                                       .opening = opening});
        ASSERT_TRUE(store.ok()) << store.error().text();
        Progress progress;
        progress.attempts = step_count;
        progress.updates = step_count;
        ASSERT_TRUE(commit_and_wait(**store, record_of(identity, progress)).ok());
    }
    SavedRun saved() const {
        auto found = find_saved_run(config_);
        CHECK_TEXT(found.ok(), found.ok() ? "" : found.error().text());
        CHECK(found->has_value());
        return std::move(**found);
    }
    // What became of it: "" if it opened. The weights by path are in weights_ then.
    std::string open(const SavedRun* saved, uint64_t part_bytes, DriveHooks drives = {}) {
        Placement placement;
        placement.part_bytes = part_bytes;
        placement.workload.layout = layout(part_bytes);
        placement.plan.durable_copies = Copies::two;
        placement.budgets = {.gpu_bytes = 0, .ram_bytes = offload::gib, .nvme_bytes = offload::gib};
        placement.needs.nvme_bytes = mib;
        Identity identity = identity_;
        identity.part_bytes = part_bytes;
        auto store = open_run_store({.config = config_,
                                     .placement = placement,
                                     .model = model,
                                     .identity = identity,
                                     .saved = saved,
                                     .drive_cache = "",
                                     .places = places_of(placement.workload.layout),
                                     .buffers = buffers_,
                                     .drives = std::move(drives),
                                     .note = [](const std::string&) {},
                                     .on_stuck = on_stuck_,
                                     .should_stop = should_stop_});
        if (!store) return store.error().text();
        store->reset();
        const auto facts = nvme::look_at_store(paths_, store_name_of(config_));
        CHECK(facts.ok() && facts->has_value());
        paths_found_ = (*facts)->paths;
        weights_found_ = (*facts)->weights;
        return "";
    }

    static DriveHooks two_drives() {
        DriveHooks drives;
        drives.drives_of = [](const std::string& path) { return std::set{path}; };
        return drives;
    }

    nvme::TempFolder folder_;
    std::vector<std::string> paths_;
    RunConfig config_;
    Identity identity_;
    std::span<std::byte> buffers_;
    std::function<void(const std::string&)> on_stuck_;
    std::function<bool()> should_stop_;
    std::vector<std::string> paths_found_;
    std::vector<uint32_t> weights_found_;
};

constexpr uint64_t part_bytes = 16 * kib;
constexpr uint64_t other_part_bytes = 8 * kib;

TEST_F(RunStoreTest, AResumeGoesOnFromTheCommitThatItRead) {
    leave(part_bytes, Opening::fresh, 3);
    const SavedRun read = saved();
    EXPECT_EQ(read.saved.progress.attempts, 3);
    EXPECT_EQ(open(&read, part_bytes), "");
    leave(part_bytes, Opening::resume, 4);  // another start of the run, in between
    for (const uint64_t wanted : {part_bytes, other_part_bytes}) {
        const std::string refused = open(&read, wanted);
        EXPECT_NE(refused.find("of step 4: another process went on with it"), std::string::npos)
            << refused;
    }
    const SavedRun again = saved();
    EXPECT_EQ(again.saved.progress.attempts, 4);
    EXPECT_EQ(open(&again, part_bytes), "");
}

TEST_F(RunStoreTest, ARepackKeepsTheWeightsOfThePaths) {
    leave(part_bytes, Opening::fresh, 3);
    std::swap(config_.offload.nvme_paths[0], config_.offload.nvme_paths[1]);
    const SavedRun read = saved();
    ASSERT_EQ(open(&read, other_part_bytes), "");
    EXPECT_EQ(paths_found_, config_.offload.nvme_paths);
    EXPECT_EQ(weights_found_, (std::vector<uint32_t>{1, 3}));
    EXPECT_EQ(saved().saved.progress.attempts, 3);
}

// The successor is filled and its commit does not become durable: nothing of it is left.
TEST_F(RunStoreTest, ARepackThatFailsLeavesTheRun) {
    leave(part_bytes, Opening::fresh, 3);
    const SavedRun read = saved();
    DriveHooks drives;
    bool has_failed = false;
    drives.operations.sync_data = [&](int descriptor) {
        std::error_code ignored;
        const std::string file =
            std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored);
        if (has_failed || !file.ends_with(".next/data")) return 0;
        has_failed = true;
        return -EIO;
    };
    const std::string failed = open(&read, other_part_bytes, drives);
    EXPECT_TRUE(has_failed);
    EXPECT_NE(failed.find("EIO"), std::string::npos) << failed;
    for (const std::string& path : paths_) {
        EXPECT_FALSE(
            nvme::exists(nvme::run_folder_of(path, store_name_of(config_), nvme::Role::successor)));
    }
    EXPECT_EQ(open(&read, part_bytes), "");
}

// 7: the words were said; otherwise the alarm ends it.
TEST_F(RunStoreTest, hang_a_drive_that_hangs_while_it_is_measured_ends_the_start) {
    const PageBuffer pool(nvme::DriveProbe::pool_bytes_min({.paths = paths_}));
    buffers_ = pool.span();
    on_stuck_ = [](const std::string& why) {
        _exit(why.find("evict of the place 'block ") != std::string::npos ? 7 : 3);
    };
    DriveHooks drives = two_drives();
    drives.stuck_after = std::chrono::milliseconds(200);
    drives.operations.before_request = [](const nvme::Request& request) {
        const bool is_block = request.memory.size() == mib;
        return is_block ? std::optional(nvme::Fault{.is_lost = true}) : std::nullopt;
    };
    EXPECT_EQ(nvme::run_in_child([&] {
                  alarm(20);
                  return open(nullptr, part_bytes, drives).empty() ? 1 : 2;
              }),
              7);
}

TEST_F(RunStoreTest, AStartThatIsAskedToStopMeasuresNoFurther) {
    const PageBuffer pool(nvme::DriveProbe::pool_bytes_min({.paths = paths_}));
    buffers_ = pool.span();
    should_stop_ = [] { return true; };
    const std::string ended = open(nullptr, part_bytes, two_drives());
    EXPECT_NE(ended.find("the measurement was stopped"), std::string::npos) << ended;
}

}  // namespace
}  // namespace headrace::engine
