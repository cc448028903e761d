#include "engine/train/run_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/plan/places.h"
#include "engine/resume/store_room.h"
#include "engine/train/run_batches.h"
#include "engine/train/run_engine.h"
#include "engine/train/run_identity.h"
#include "nvme/store_files.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

// What the run's store may take; an emulated run has no result to keep room for.
uint64_t drive_bytes(const SetupInputs& inputs, const RunSetup& setup) {
    const RunConfig& config = inputs.run.config;
    if (config.offload.nvme_paths.empty()) return 0;
    const uint64_t result_bytes = bytes_of(config.dtype, parameter_count(inputs.run.model));
    return room_for_store(config, setup.card ? 0 : result_bytes);
}

HostRun host_run(const SetupInputs& inputs, const RunSetup& setup) {
    const std::optional<MachineFile>& machine = inputs.run.machine;
    HostRun run{.config = inputs.run.config,
                .model = inputs.run.model,
                .shapes = setup.shapes,
                .micro_batch_count_max = inputs.batches.micro_batch_count_of(0),  // the most of all
                .step_count = inputs.batches.step_count(),
                .threads = inputs.threads,
                .memory = {.available_bytes = inputs.ram_free_bytes,
                           .drive_bytes = drive_bytes(inputs, setup)},
                .machine = machine ? &*machine : nullptr,
                .card = setup.card ? &*setup.card : nullptr,
                .saved_part_bytes = std::nullopt};
    if (!setup.saved) return run;
    run.saved_part_bytes = setup.saved->saved.identity.part_bytes;
    const std::vector<offload::PlaceSpec>& places = setup.saved->store.places;
    run.has_one_copy = !places.empty() && places[0].copies == offload::Copies::one;
    return run;
}

void warn_of_card(const SetupInputs& inputs, const MachineFile& card) {
    inputs.reporter.warn(
        fmt::format("EMULATED {}: ops of the card take its time and compute nothing; drives, "
                    "updates and commits are real. No model will be written",
                    card.machine.name));
}

void say_short_steps(const SetupInputs& inputs) {
    const int64_t last_of_epoch = inputs.batches.steps_per_epoch() - 1;
    if (last_of_epoch >= inputs.batches.step_count()) return;
    const int64_t count = inputs.batches.micro_batch_count_of(last_of_epoch);
    const int64_t full = inputs.run.config.gradient_accumulation_steps;
    if (count == full) return;
    inputs.reporter.note(
        fmt::format("the last step of an epoch has {} of {} micro-batches: every sample is used "
                    "once, none is dropped or repeated",
                    count, full));
}

Status check_not_beyond_the_end(const SetupInputs& inputs, const Progress& progress) {
    const int64_t done = progress.attempts;
    if (done <= inputs.batches.step_count()) return {};
    return Error{ErrorCode::usage,
                 fmt::format("the run in {} has done {} steps, and this start asks for {}",
                             inputs.run.config.output_dir, done, inputs.batches.step_count()),
                 fmt::format("max_steps={} exports what is there, more goes on with it", done)};
}

// Weights of bf16 leave nothing over in bf16; fp16 keeps a master beside every weight, fp32 none.
LoadedStates loaded_states(const offload::Workload& workload, const Checkpoint& checkpoint) {
    if (workload.dtype == offload::Dtype::fp32) return LoadedStates::zero;
    if (workload.dtype == offload::Dtype::fp16) return LoadedStates::written;
    for (const offload::LayerSpec& layer : workload.layout.specs) {
        for (const offload::TensorSpec& tensor : layer.tensors) {
            const StoredTensor* const stored = checkpoint.find(tensor.name);
            CHECK(stored != nullptr);
            if (stored->dtype != offload::Dtype::bf16) return LoadedStates::written;
        }
    }
    return LoadedStates::zero;
}

int64_t evaluated_micro_batches(const TrainInputs& run) {
    if (run.eval_data == nullptr) return 0;
    return BatchPlan(*run.eval_data, eval_batches(run.config, *run.eval_data))
        .micro_batch_count_of(0);
}

