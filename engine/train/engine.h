// Engine: a model in training on this machine. It owns the memory of all tiers, the store, the
// lanes and the threads; it is given a plan and data, and turns steps. It reads no configuration
// and prints nothing: engine/train/train.h wires it to a run file.
//
// Life: create, load or resume, then any sequence of train and evaluate, then export or digest. One
// thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/emulated_card.h"
#include "engine/train/homes.h"
#include "engine/train/host_backend.h"
#include "kernels/host/reduce.h"
#include "offload/build.h"
#include "offload/memory.h"
#include "offload/step_recorder.h"
#include "offload/store.h"

namespace headrace::engine {

// Makes the store for these places, once the ram slab is there to be registered as I/O buffers.
using OpenStore = std::function<offload::Result<std::unique_ptr<offload::Store>>(
    std::vector<offload::PlaceSpec> places, std::span<std::byte> buffers)>;

struct EngineOptions {
    LlamaConfig config;
    offload::Workload workload;  // micro_batch_count_max, act_bytes and workspace_bytes are set
    offload::Plan plan;
    int compute_threads = 1;
    Kernels kernels = Kernels::fused;
    int update_threads = 1;
    AdamStepOf adam_step_of;
    RecordOf record_of;
    double max_grad_norm = 0;
    LossScaleRule loss_scale = unscaled;
    uint64_t rounding_seed = 0;  // of states in bf16 and int8
    const cpu_adam::Row* update_row = nullptr;
    const kernels::ReduceRow* reduce_row = nullptr;
    OpenStore open_store{};  // called by create alone, and not where nothing is on nvme
    std::function<void(int64_t op_count)> on_op_done{};  // may be empty
    // A card that is only pretended: nothing is computed, and the gpu tier needs no memory.
    std::optional<PretendedCard> emulated_card{};
    bool is_serial = false;        // follow the list op by op: the oracle of the other timings
    bool poison_released = false;  // tests: see executor.h
};

// The batch of step `step`, asked for one step ahead of its turn.
using BatchOf = std::function<StepBatch(int64_t step)>;

struct EvalOutcome {
    double loss = 0;
    int64_t trained_token_count = 0;
};

// Busy time of each lane since the engine was made.
using LaneTimes = std::array<int64_t, offload::lane_kind_count>;

class Engine {
  public:
    // Error: does_not_fit (the memory refuses), usage (the plan cannot be built), or the store's.
    static offload::Result<std::unique_ptr<Engine>> create(EngineOptions options,
                                                           std::unique_ptr<offload::Memory> memory);
    ~Engine();

    // Before load: shows that a micro-batch of this shape computes inside the workspace
    // (engine/train/dry_run.h). Error: does_not_fit.
    offload::Status try_shape(int64_t row_count, int64_t column_count);

    // The start of a run: weights from the checkpoint, fresh states; if the plan commits and keeps
    // two copies, the commit of no step.
    offload::Status load(const Checkpoint& checkpoint);
    // Instead of load: of a checkpoint that has more layers, those of this model; or weights that
    // mean nothing.
    offload::Status load_part_of(const Checkpoint& checkpoint);
    offload::Status load_made_up();
    // Instead of load: the store already holds the run as it was after `progress`, and what lives
    // in memory is read from there.
    offload::Status resume(const Progress& progress);

    // Makes what train has done durable, RAM and gpu included: a save. A plan that commits every
    // step has done so when train returns. One that keeps a single copy of what is durable has a
    // commit from here until train or, where all homes are in memory, the next save goes on.
    offload::Status commit();
    const Progress& progress() const { return progress_; }

    struct TrainOptions {
        int64_t step_count = 0;
        BatchOf batch_of;
        // Micro-batches of a step, known before its batch is made.
        std::function<int64_t(int64_t step)> micro_batch_count_of;
        // Called once per step, in order, as each completes. An Error ends the run after what is in
        // flight is done.
        std::function<offload::Status(const StepOutcome&)> on_step;
        // Asked before each step: whether to drain instead, and so end early. May be empty.
        std::function<bool()> wants_stop{};
    };
    // Runs the next steps and drains: afterwards all updates are done and at home.
    offload::Status train(const TrainOptions& options);

    // The loss over these micro-batches, in groups; no gradient, no update.
    offload::Result<EvalOutcome> evaluate(std::vector<TokenBatch> micro_batches);

    offload::Status export_to(CheckpointWriter& writer);
    offload::Result<HomesDigest> digest();

    uint64_t tier_bytes(offload::Tier tier) const;
    // What a whole step moves on the lane, if every boundary activation is as large as any.
    uint64_t step_bytes(offload::LaneKind lane) const;
    const LaneTimes& lane_times() const { return lane_times_; }
    // The last steps of train.
    const offload::StepRecorder& recorder() const { return recorder_; }
    const offload::Store* store() const { return store_.get(); }

  private:
    explicit Engine(EngineOptions options, std::unique_ptr<offload::Memory> memory);
    offload::Status take_memory();
    std::unique_ptr<Card> make_card() const;
    offload::Result<const offload::Schedule*> schedule_for(uint32_t micro_batch_count,
                                                           offload::Purpose purpose);
    struct Segment;
    offload::Status run_list(const offload::Schedule& schedule, Segment& segment);
    offload::Status train_segment(const TrainOptions& options, int64_t first, int64_t end);
    offload::Status commit_what_was_loaded();
    // Where a durable place has one copy: before it is written over.
    offload::Status withdraw_commits();
    bool commits() const { return options_.plan.path_count > 0; }
    Homes homes() const { return {executor_.get(), store_.get()}; }

    const EngineOptions options_;
    std::unique_ptr<offload::Memory> memory_;
    LlamaCompute compute_;
    cpu_adam::UpdatePool update_pool_;
    std::unique_ptr<offload::Store> store_;
    std::unique_ptr<SlotBytes> slots_;
    std::unique_ptr<Card> card_;
    std::unique_ptr<Executor> executor_;
    std::unique_ptr<HostBackend> backend_;  // after what it works on
    std::map<std::pair<uint32_t, offload::Purpose>, offload::Schedule> schedules_;
    Progress progress_;
    LaneTimes lane_times_ = {};
    offload::StepRecorder recorder_;
    int64_t op_count_ = 0;  // done, in all lists
};

}  // namespace headrace::engine
