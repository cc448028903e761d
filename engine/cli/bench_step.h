// `headrace bench step`: how near a step comes to its longest lane, and what overlapping and the
// order of passes bring. For each batch a part of the model is rehearsed
// (engine/rehearse/rehearse.h) in four ways, or those asked for:
//
//   planned   as planned          what the planner says
//   gated     no update twice     the same without updates computed twice
//   serial    one op at a time    nothing overlaps
//   classic   classic order       one micro-batch a pass, one layer in flight, no update twice
//
// Rounds are interleaved, every other one backwards; between rehearsals the drives and the update
// are measured (engine/cli/step_ceilings.h): the ceiling of a row is the longest lane at the rates
// of the moment. Under an emulated card the title and every row say so: they are no measurement of
// that card, and stand beside no other trainer's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/cli/bench_rows.h"
#include "engine/cli/command_line.h"
#include "engine/cli/step_ceilings.h"
#include "engine/rehearse/rehearse.h"

namespace headrace::engine {

struct StepBenchContext {
    RehearsalInputs inputs;  // its configuration is the run's; batch and way are put into it
    RehearsalReporter reporter;
    std::string model_name;
    std::function<void(const std::string& line)> say{};  // progress, for people
};

struct StepBench {
    std::string title;               // "EMULATED rtx4090: llama-2-7b, 3 of 32 blocks ..."
    std::vector<BenchRow> rows;      // seconds of a step, beside those of the longest lane
    std::vector<std::string> notes;  // ways that did not fit, a line each
};

// Errors: of StepCeilings; of rehearse; does_not_fit, if no way of any batch fits.
offload::Result<StepBench> bench_step(const BenchStepCommand& command,
                                      const StepBenchContext& context);

std::string text_of(const StepBench& bench);

}  // namespace headrace::engine
