// bound: seconds of a step that no schedule of a plan beats on a machine: the busiest lane, or the
// fullest resource, of what the plan must move and compute at least, in the whole step and in its
// two phases, forward and what follows: gated updates are read and written before forward ends. A
// sum over parts and layers; nothing is built, so it costs microseconds where a simulation costs
// milliseconds.
#pragma once

#include "offload/effort.h"
#include "offload/machine.h"
#include "offload/slots.h"

namespace headrace::offload {

// At most simulate(...).step_s. CHECKs that find_fault(machine) is empty. A machine without a drive
// has no bound for what a plan has on nvme: infinity.
double bound_s(const Workload& workload, const Plan& plan, const Machine& machine,
               const Effort& effort);

}  // namespace headrace::offload
