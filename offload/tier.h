// The places bytes can live (tiers) and the things that move or change them (lanes).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "offload/result.h"

namespace headrace::offload {

// gpu: the card's memory. ram: pinned CPU memory. nvme: the store.
enum class Tier : uint8_t { gpu, ram, nvme };
inline constexpr std::array<Tier, 3> all_tiers = {Tier::gpu, Tier::ram, Tier::nvme};

std::string_view name_of(Tier tier);
Result<Tier> parse_tier(std::string_view name);  // also hbm, pinned, cpu

enum class LaneKind : uint8_t { nvme_read, nvme_write, h2d, d2h, gpu, cpu, net };
inline constexpr int lane_kind_count = 7;

std::string_view name_of(LaneKind kind);

// In-order lanes start ops in list order only; the others start whatever is ready first.
constexpr bool is_in_order(LaneKind kind) {
    return kind == LaneKind::h2d || kind == LaneKind::d2h || kind == LaneKind::gpu ||
           kind == LaneKind::net;
}

// Lanes of the store.
constexpr bool is_nvme(LaneKind kind) {
    return kind == LaneKind::nvme_read || kind == LaneKind::nvme_write;
}

// How many ops of a lane a backend has started at a time: one runs and one waits, so that a lane
// never idles for want of the loop; on nvme enough that the drives' queues stay full.
constexpr int depth_of(LaneKind kind) {
    return is_nvme(kind) ? 8 : 2;
}

// The lane that carries bytes from one tier to another; CHECKs that they are neighbours.
LaneKind copy_lane(Tier source, Tier target);

}  // namespace headrace::offload
