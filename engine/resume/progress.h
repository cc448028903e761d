// Progress: how far a run is. What a commit stores of it beside weights and states.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/loss_scale.h"

namespace headrace::engine {

// After a whole number of steps.
struct Progress {
    int64_t attempts = 0;          // steps tried: the position in the data
    int64_t updates = 0;           // steps applied: Adam's step and the learning rate's
    int64_t skipped_count = 0;     // steps not applied
    int64_t skipped_in_a_row = 0;  // because not finite, up to the last step
    LossScale loss_scale;          // of the next step
    std::string history;           // SHA-256, in hex, over losses and norms of all steps
    bool operator==(const Progress&) const = default;
};

}  // namespace headrace::engine
