// The planner: of all placements that stay inside the ceilings, the one whose simulated step is the
// shortest. It asks in the order of what is near: does the job fit the card whole, then with states
// in ram, then in ram; only then does it use the drive, and there it weighs cached parts, weights
// in ram, read-ahead and updates computed twice against one another by simulation, because which of
// them wins depends on the machine. Whatever it answers has the same bits.
//
// A pure function; a 13B model takes tens of milliseconds, 70B below a second.
#pragma once

#include <string>
#include <vector>

#include "offload/simulate.h"
#include "offload/slots.h"

namespace headrace::offload {

struct TierBytes {
    uint64_t gpu_bytes = 0;
    uint64_t ram_bytes = 0;
    uint64_t nvme_bytes = 0;
    bool operator==(const TierBytes&) const = default;
};

// What is needed beyond what is given.
constexpr uint64_t excess(uint64_t needed, uint64_t given) {
    return needed > given ? needed - given : 0;
}
// The same of all tiers together; 0: it fits.
uint64_t shortfall(const TierBytes& needs, const TierBytes& ceilings);

// What the slots of a plan take.
TierBytes bytes_needed(const Workload& workload, const SlotTable& table);
TierBytes bytes_needed(const Workload& workload, const Plan& plan);

struct Question {
    const Workload& workload;  // for training; kept_bytes 0: nothing can be kept
    const Machine& machine;
    const Effort& effort;
    TierBytes ceilings;
    uint32_t path_count = 0;  // of the store: 0: there is no drive
    // Whether every step must be durable, where the store is used at all.
    CommitAt commit_at = CommitAt::every_step;
};

// Where the bytes that decide live.
enum class Base : uint8_t {
    card,            // everything on the gpu: nothing is offloaded
    states_in_ram,   // weights on the gpu, optimizer states in ram
    ram,             // all in ram
    weights_in_ram,  // weights in ram, states on nvme
    nvme,            // both on nvme, but for cached parts
};
std::string_view name_of(Base base);

struct Candidate {
    Base base = Base::card;
    double cached_share = 0;  // of the parts: whole in ram, spread over the layers
    double twice_share = 0;   // of the parts that can: their update is computed twice
    uint32_t kept_layer_count = 0;
    Plan plan;
    TierBytes needs;
    Forecast forecast;
};

struct Answer {
    Candidate best;
    std::vector<Candidate> others;  // that were simulated too, the faster ones first
};

// Error (does_not_fit): what the nearest miss needs on each tier beside the ceilings.
Result<Answer> find_plan(const Question& question);

}  // namespace headrace::offload
