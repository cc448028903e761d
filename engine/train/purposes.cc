#include "engine/train/purposes.h"

#include <array>

namespace headrace::engine {

using offload::Kind;
using offload::Tier;

namespace {

constexpr std::array<std::pair<Kind, std::string_view>, 7> purposes = {
    {{Kind::hi, "weights"},
     {Kind::opt, "states"},
     {Kind::stash, "gradients"},
     {Kind::acc, "accumulators"},
     {Kind::act, "activations"},
     {Kind::dact, "their gradients"},
     {Kind::kept, "kept for backward"}}};

}  // namespace

std::vector<PurposeBytes> bytes_by_purpose(const Placement& placement, Tier tier) {
    std::array<uint64_t, purposes.size()> homes = {};
    for (const offload::Slot& slot : lay_slots(placement.workload, placement.plan).slots) {
        if (!slot.is_home || slot.tier != tier || is_control(slot.kind)) continue;
        homes[static_cast<size_t>(slot.kind)] += slot.size_bytes * count_of(slot.copies);
    }
    std::vector<PurposeBytes> found;
    uint64_t sum_bytes = 0;
    const auto add = [&](std::string_view purpose, uint64_t size_bytes) {
        if (size_bytes > 0) found.push_back({purpose, size_bytes});
        sum_bytes += size_bytes;
    };
    for (const auto& [kind, name] : purposes) add(name, homes[static_cast<size_t>(kind)]);
    if (tier == Tier::gpu) add("workspace", placement.workload.workspace_bytes);
    const uint64_t needed_bytes = placement.needs.on(tier);
    CHECK_GE(needed_bytes, sum_bytes);
    add(tier == Tier::nvme ? "the store's own" : "on their way", needed_bytes - sum_bytes);
    return found;
}

}  // namespace headrace::engine
