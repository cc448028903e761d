// Rates that an ordinary host is assumed to have until they are measured (headrace doctor --probe):
// what a placement is weighed by where nothing better is known. They are those of no machine; a
// step predicted by them is a guess, and says so.
#pragma once

#include "offload/dtype.h"
#include "offload/machine.h"

namespace headrace::engine {

struct HostThreads {
    int compute_threads = 1;  // that play the card
    int update_threads = 1;
    int core_count = 1;  // that this process may use
};

// `dtype`: what it computes in.
offload::Machine nominal_host(const HostThreads& threads, offload::Dtype dtype);

// The same machine with what this run keeps busy of its cores.
offload::Machine with_threads(offload::Machine machine, const HostThreads& threads);

// The host with a card that it has not: its drives, memory and update, the other's computing and
// copying.
offload::Machine with_card(offload::Machine host, const offload::Machine& card);

}  // namespace headrace::engine
