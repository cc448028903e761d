#include "offload/page_sum.h"

#include <xxhash.h>
#if __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same hash, by the best instructions of this machine
#endif

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::offload {

uint64_t page_sum(std::span<const std::byte> bytes, uint64_t first_page) {
    CHECK_EQ(bytes.size() % page_bytes, 0u);
    uint64_t sum = 0;
    for (size_t at = 0; at < bytes.size(); at += page_bytes) {
        sum += XXH3_64bits_withSeed(bytes.data() + at, page_bytes, first_page + at / page_bytes);
    }
    return sum;
}

}  // namespace headrace::offload
