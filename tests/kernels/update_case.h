// One part's operands for the tests of kernels/adamw.h, filled from a seed: weights, moments and
// gradients over many orders of magnitude, with zeros, denormals and the largest values among them,
// and a few steps' constants. The memory is ordinary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/adamw.h"

namespace headrace::kernels {

enum class CaseWeight : uint8_t { split, fp32 };
enum class CaseGradient : uint8_t { bf16, fp32 };
enum class CaseMoments : uint8_t { fp32, bf16, int8 };

struct UpdateCase {
    std::vector<uint16_t> hi, lo, gradient_bf16, m_bf16, v_bf16, steps;
    std::vector<int8_t> m_int8;
    std::vector<uint8_t> root_uint8;
    std::vector<float> weight, m, v, gradient_fp32;

    uint64_t element_count() const { return std::max({m.size(), m_bf16.size(), m_int8.size()}); }
    // Of a part that does not begin its layer, under some key.
    UpdateOperands operands();
    bool operator==(const UpdateCase& other) const;  // of bits
};

struct CaseShape {
    CaseWeight weight = CaseWeight::split;
    CaseGradient gradient = CaseGradient::bf16;
    CaseMoments moments = CaseMoments::fp32;
    uint64_t element_count = 0;
};

// The twelve formats; element_count is to be set.
std::vector<CaseShape> case_shapes();

inline constexpr uint64_t case_first_element = 4096;
inline constexpr RoundingBits case_rounding{.first = 0x12345678u, .second = 0x9ABCDEF0u};

// Finite values only. Element i of two cases of one seed is the same whatever their counts.
UpdateCase make_case(const CaseShape& shape, uint32_t seed);

// A run's first step, a late one with everything switched on, and Adam's decay in the gradient.
std::vector<UpdateFactors> case_factors();

}  // namespace headrace::kernels
