// Memory: where the slots of the gpu and ram tiers come from. One slab per tier, taken once before
// the first step and given back when the Memory goes. kernels/ implements it for real devices;
// HeapMemory is the twin for tests. Taking more than the tier holds is an Error, never a crash.
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "offload/result.h"
#include "offload/tier.h"

namespace headrace::offload {

class Memory {
  public:
    virtual ~Memory() = default;

    // A slab of at least page alignment, size a multiple of page_bytes, owned by this object. At
    // most one slab per tier; nvme has none (CHECK). Error (does_not_fit): names the tier, what was
    // asked and what there is.
    virtual Result<std::span<std::byte>> take(Tier tier, uint64_t size_bytes) = 0;
};

}  // namespace headrace::offload
