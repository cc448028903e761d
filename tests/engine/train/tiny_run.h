// TinyRun: one training job small enough to be run hundreds of times, and the bits it leaves: by
// the independent reference, or by an Engine under any placement. What the tests of engine/train
// share. For tests only: whatever cannot be made is a CHECK.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "engine/train/engine.h"
#include "nvme/file_operations.h"
#include "offload/choice.h"
#include "offload/faulty_store.h"
#include "tests/engine/data/files.h"
#include "tests/engine/flat_model.h"

namespace headrace::engine::tests {

inline constexpr int32_t tiny_vocabulary = 259;

// hidden 64, 4 heads over 2 kv heads, intermediate 96: 9 blocks of 2048 elements in the embedding,
// 16 in each transformer block.
LlamaConfig tiny_config(bool tied, int64_t block_count = 2);

// Weights that are a function of the seed, the tensor's name and the element.
FlatModel tiny_model(const LlamaConfig& config, offload::Dtype dtype, uint64_t seed = 1);

// Tokens from a seed, below token_end; every fifth target, and the last of each row, is not
// trained. `masked`: none is.
struct TinyBatch {
    int64_t row_count = 1;
    int64_t column_count = 16;
    uint64_t seed = 0;
    int32_t token_end = tiny_vocabulary;
    bool masked = false;
};
TokenBatch make_tiny_batch(const TinyBatch& batch);

// step_count steps of micro_batch_count micro-batches of uneven shapes.
std::vector<StepBatch> tiny_steps(int64_t step_count, int64_t micro_batch_count, uint64_t seed = 7);

struct TinyJob {
    FlatModel model;
    std::vector<StepBatch> steps;
    offload::Dtype gradients = offload::Dtype::bf16;
    offload::StateFormat states = offload::StateFormat::fp32;
    uint64_t rounding_seed = 11;
    LossScaleRule loss_scale = unscaled;
    double max_grad_norm = 0.1;   // far below the gradients of a tiny model: clipping triggers
    double learning_rate = 1e-2;  // of update 0; rate_of says the others
    double weight_decay = 0.1;
    // Steps whose gradients are known not to be finite.
    std::set<int64_t> bad_steps = {};

    double rate_of(int64_t update_index) const {
        return learning_rate / static_cast<double>(1 + update_index);
    }
};

enum class TinyStore { memory, uring, threads, late };
enum class TinyCommit {
    never,
    every_step,
    at_saves,
    in_place,  // at saves, with one copy of what is durable
};

// A placement, one letter per place: g, r, n. Part i takes letter i of `opt`, `stash`, `acc` and
// (where no letter of it is g) `hi`, over and over; layer i takes letter i of `hi` and `acc` that
// have a g; boundary i letter i of `act`; block i letter i of `kept`, where - keeps nothing.
struct TinyPlan {
    std::string name = {};
    std::string hi = "n";
    std::string opt = "n";
    std::string stash = "n";
    std::string acc = "n";
    std::string act = "n";
    std::string kept = "-";
    // Instead of `act` and `stash`: what is wanted first is the nearest, as by offload/choice.h.
    std::optional<offload::TierShares> spilled = {};
    double twice = 0;  // of the parts that can: their update is computed twice
    uint32_t group = 1;
    uint32_t window = 1;
    uint64_t part_blocks = 1'000'000;  // of 2048 elements; more than there are: one part per layer
    uint32_t ring_slots = 2;
    int update_threads = 1;
    TinyStore store = TinyStore::memory;
    size_t path_count = 1;
    TinyCommit commit = TinyCommit::never;
    bool is_serial = false;
    // TinyStore::late: completions are delayed and reordered; one transfer may fail.
    uint64_t late_seed = 0;
    uint64_t failing_transfer = offload::Faults::never;
    // TinyStore::uring and threads: the store lies here, where it outlives the run; empty: in the
    // run's own folder. is_resumed: the run goes on from the newest commit there.
    std::string drives = {};
    bool is_resumed = false;
    nvme::FileOperations operations = {};
};
std::ostream& operator<<(std::ostream& out, const TinyPlan& plan);

// What a run leaves. Steps without a trained token are not in it: the reference knows none.
struct RunBits {
    std::vector<double> losses;
    std::vector<double> norms;  // NaN where the step was skipped
    HomesDigest homes;
};
// "" where all bits are equal, else the first that differs.
std::string difference(const RunBits& a, const RunBits& b);

RunBits reference_bits(const TinyJob& job);

// A job on an engine, with its checkpoint and its store in a folder of its own.
class TinyRun {
  public:
    // workspace_bytes: 0 for what LlamaCompute predicts.
    TinyRun(const TinyJob& job, const TinyPlan& plan, uint64_t workspace_bytes = 0);
    ~TinyRun();

    Engine& engine() { return *engine_; }
    const std::vector<StepOutcome>& outcomes() const { return outcomes_; }

    // Steps [first, first + count).
    offload::Status train(int64_t first_step, int64_t step_count);
    RunBits bits();
    // Bytes in the places of the store; 0 where there is none.
    uint64_t store_bytes() const;

  private:
    offload::Result<std::unique_ptr<offload::Store>> open_store(
        const TinyPlan& plan, std::vector<offload::PlaceSpec> places, std::span<std::byte> buffers);

    const TinyJob& job_;
    void start(const TinyPlan& plan);

    TestFolder folder_;
    std::optional<offload::CommitRecord> recovered_;
    std::unique_ptr<Engine> engine_;
    std::vector<StepOutcome> outcomes_;
};

// All steps of the job under the plan. CHECKs that nothing failed.
RunBits engine_bits(const TinyJob& job, const TinyPlan& plan);

// The job's weights as a model folder: config.json and safetensors in the job's dtype.
std::string write_tiny_checkpoint(const FlatModel& model, const TestFolder& folder);

}  // namespace headrace::engine::tests
