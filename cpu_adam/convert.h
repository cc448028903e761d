// A part's states from one format into another, through fp32 moments; and between parts that are
// cut differently. The weights do not move: lo, or the master of an fp16 weight, is copied, so
// (hi, lo) has the same bits after any conversion.
//
// What is exact:
//   fp32 or bf16 -> fp32            exact
//   int8 -> fp32                    m exact; v = root * root, rounded once, and sqrt(v) is root
//   fp32 -> bf16                    to nearest; a bf16 value is kept, so bf16 -> fp32 -> bf16 is
//                                   the identity
//   fp32 or bf16 -> int8            to nearest of a block's 127 or 255 steps: an error of at most
//                                   half a step, 1/252 of the block's largest |m|, 1/506 of its
//                                   largest root (a root below one step, not 0, becomes one)
//
// A conversion rounds once, so to nearest: nothing drifts, and no key is needed. Pure functions
// over views (cpu_adam/state.h) of whole parts; ranges begin at blocks of 32 elements and end at
// one or with the part (CHECK).
#pragma once

#include <cstdint>
#include <span>

#include "cpu_adam/state.h"

namespace headrace::cpu_adam {

// The moments of a range, m and v as long as the range (CHECK).
void read_moments(const StateView& source, ElementRange range, std::span<float> m,
                  std::span<float> v);
void write_moments(std::span<const float> m, std::span<const float> v, const StateView& target,
                   ElementRange range);

// Elements of a part into another one of the same weights, whose states are cut otherwise.
struct CopiedElements {
    uint64_t source_first = 0;
    uint64_t target_first = 0;
    uint64_t element_count = 0;
};

// Into another format, or the same; source and target do not overlap.
void convert_state(const StateView& source, const StateView& target,
                   const CopiedElements& elements);

// Into the same format, bit for bit.
void copy_state(const StateView& source, const StateView& target, const CopiedElements& elements);

// The elements that a view covers.
uint64_t element_count_of(const StateView& view);

}  // namespace headrace::cpu_adam
