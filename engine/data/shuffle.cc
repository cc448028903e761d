#include "engine/data/shuffle.h"

#include <numeric>
#include <utility>

#include "offload/check.h"

namespace headrace::engine {

namespace {

uint64_t mix(uint64_t value) {
    value += 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

struct Product {
    uint64_t upper;
    uint64_t lower;
};

// 64 x 64 -> 128 bits, from 32-bit halves: no compiler extension needed.
Product multiply(uint64_t left, uint64_t right) {
    const uint64_t left_low = left & 0xFFFFFFFFu;
    const uint64_t left_high = left >> 32;
    const uint64_t right_low = right & 0xFFFFFFFFu;
    const uint64_t right_high = right >> 32;
    const uint64_t low = left_low * right_low;
    const uint64_t middle = left_high * right_low + (low >> 32);
    const uint64_t other = left_low * right_high + (middle & 0xFFFFFFFFu);
    return {.upper = left_high * right_high + (middle >> 32) + (other >> 32),
            .lower = left * right};
}

}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
    return mix(mix(mix(seed) + stream) + counter);
}

std::vector<uint32_t> shuffled_order(uint32_t count, const ShuffleKey& key) {
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    uint64_t counter = 0;
    for (uint64_t left = count; left > 1; --left) {
        // Lower halves below 2^64 mod left would make some draws likelier than others.
        const uint64_t biased_below = (0 - left) % left;
        Product draw;
        do {
            draw = multiply(random_bits(key.seed, key.epoch, counter++), left);
        } while (draw.lower < biased_below);
        CHECK_LT(draw.upper, left);
        std::swap(order[left - 1], order[draw.upper]);
    }
    CHECK_GE(counter + 1, uint64_t{count});
    return order;
}

}  // namespace headrace::engine
