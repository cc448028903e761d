// Promises: the choices that a question is worth being answered with, in the order of what is near.
// Does the job fit the card whole, then the card and ram, with all micro-batches in one pass; only
// if not, smaller passes and the drive. There cached parts, read-ahead, gradients and kept values
// on the drive are different promises, because which of them wins depends on the machine.
#pragma once

#include <vector>

#include "offload/room.h"

namespace headrace::offload {

// A choice that fits, and what no schedule of it beats (offload/bound.h). Where updates may be
// computed twice, it is the smallest share, of steps of twice_grid, whose bound is the least.
struct Promise {
    Choice choice;
    double bound_s = 0;
};

inline constexpr double twice_grid = 0.125;
// Whether that share is the search's to choose.
bool has_open_share(const Question& question, const Choice& choice);

double bound_of(const Room& room, const Choice& choice);

// No choice twice. Error (usage): the question fixes what cannot be.
Result<std::vector<Promise>> find_promises(Room& room);

}  // namespace headrace::offload
