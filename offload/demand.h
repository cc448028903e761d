// Demand: what each op of a schedule asks of a machine: how long it takes alone, and which share of
// every shared resource it uses while it runs at that speed. An op that has no rate to wait for
// (verdict) takes no time.
//
//   seconds alone = work / the lane's own rate
//   share of a resource = work there / seconds alone / the resource's rate
//
// Worked example: a part of 1 MiB of weights from ram to the gpu at 25 GB/s takes 42 us; it uses
// the h2d lane fully, half of a duplex link, and 25 of 70 GB/s of memory: shares 1, 0.5, 0.36.
// An op never needs more than all of a resource: where a share would exceed 1 the resource is what
// it waits for, and seconds grow until the share is 1.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "offload/effort.h"
#include "offload/machine.h"
#include "offload/schedule.h"

namespace headrace::offload {

// Shared by ops of several lanes. That a lane does one op at a time is the backend's affair.
enum class Resource : uint8_t { link, drive, memory, cores };
inline constexpr size_t resource_count = 4;
std::string_view name_of(Resource resource);

struct Demand {
    double latency_s = 0;  // before the work, in which no resource is used
    double work_s = 0;     // alone
    std::array<double, resource_count> shares = {};  // of Resource, each in [0, 1]
};

// Floating-point operations of a compute op.
double compute_flop(const Op& op, const Effort& effort);

// One per op, in order. CHECKs that neither the machine has a fault nor a layer lacks its effort.
std::vector<Demand> demands_of(const Schedule& schedule, const Machine& machine,
                               const Effort& effort);

}  // namespace headrace::offload
