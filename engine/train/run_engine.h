// The engine of a run on this host: what a run file says of arithmetic, update and card, and how it
// was placed, as an Engine (engine/train/engine.h), which reads no configuration itself. Runs and
// rehearsals have theirs from here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/config/machine_file.h"
#include "engine/config/run_config.h"
#include "engine/data/batch_plan.h"
#include "engine/plan/nominal_host.h"
#include "engine/plan/placement.h"
#include "engine/resume/identity.h"
#include "engine/resume/run_store.h"
#include "engine/train/engine.h"

namespace headrace::engine {

// What the run file says of threads, or what the machine has: all cores compute, one updates.
HostThreads threads_of(const RunConfig& config);

bool has_loss_scale(const RunConfig& config);
// The rule where the dtype has a loss scale, else unscaled.
LossScaleRule loss_scale_rule_of(const RunConfig& config);

// Of what is referred to, the identity outlives the engine; the rest, make_engine.
struct RunEngine {
    const RunConfig& config;
    const LlamaConfig& model;
    const Placement& placement;
    HostThreads threads;
    MicroBatchShape largest_shape;      // of training
    const MachineFile* card = nullptr;  // that is emulated; null: the host plays the card
    std::function<double(int64_t update_index)> learning_rate_of;
    const Identity& identity;         // of this start: what commits say of it
    const SavedRun* saved = nullptr;  // what is resumed; null: nothing
    std::string drive_cache;          // nvme/drive_cache.h; empty: none
    DriveHooks drives{};
    std::function<void(const std::string&)> note;      // one line
    std::function<void(const std::string&)> on_stuck;  // engine/train/train.h, stuck
    std::function<bool()> should_stop{};               // the measuring of drives; empty: never
    std::function<offload::Status(nvme::NvmeStore&)> on_store_opened;  // where there is one
    std::function<void(int64_t op_count)> on_op_done{};                // may be empty
};

// Errors: of Engine::create.
offload::Result<std::unique_ptr<Engine>> make_engine(RunEngine run);

}  // namespace headrace::engine
