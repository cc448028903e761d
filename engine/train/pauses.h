// Pauses: after which steps a run stops turning them for a while, every update done and at home: to
// evaluate, to save, and at its end. Pure, from the settings and the number of steps done.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/config/run_config.h"
#include "offload/slots.h"

namespace headrace::engine {

class Pauses {
  public:
    // eval_steps: every so many steps, and at the end. save_steps: the same, where the run commits
    // at saves; a run that commits every step, or never, does not save.
    Pauses(const RunConfig& config, std::optional<offload::CommitAt> commit_at, int64_t step_count);

    // The first pause after `done` steps; done is less than all (CHECK).
    int64_t next(int64_t done) const;

    // Also before the first step.
    bool evaluates_after(int64_t done) const;
    bool saves_after(int64_t done) const;
    // Whether a run that stops wherever it is must save to be gone on with.
    bool saves() const { return save_steps_.has_value(); }

  private:
    int64_t step_count_;
    int64_t eval_steps_;
    std::optional<int64_t> save_steps_;
};

}  // namespace headrace::engine
