// find_fault: proves that a schedule means what a training step means, for every timing, or names
// the first op that breaks it. Three checks, each an idea of its own:
//
// - signature: every kind of op reads what its writes need, each op alone (signature.cc);
// - meaning: a symbolic period for each outcome of entry, train and exit: every read finds exactly
//   the value it names, the exit is the entry one step on, and no durable place is written whose
//   generation a newer commit has not released (meaning.cc);
// - order: conflicting accesses that are adjacent on their slot, over two periods, are ordered by
//   edges, and every edge points forward in time, so nothing is stuck (order.cc). Adjacent pairs
//   over two periods are enough, because the list repeats.
//
// It cannot see an op that does other than it declares, nor overlapping offsets: the second is
// checked by find_overlap below, the first by the tests of each op.
#pragma once

#include <optional>
#include <string>

#include "offload/schedule.h"

namespace headrace::offload {

// What is wrong, in one sentence that names the op, or nothing.
using Fault = std::optional<std::string>;

Fault find_fault(const Schedule& schedule);

Fault find_signature_fault(const Schedule& schedule);
Fault find_meaning_fault(const Schedule& schedule);
Fault find_order_fault(const Schedule& schedule);

// Two slots of one tier that share a byte (on nvme: a place), or a gpu slot in the workspace.
Fault find_overlap(const Schedule& schedule);

}  // namespace headrace::offload
