// What the bytes of a tier are for, under one placement: what lives there, what is on its way
// through, and what computing takes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/train/placement.h"

namespace headrace::engine {

struct PurposeBytes {
    std::string_view purpose;  // "weights", "states", ..., "on their way", "workspace"
    uint64_t size_bytes = 0;
};

// Of one tier; purposes without a byte are left out. They add up to what the placement needs there.
// On nvme every generation counts, and what the store holds beside its places is "the store's own".
std::vector<PurposeBytes> bytes_by_purpose(const Placement& placement, offload::Tier tier);

}  // namespace headrace::engine
