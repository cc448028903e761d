// Edges are derived, never written by hand: an op waits for what its accesses conflict with.
#pragma once

#include <vector>

#include "offload/schedule.h"

namespace headrace::offload {

// The list of ops is walked twice, the second time as the period that follows the first. A read
// waits for its slot's last writer; a write for all readers since then, or for the last writer
// where nobody has read. Found in the same copy: distance 0; in the copy before: distance 1. On
// each slot every conflicting pair is thereby joined by a chain, so every timing gives the list's
// meaning. Guards do not matter: a false op keeps its edges. Sorted by (source, target, distance),
// unique.
std::vector<Edge> derive_edges(const std::vector<Op>& ops, size_t slot_count);

}  // namespace headrace::offload
