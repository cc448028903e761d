// Gradients: from the accumulators of a layer's uses, which every micro-batch adds to, to the stash
// and the norm. Between passes an accumulator is at home, which may be far away.
#pragma once

#include <vector>

#include "offload/period.h"

namespace headrace::offload {

// Gpu slots, in the order of parts_used, for the accumulators of a layer's uses; after the first
// pass, with what the passes before have summed.
std::vector<SlotId> bring_accumulators(Period& period, uint32_t layer, const Group& group);

// The op adds the micro-batch's gradients to them.
void add_gradients(Period& period, uint32_t layer, uint32_t micro_batch,
                   const std::vector<SlotId>& accumulators, Op& op);

// After a layer's last micro-batch of the pass: reduces the parts whose gradient is complete, and
// sends the other accumulators home.
void finish_accumulators(Period& period, uint32_t layer, const Group& group,
                         const std::vector<SlotId>& accumulators);

}  // namespace headrace::offload
