// The places of a run's store: the nvme slots of its schedule, by the number they have there. A
// durable place is named after what it keeps ("opt layers.3/0": states of the first part of that
// layer), which does not depend on the placement.
#pragma once

#include <vector>

#include "offload/schedule.h"
#include "offload/store.h"

namespace headrace::engine {

std::vector<offload::PlaceSpec> places_of(const offload::Layout& layout,
                                          const std::vector<offload::Slot>& slots);

}  // namespace headrace::engine
