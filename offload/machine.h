// Machine: what a machine can do, as measured rates: where every prediction of time starts. Rates
// are those a step reaches, not those on a box: the gpu's in matrix products of the compute dtype,
// a drive's sustained, the update's with its real row and threads.
//
// Lanes meet on shared resources: a link may carry less in both directions together than twice one
// of them, a drive reads and writes in turns, memory and cores serve everybody. Each such limit is
// a number here, and what several lanes ask of it at once they share (offload/simulated.h).
#pragma once

#include <cstdint>
#include <string>

namespace headrace::offload {

struct LinkRates {
    double h2d_bytes_per_s = 0;
    double d2h_bytes_per_s = 0;
    double latency_s = 0;  // of each copy, hidden behind the one before
    // What both directions carry together, as a multiple of one alone: 2 at once, 1 in turns.
    double both_ways = 2;
    bool operator==(const LinkRates&) const = default;
};

// All drives of the store together, as places are striped over them.
struct DriveRates {
    double read_bytes_per_s = 0;
    double write_bytes_per_s = 0;  // sustained
    double burst_bytes_per_s = 0;  // of the first burst_bytes written; 0: no burst
    double burst_bytes = 0;
    double latency_s = 0;  // of each transfer, hidden behind the one before
    double flush_s = 0;    // of each sync, record and seal
    double both_ways = 1;  // as of a link
    bool operator==(const DriveRates&) const = default;
};

struct Machine {
    std::string name;
    double gpu_flops = 0;               // per second
    double gpu_memory_bytes_per_s = 0;  // for what is not a matrix product
    double launch_s = 0;                // of each op on the gpu, hidden behind the one before
    LinkRates link;
    DriveRates drive;                    // read_bytes_per_s 0: there is none
    double update_parameters_per_s = 0;  // on all update_cores, alone
    double memory_bytes_per_s = 0;       // of the host, shared by all that moves through it
    double core_count = 0;               // that a run may use
    double update_cores = 0;             // that an update keeps busy
    double compute_cores = 0;            // that the gpu lane keeps busy: 0 on a card
    double copy_cores = 0;               // the same of h2d and d2h each
    bool operator==(const Machine&) const = default;
};

// The first rate without sense (zero, negative, not a number), as "field: why", or "".
std::string find_fault(const Machine& machine);

}  // namespace headrace::offload
