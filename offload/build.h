// build: from what is to be computed and where things live to one period as a list of ops with
// derived edges. A pure function; the only place that knows the policy (the gated update: gradients
// wait in the stash until the verdict, and each part is updated just before its layer's next
// forward). The list is correct for every plan that find_fault(workload, plan) accepts, whatever
// the ring sizes: smaller rings only wait more.
#pragma once

#include "offload/schedule.h"
#include "offload/slots.h"

namespace headrace::offload {

// Error (usage): the plan's fault. The result passes find_fault(schedule) (offload/find_fault.h).
Result<Schedule> build(const Workload& workload, const Plan& plan);

}  // namespace headrace::offload
