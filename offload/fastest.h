// Fastest: which of the promises is the fastest, by simulating as few of them as will tell. Those
// whose bound is no better than the best step so far are passed over; where everything is on nvme,
// the share of parts whose update is computed twice is searched for too.
#pragma once

#include <vector>

#include "offload/promise.h"

namespace headrace::offload {

// What was simulated, the shortest step first: at most simulation_count_max of the question, none
// where no bound is better than its worth_s.
std::vector<Candidate> find_fastest(Room& room, std::vector<Promise> promises);

}  // namespace headrace::offload
