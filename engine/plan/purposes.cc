#include "engine/plan/purposes.h"

namespace headrace::engine {

using offload::Kind;
using offload::Tier;

HomeBytes::HomeBytes(const Placement& placement) {
    for (const offload::Slot& slot : lay_slots(placement.workload, placement.plan).slots) {
        if (!slot.is_home || is_control(slot.kind)) continue;
        CHECK_EQ(kind_names[static_cast<size_t>(slot.kind)].kind, slot.kind);
        size_bytes_[static_cast<size_t>(slot.kind)][static_cast<size_t>(slot.tier)] +=
            slot.size_bytes * count_of(slot.copies);
    }
}

uint64_t HomeBytes::of(Kind kind, Tier tier) const {
    CHECK(!is_control(kind));
    return size_bytes_[static_cast<size_t>(kind)][static_cast<size_t>(tier)];
}

std::array<std::vector<PurposeBytes>, 3> bytes_by_purpose(const Placement& placement) {
    const HomeBytes homes(placement);
    std::array<std::vector<PurposeBytes>, 3> found;
    for (const Tier tier : offload::all_tiers) {
        uint64_t sum_bytes = 0;
        const auto add = [&](std::string_view purpose, uint64_t size_bytes) {
            if (size_bytes > 0) found[static_cast<size_t>(tier)].push_back({purpose, size_bytes});
            sum_bytes += size_bytes;
        };
        for (const KindName& kind : kind_names) add(kind.name, homes.of(kind.kind, tier));
        if (tier == Tier::gpu) add("workspace", placement.workload.workspace_bytes);
        const uint64_t needed_bytes = placement.needs.on(tier);
        CHECK_GE(needed_bytes, sum_bytes);
        add(tier == Tier::nvme ? "the store's own" : "on their way", needed_bytes - sum_bytes);
    }
    return found;
}

}  // namespace headrace::engine
