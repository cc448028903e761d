// What the bytes of a tier are for, under one placement: what lives there, what is on its way
// through, and what computing takes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/plan/placement.h"

namespace headrace::engine {

// What values of a kind are to people.
struct KindName {
    offload::Kind kind = offload::Kind::hi;
    std::string_view name;     // "gradients"
    std::string_view in_full;  // "gradients, waiting for the verdict"
};

// Every kind that takes bytes, in the order of offload::Kind.
inline constexpr std::array<KindName, 7> kind_names = {
    {{offload::Kind::hi, "weights", "weights"},
     {offload::Kind::opt, "states", "optimizer states"},
     {offload::Kind::stash, "gradients", "gradients, waiting for the verdict"},
     {offload::Kind::acc, "accumulators", "accumulators, between uses"},
     {offload::Kind::act, "activations", "boundary activations"},
     {offload::Kind::dact, "their gradients", "gradients of boundary activations"},
     {offload::Kind::kept, "kept for backward", "kept for backward"}}};

// Of homes alone: how many bytes of a kind live on a tier, every generation counted.
class HomeBytes {
  public:
    explicit HomeBytes(const Placement& placement);
    uint64_t of(offload::Kind kind, offload::Tier tier) const;

  private:
    std::array<std::array<uint64_t, 3>, kind_names.size()> size_bytes_ = {};  // by kind, tier
};

struct PurposeBytes {
    std::string_view purpose;  // the name of a kind, "on their way", "workspace", ...
    uint64_t size_bytes = 0;
};

// By Tier; purposes without a byte are left out. They add up to what the placement needs there. On
// nvme what the store holds beside its places is "the store's own".
std::array<std::vector<PurposeBytes>, 3> bytes_by_purpose(const Placement& placement);

}  // namespace headrace::engine
