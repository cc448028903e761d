// The order of samples in an epoch: the same on every machine, compiler and library, because it is
// made of the integer arithmetic below and nothing else.
//
// Counter-based: the c-th random number of (seed, stream) is
//     random_bits(seed, stream, c) = mix(mix(mix(seed) + stream) + c)
// where mix is the finaliser of SplitMix64 after adding its odd constant (0x9E3779B97F4A7C15): a
// bijection of 64 bits in which every input bit reaches every output bit. No state: any number can
// be had at any time, so a resume needs no generator to be restored.
#pragma once

#include <cstdint>
#include <vector>

namespace headrace::engine {

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter);

// 0 .. count-1 in the order of epoch `epoch`: Fisher-Yates from the back, each draw unbiased (the
// upper half of a 128-bit product, redrawn where the lower half says that it would be biased).
struct ShuffleKey {
    uint64_t seed = 0;
    uint64_t epoch = 0;
};
std::vector<uint32_t> shuffled_order(uint32_t count, const ShuffleKey& key);

}  // namespace headrace::engine