// What a resume writes before its first step: nothing, or every durable place of a successor.
uint64_t repacked_bytes(const SavedRun& saved, const Placement& placement) {
    const offload::Workload& workload = placement.workload;
    const std::vector<offload::PlaceSpec> places =
        nvme::durable_of(places_of(workload.layout, lay_slots(workload, placement.plan).slots));
    if (saved.store.places == places) return 0;
    uint64_t size_bytes = 0;
    for (const offload::PlaceSpec& place : places) size_bytes += place.size_bytes;
    return size_bytes;
}

AllowedChanges allowed_changes(const RunConfig& config) {
    return {.states = config.convert_optimizer_states, .arithmetic = config.allow_other_numerics};
}

// Whether this is the run that was saved; what is other and may be is said.
Status compare_with_saved(const SetupInputs& inputs, const Saved& saved, const Identity& now) {
    const Status same = check_same_run(saved.identity, now, allowed_changes(inputs.run.config));
    if (!same) return same;
    if (Status fits = check_not_beyond_the_end(inputs, saved.progress); !fits) return fits;
    for (const std::string& move : saved.identity.moves) {
        inputs.reporter.note("the run was moved " + move);
    }
    for (const std::string& unsaid : unsaid_arithmetic(saved.identity, now)) {
        inputs.reporter.warn("the run was saved before it was noted, so it may be another: " +
                             unsaid);
    }
    const bool computes = saved.progress.attempts < inputs.batches.step_count();
    for (const std::string& change : arithmetic_changes(saved.identity, now)) {
        if (computes) {
            inputs.reporter.warn("resuming with other arithmetic, so with other bits: " + change);
        } else {
            inputs.reporter.note("every step is done, so no bit depends on it: " + change);
        }
    }
    for (const std::string& change : recipe_changes(saved.identity, now)) {
        inputs.reporter.warn("resuming with another recipe: " + change);
    }
    return {};
}

}  // namespace

Result<RunSetup> set_up(const SetupInputs& inputs, const Checkpoint& checkpoint) {
    RunSetup setup;
    Result<std::optional<MachineFile>> card = emulated_card(inputs.run.config);
    if (!card) return card.error();
    setup.card = std::move(*card);
    if (setup.card) warn_of_card(inputs, *setup.card);
    Result<std::optional<SavedRun>> saved = find_saved_run(inputs.run.config);
    if (!saved) return saved.error();
    setup.saved = std::move(*saved);
    std::vector<Fact> numerics = numerics_of(inputs.run, setup.card ? &*setup.card : nullptr,
                                             inputs.threads.compute_threads);
    inputs.reporter.note(describe(numerics));
    Result<Identity> identity = identity_of(inputs.run, std::move(numerics), checkpoint);
    if (!identity) return identity.error();
    setup.identity = std::move(*identity);
    if (!setup.saved) return setup;
    const Status same = compare_with_saved(inputs, setup.saved->saved, setup.identity);
    if (!same) return same.error();
    return setup;
}

Status place_run(const SetupInputs& inputs, RunSetup& setup) {
    CHECK(!setup.identity.numerics.empty());  // set_up comes first
    setup.shapes = largest_shapes(inputs.run.config, inputs.run.train_data, inputs.run.eval_data);
    Result<HostPlacement> placed = place_on_host(host_run(inputs, setup));
    if (!placed) return placed.error();
    setup.placed = std::move(*placed);
    setup.commit_at = commit_of(setup.placed.placement.plan);
    setup.identity.part_bytes = setup.placed.placement.part_bytes;
    CHECK_GT(setup.identity.part_bytes, 0u);
    for (const std::string& line : setup.placed.lines) inputs.reporter.note(line);
    say_short_steps(inputs);
    return {};
}

Result<DriveWrites> plan_writes(const SetupInputs& inputs, const RunSetup& setup,
                                const Checkpoint& checkpoint) {
    const RunConfig& config = inputs.run.config;
    const Placement& placement = setup.placed.placement;
    DriveWrites writes = drive_writes_of(placement, loaded_states(placement.workload, checkpoint),
                                         evaluated_micro_batches(inputs.run));
    if (setup.saved) writes.load_bytes = repacked_bytes(*setup.saved, placement);
    const auto limit = config.offload.nvme_write_limit_bytes;
    const int64_t done = setup.saved ? setup.saved->saved.progress.attempts : 0;
    if (!limit || done >= inputs.batches.step_count()) return writes;
    if (Status status = check_one_step_within(*limit, writes); !status) return status.error();
    return writes;
}

}  // namespace headrace::engine
