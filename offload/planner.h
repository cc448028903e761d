// The planner: of all placements that stay inside the ceilings and keep to what a run fixes, the
// one whose simulated step is the shortest. Whatever it answers has the same bits. Four ideas, each
// in its own file:
//
//   offload/room.h     does a choice fit, and what was the nearest miss
//   offload/fit.h      the first way to fill in a choice that fits; offload/fill.h: what it does
//                      with the room that is left
//   offload/promise.h  the choices worth weighing, the nearest first, and a bound for each
//   offload/fastest.h  the few that are simulated, and the one that wins
//
// A pure function; a 13B model takes a tenth of a second, 70B about half of one.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "offload/choice.h"
#include "offload/simulate.h"
#include "offload/sizes.h"
#include "offload/slots.h"

namespace headrace::offload {

struct Question {
    const Workload& workload;  // for training; kept_bytes 0: nothing can be kept
    const Machine& machine;
    const Effort& effort;
    TierBytes ceilings;
    // Of gpu and ram together, where both are one memory.
    uint64_t memory_ceiling_bytes = std::numeric_limits<uint64_t>::max();
    uint32_t path_count = 0;  // of the store: 0: there is no drive
    Fixed fixed{};
    CommitRule commits{};
    // What the store takes for the slots on nvme; empty: what they hold.
    std::function<uint64_t(const SlotTable&)> store_bytes{};
    size_t simulation_count_max = 100;
    // Candidates whose bound is no better are passed over, and may leave no answer.
    double worth_s = std::numeric_limits<double>::infinity();
};

// Where the bytes that decide live, by the farthest tier that any weight and any state is on.
enum class Base : uint8_t {
    card,             // everything on the gpu: nothing is offloaded
    states_in_ram,    // weights on the gpu, optimizer states in ram
    ram,              // all in ram
    states_on_nvme,   // weights on the gpu, states on nvme
    weights_in_ram,   // weights in ram, states on nvme
    weights_on_nvme,  // weights on nvme, states nearer: a run may fix that
    nvme,             // both on nvme, but for cached parts
};
std::string_view name_of(Base base);
Base base_of(const Plan& plan);

struct Candidate {
    Base base = Base::card;
    Choice choice{};
    Plan plan{};
    TierBytes needs{};
    Forecast forecast{};
};

struct Answer {
    Candidate best;
    // That were simulated too, as long as they were better than the best before them; the faster
    // ones first.
    std::vector<Candidate> others;
};

struct Findings {
    std::optional<Answer> answer;  // nothing: no placement fits
    // Then: what the placement needs that lacks the fewest bytes.
    TierBytes nearest;
};

// Error (usage): a machine without sense, or something fixed that cannot be.
Result<Findings> search(const Question& question);

// The same, where nothing fits as an Error (does_not_fit): what the nearest miss needs on each tier
// beside the ceilings.
Result<Answer> find_plan(const Question& question);

}  // namespace headrace::offload
