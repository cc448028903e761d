// Sizes: what the slots of any plan of one workload take on each tier, as sums. The same numbers as
// of the slots that are laid (offload/slots.h), without laying them: microseconds, for whoever
// tries many plans.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/slots.h"

namespace headrace::offload {

struct TierBytes {
    uint64_t gpu_bytes = 0;
    uint64_t ram_bytes = 0;
    uint64_t nvme_bytes = 0;
    bool operator==(const TierBytes&) const = default;

    uint64_t& on(Tier tier) {
        return tier == Tier::gpu ? gpu_bytes : tier == Tier::ram ? ram_bytes : nvme_bytes;
    }
    uint64_t on(Tier tier) const { return TierBytes(*this).on(tier); }
};

// What is needed beyond what is given.
constexpr uint64_t excess(uint64_t needed, uint64_t given) {
    return needed > given ? needed - given : 0;
}
// The same of all tiers together; 0: it fits.
uint64_t shortfall(const TierBytes& needs, const TierBytes& ceilings);

// What the slots of a table take.
TierBytes bytes_needed(const Workload& workload, const SlotTable& table);

class Sizes {
  public:
    // The workload outlives it.
    explicit Sizes(const Workload& workload);

    // As bytes_needed(workload, lay_slots(workload, plan)); the plan has no fault.
    TierBytes of(const Plan& plan) const;

  private:
    struct PartBytes {
        uint64_t hi = 0;
        uint64_t opt = 0;
        uint64_t stash = 0;
        uint64_t acc = 0;
        uint32_t use_count = 1;
    };

    void add_homes(const Plan& plan, TierBytes& needs) const;
    void add_rings(const Plan& plan, TierBytes& needs) const;
    uint64_t window_slots(uint32_t window) const;

    const Workload& workload_;
    std::vector<PartBytes> parts_;
    PartBytes largest_;                 // of each kind
    std::vector<uint32_t> parts_used_;  // by layer, those of a visit
};

// The same for one plan.
TierBytes bytes_needed(const Workload& workload, const Plan& plan);

}  // namespace headrace::offload
