#include "tests/kernels/update_case.h"

#include <bit>
#include <cmath>
#include <random>

namespace headrace::kernels {

namespace {

// Every seventh value is one of those that rules go wrong at.
float wide_value(std::mt19937& generator) {
    constexpr float edges[] = {0.0f,      -0.0f,     1e-45f,     -1e-40f, 1.1754944e-38f,
                               3.4e38f,   -3.4e38f,  1.0f,       -1.0f,   1.9999999f,
                               0x1p-126f, 0x1p-100f, 1.00390625f /* a tie of bf16 */};
    const uint32_t choice = static_cast<uint32_t>(generator());
    if (choice % 7 == 0) return edges[choice / 7 % std::size(edges)];
    const auto exponent = static_cast<int>(choice / 7 % 60) - 45;
    const float mantissa = 1.0f + static_cast<float>(generator() >> 9) * 0x1p-23f;
    return std::ldexp((choice & 0x80000000u) != 0 ? -mantissa : mantissa, exponent);
}

bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
    if (left.size() != right.size()) return false;
    for (size_t i = 0; i < left.size(); ++i) {
        if (std::bit_cast<uint32_t>(left[i]) != std::bit_cast<uint32_t>(right[i])) return false;
    }
    return true;
}

// To bf16, not rounded: no finite value becomes infinite.
uint16_t cut(float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

template <typename T>
T* data_or_null(std::vector<T>& values) {
    return values.empty() ? nullptr : values.data();
}

}  // namespace

UpdateOperands UpdateCase::operands() {
    return {.element_count = element_count(),
            .hi = data_or_null(hi),
            .lo = data_or_null(lo),
            .weight = data_or_null(weight),
            .m = data_or_null(m),
            .v = data_or_null(v),
            .gradient_bf16 = data_or_null(gradient_bf16),
            .gradient_fp32 = data_or_null(gradient_fp32),
            .m_bf16 = data_or_null(m_bf16),
            .v_bf16 = data_or_null(v_bf16),
            .first_element = case_first_element,
            .rounding = case_rounding,
            .m_int8 = data_or_null(m_int8),
            .root_uint8 = data_or_null(root_uint8),
            .steps = data_or_null(steps)};
}

bool UpdateCase::operator==(const UpdateCase& other) const {
    return m_int8 == other.m_int8 && root_uint8 == other.root_uint8 && steps == other.steps &&
           hi == other.hi && lo == other.lo && gradient_bf16 == other.gradient_bf16 &&
           m_bf16 == other.m_bf16 && v_bf16 == other.v_bf16 && same_bits(weight, other.weight) &&
           same_bits(m, other.m) && same_bits(v, other.v) &&
           same_bits(gradient_fp32, other.gradient_fp32);
}

std::vector<CaseShape> case_shapes() {
    std::vector<CaseShape> shapes;
    for (const CaseWeight weight : {CaseWeight::split, CaseWeight::fp32}) {
        for (const CaseGradient gradient : {CaseGradient::bf16, CaseGradient::fp32}) {
            for (const CaseMoments moments :
                 {CaseMoments::fp32, CaseMoments::bf16, CaseMoments::int8}) {
                shapes.push_back({.weight = weight, .gradient = gradient, .moments = moments});
            }
        }
    }
    return shapes;
}

UpdateCase make_case(const CaseShape& shape, uint32_t seed) {
    std::mt19937 generator(seed);
    UpdateCase made;
    for (uint64_t i = 0; i < shape.element_count; ++i) {
        const float weight = wide_value(generator);
        const float gradient = wide_value(generator);
        const auto bits = std::bit_cast<uint32_t>(weight);
        if (shape.weight == CaseWeight::fp32) made.weight.push_back(weight);
        if (shape.weight == CaseWeight::split) {
            made.hi.push_back(static_cast<uint16_t>((bits + 0x8000u) >> 16));
            made.lo.push_back(static_cast<uint16_t>(bits));
        }
        if (shape.gradient == CaseGradient::fp32) made.gradient_fp32.push_back(gradient);
        if (shape.gradient == CaseGradient::bf16) {
            made.gradient_bf16.push_back(cut(gradient));
        }
        const float m = wide_value(generator);
        const float v = std::fabs(wide_value(generator));
        if (shape.moments == CaseMoments::fp32) {
            made.m.push_back(m);
            made.v.push_back(v);
        } else if (shape.moments == CaseMoments::int8) {
            if (i % 32 == 0) {
                // Of blocks far apart; every fifth has zeros only.
                const bool is_zero = i / 32 % 5 == 4;
                made.steps.push_back(
                    is_zero ? 0 : cut(std::ldexp(1.5f, -static_cast<int>(i / 32 % 40))));
                made.steps.push_back(
                    is_zero ? 0 : cut(std::ldexp(1.25f, -static_cast<int>(i / 32 % 37))));
            }
            const bool is_zero = made.steps.back() == 0;
            made.m_int8.push_back(is_zero ? 0 : static_cast<int8_t>(generator() % 256));
            made.root_uint8.push_back(is_zero ? 0 : static_cast<uint8_t>(generator() % 256));
        } else {
            made.m_bf16.push_back(cut(m));
            made.v_bf16.push_back(cut(v));
        }
    }
    return made;
}

std::vector<UpdateFactors> case_factors() {
    return {{.gradient_scale = 1,
             .m_rate = 0.1f,
             .v_rate = 0.001f,
             .root_scale = 31.622776f,
             .epsilon = 1e-8f,
             .step_size = 1e-4f},
            {.gradient_scale = 0.37f,
             .m_rate = 0.1f,
             .v_rate = 0.05f,
             .root_scale = 1.0000001f,
             .epsilon = 1e-6f,
             .step_size = 3.1e-3f,
             .decay = 1.7e-4f},
            {.gradient_scale = 1.0f / 65536,
             .l2 = 0.01f,
             .m_rate = 0.1f,
             .v_rate = 0.001f,
             .root_scale = 1.25f,
             .epsilon = 1e-8f,
             .step_size = 1e-5f}};
}

}  // namespace headrace::kernels
