// RunReport: what is told of a run, to whoever prints (TrainReporter in engine/train/train.h) and
// in output_dir/metrics.jsonl: every step and evaluation as they come; in the end where the steps
// went, what the run took and made, and how right its plan was. It counts and compares; it decides
// nothing. A line that cannot be written (a full drive) is warned of once and costs nothing else.
//
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/resume/identity.h"
#include "engine/train/drive_watch.h"
#include "engine/train/engine.h"
#include "engine/train/host_placement.h"
#include "engine/train/resident.h"
#include "engine/train/train.h"

namespace headrace::engine {

// All of it outlives the report.
struct ReportedRun {
    const TrainInputs& inputs;
    const TrainReporter& reporter;
    const BatchPlan& batches;           // of training
    const HostPlacement& placed;        // as planned
    const MicroBatchShape& shape;       // the largest of training
    const MachineFile* card = nullptr;  // that is emulated; null: the host plays the card
};

// A run that came to its end.
struct RunEnd {
    const Engine& engine;
    Identity identity;                  // of its last commit
    ResidentMemory baseline;            // the program and torch, before the first slot
    std::optional<HomesDigest> digest;  // none where a card was emulated: nothing was trained
};

class RunReport {
  public:
    explicit RunReport(const ReportedRun& run) : run_(run) {}

    // The run's drives are this store's, which must be there for all that follows.
    void watch(const nvme::NvmeStore& store);

    // What a step moves on the drives; nothing where it moves nothing.
    void say_traffic(const Engine& engine) const;

    // The steps are about to begin: begins metrics.jsonl, or goes on with it after so many steps.
    // Error: failed.
    offload::Status open(std::optional<int64_t> resumed_after);

    void step(const StepOutcome& outcome);
    void save(int64_t step);
    void evaluation(int64_t step, const EvalOutcome& outcome, double time_ms);

    // Of a run that ended anyhow: the median step, and the trace file if the run file wants one.
    void say_where_steps_went(const Engine& engine);

    void finish(const RunEnd& end);

    // Nothing is under way: what was moved since the last step is none's.
    void look_at_rest() { drives_.look_at_rest(); }
    Written written() const { return drives_.written(); }

  private:
    const RunConfig& config() const { return run_.inputs.config; }
    std::string emulated() const { return run_.card != nullptr ? run_.card->machine.name : ""; }
    int64_t warm_up_step_count() const;
    StepRecord record_of(const StepOutcome& outcome) const;
    std::vector<Metric> facts_of(const RunEnd& end) const;
    void compare_with_plan(std::vector<Metric>& metrics) const;
    void log(const offload::Status& appended);

    const ReportedRun run_;
    DriveWatch drives_;
    std::unique_ptr<MetricsFile> metrics_;
    bool is_log_lost_ = false;
    std::vector<double> step_ms_;  // of the steps of this start
    int64_t token_count_ = 0;      // in them
};

}  // namespace headrace::engine
