// page_sum: the checksum of a place's bytes. Each page is hashed with XXH3-64, its number in the
// place as the seed, and the hashes are added modulo 2^64. So the pages may be hashed in any order
// and by any thread, just after they were made and while they are still in cache, and a range's
// sum is added to the others'. It tells a changed, lost or misplaced page; it is no defence against
// someone who wants to deceive. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::offload {

// Of whole pages (CHECK), the first of which is page number `first_page` of the place.
uint64_t page_sum(std::span<const std::byte> bytes, uint64_t first_page = 0);

}  // namespace headrace::offload
