// Updates: the ops that make the weight and state of step k-1 out of those of k-2 and the waiting
// gradient, on the cpu, and bring them home. When they come is build's business.
#pragma once

#include "offload/period.h"

namespace headrace::offload {

// The whole update of a part, in place in ram. What lives elsewhere is fetched before, and written
// to its home, and to its mirror where the list commits, after: to nvme as a late write.
void update(Period& period, uint32_t part);

// Of a part that is updated twice, the first: the new weight alone, in a ring slot. Its home and
// the rest of the state stay as they were, for the second one, update(), to start from.
void update_hi(Period& period, uint32_t part);

}  // namespace headrace::offload
