// The places of a run's store: the nvme slots of its schedule, by the number they have there.
#pragma once

#include <vector>

#include "offload/schedule.h"
#include "offload/store.h"

namespace headrace::engine {

std::vector<offload::PlaceSpec> places_of(const std::vector<offload::Slot>& slots);

}  // namespace headrace::engine
