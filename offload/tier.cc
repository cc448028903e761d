#include "offload/tier.h"

#include <string>

namespace headrace::offload {

std::string_view name_of(Tier tier) {
    switch (tier) {
        case Tier::gpu: return "gpu";
        case Tier::ram: return "ram";
        case Tier::nvme: return "nvme";
    }
    CHECK(false);
}

Result<Tier> parse_tier(std::string_view name) {
    if (name == "gpu" || name == "hbm") return Tier::gpu;
    if (name == "ram" || name == "pinned" || name == "cpu") return Tier::ram;
    if (name == "nvme") return Tier::nvme;
    return Error{ErrorCode::usage,
                 "'" + std::string(name) + "' is no tier; known are gpu, ram and nvme", ""};
}

std::string_view name_of(LaneKind kind) {
    constexpr std::array<std::string_view, lane_kind_count> names = {
        "nvme_read", "nvme_write", "h2d", "d2h", "gpu", "cpu", "net"};
    CHECK_LT(static_cast<size_t>(kind), names.size());
    return names[static_cast<size_t>(kind)];
}

LaneKind copy_lane(Tier source, Tier target) {
    if (source == Tier::nvme && target == Tier::ram) return LaneKind::nvme_read;
    if (source == Tier::ram && target == Tier::nvme) return LaneKind::nvme_write;
    if (source == Tier::ram && target == Tier::gpu) return LaneKind::h2d;
    CHECK(source == Tier::gpu && target == Tier::ram);
    return LaneKind::d2h;
}

}  // namespace headrace::offload
