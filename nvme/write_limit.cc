#include "nvme/write_limit.h"

#include <algorithm>

#include "offload/check.h"

namespace headrace::nvme {

WriteLimit::WriteLimit(uint64_t bytes_per_s)
    : ns_per_byte_(1e9 / static_cast<double>(bytes_per_s)) {
    CHECK_GT(bytes_per_s, 0u);
}

bool WriteLimit::take(uint64_t now_ns, uint64_t size_bytes) {
    CHECK_GT(size_bytes, 0u);
    const auto cost_ns = static_cast<uint64_t>(static_cast<double>(size_bytes) * ns_per_byte_);
    const uint64_t credit_from_ns = now_ns > credit_ns_max ? now_ns - credit_ns_max : 0;
    uint64_t free_at_ns = free_at_ns_.load();
    while (free_at_ns <= now_ns) {
        const uint64_t next_ns = std::max(free_at_ns, credit_from_ns) + cost_ns;
        if (free_at_ns_.compare_exchange_weak(free_at_ns, next_ns)) return true;
    }
    return false;
}

}  // namespace headrace::nvme
