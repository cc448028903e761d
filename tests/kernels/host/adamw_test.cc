// Goal: the host twin of the card's update has the bits of cpu_adam's, which is what keeps a run's
// bits the same wherever its states live; and it touches what it is given and nothing else.
// Method: cpu_adam's rows over the same operands, for several steps, all formats, awkward counts.
#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cpu_adam/adamw.h"
#include "cpu_adam/state.h"
#include "cpu_adam/variants.h"
#include "tests/kernels/update_case.h"

namespace headrace::kernels {
namespace {

using offload::Dtype;

UpdateFactors factors_of(const cpu_adam::StepFactors& factors) {
    return {.gradient_scale = factors.gradient_scale,
            .l2 = factors.l2,
            .m_rate = factors.m_rate,
            .v_rate = factors.v_rate,
            .root_scale = factors.root_scale,
            .epsilon = factors.epsilon,
            .step_size = factors.step_size,
            .decay = factors.decay};
}

constexpr cpu_adam::RoundingKey case_key{.seed = 42, .layer = 7};

template <typename T>
void put(std::vector<std::byte>& bytes, uint64_t offset_bytes, const std::vector<T>& values) {
    if (values.empty()) return;
    std::memcpy(bytes.data() + offset_bytes, values.data(), values.size() * sizeof(T));
}

template <typename T>
void get(const std::vector<std::byte>& bytes, uint64_t offset_bytes, std::vector<T>& values) {
    if (values.empty()) return;
    std::memcpy(values.data(), bytes.data() + offset_bytes, values.size() * sizeof(T));
}

// The same case through cpu_adam, whose state is one run of bytes: m, v, lo.
UpdateCase updated_by(const cpu_adam::Row& row, const cpu_adam::StepFactors& factors,
                      UpdateCase one) {
    const uint64_t element_count = one.element_count();
    const bool is_split = !one.hi.empty();
    const Dtype weight_dtype = is_split ? Dtype::bf16 : Dtype::fp32;
    const auto format = !one.m_bf16.empty()   ? offload::StateFormat::bf16
                        : !one.m_int8.empty() ? offload::StateFormat::int8
                                              : offload::StateFormat::fp32;
    const offload::StateLayout layout = offload::state_layout(weight_dtype, format, element_count);
    std::vector<std::byte> state(layout.size_bytes);
    put(state, layout.m_offset_bytes, one.m);
    put(state, layout.v_offset_bytes, one.v);
    put(state, layout.m_offset_bytes, one.m_bf16);
    put(state, layout.v_offset_bytes, one.v_bf16);
    put(state, layout.m_offset_bytes, one.m_int8);
    put(state, layout.v_offset_bytes, one.root_uint8);
    put(state, layout.steps_offset_bytes, one.steps);
    put(state, layout.master_offset_bytes, one.lo);
    const bool is_narrow = !one.gradient_bf16.empty();
    cpu_adam::PartUpdate part;
    part.element_count = element_count;
    part.weight_dtype = weight_dtype;
    part.format = format;
    part.rounding = case_key;
    part.first_element = case_first_element;
    part.gradient_dtype = is_narrow ? Dtype::bf16 : Dtype::fp32;
    part.weight = is_split ? std::as_writable_bytes(std::span(one.hi))
                           : std::as_writable_bytes(std::span(one.weight));
    part.state = state;
    part.gradient = is_narrow ? std::as_bytes(std::span(one.gradient_bf16))
                              : std::as_bytes(std::span(one.gradient_fp32));
    cpu_adam::update_range(row, factors, part,
                           {.first_element = 0, .element_count = element_count});
    get(state, layout.m_offset_bytes, one.m);
    get(state, layout.v_offset_bytes, one.v);
    get(state, layout.m_offset_bytes, one.m_bf16);
    get(state, layout.v_offset_bytes, one.v_bf16);
    get(state, layout.m_offset_bytes, one.m_int8);
    get(state, layout.v_offset_bytes, one.root_uint8);
    get(state, layout.steps_offset_bytes, one.steps);
    get(state, layout.master_offset_bytes, one.lo);
    return one;
}

std::vector<cpu_adam::AdamStep> steps() {
    using cpu_adam::Decay;
    return {{.learning_rate = 1e-3, .adam_step = 1},
            {.learning_rate = 3e-4, .weight_decay = 0.1, .adam_step = 2, .gradient_scale = 0.25f},
            {.learning_rate = 1e-5,
             .beta1 = 0.8,
             .beta2 = 0.95,
             .epsilon = 1e-6,
             .weight_decay = 0.01,
             .adam_step = 1000,
             .gradient_scale = 3.1e-5f,
             .decay = Decay::l2}};
}

TEST(HostAdamw, has_the_bits_of_every_row_of_cpu_adam) {
    for (CaseShape shape : case_shapes()) {
        shape.element_count = 4099;
        for (const cpu_adam::Row& row : cpu_adam::rows()) {
            if (!cpu_adam::is_supported(row)) continue;
            UpdateCase twin = make_case(shape, 11);
            UpdateCase expected = twin;
            for (const cpu_adam::AdamStep& step : steps()) {
                const cpu_adam::StepFactors factors = cpu_adam::factors_of(step);
                const UpdateCase before = twin;
                UpdateOperands operands = twin.operands();
                const auto bits = cpu_adam::rounding_bits(case_key, step.adam_step);
                operands.rounding = {.first = bits.first, .second = bits.second};
                update_on_host(factors_of(factors), operands);
                expected = updated_by(row, factors, std::move(expected));
                EXPECT_TRUE(twin == expected) << row.name << ", step " << step.adam_step;
                EXPECT_FALSE(twin == before);
            }
        }
    }
}

TEST(HostAdamw, an_element_of_zeros_stays_zero) {
    UpdateCase one = make_case({.element_count = 8}, 1);
    for (auto* values : {&one.hi, &one.lo, &one.gradient_bf16}) values->assign(8, 0);
    for (auto* values : {&one.m, &one.v}) values->assign(8, 0.0f);
    const UpdateCase before = one;
    for (const UpdateFactors& factors : case_factors()) update_on_host(factors, one.operands());
    EXPECT_TRUE(one == before);
}

TEST(HostAdamw, every_nan_of_the_master_becomes_one) {
    UpdateCase one = make_case({.gradient = CaseGradient::fp32, .element_count = 4}, 2);
    one.hi[1] = 0xFFC1;  // a NaN with a payload
    one.lo[1] = 0x1234;
    update_on_host(case_factors()[0], one.operands());
    EXPECT_EQ(one.hi[1], 0x7FC0);
    EXPECT_EQ(one.lo[1], 0);
}

TEST(HostAdamw, faults_of_operands_are_found) {
    UpdateCase one = make_case({.element_count = 16}, 3);
    EXPECT_EQ(find_fault(one.operands()), nullptr);
    UpdateOperands broken = one.operands();
    broken.lo = nullptr;
    EXPECT_STREQ(find_fault(broken), "hi and lo come together");
    broken = one.operands();
    broken.weight = one.m.data();
    EXPECT_STREQ(find_fault(broken), "one of {hi and lo, weight} is set");
    broken = one.operands();
    broken.gradient_bf16 = nullptr;
    EXPECT_STREQ(find_fault(broken), "one gradient is set");
    broken = one.operands();
    broken.v = nullptr;
    EXPECT_STREQ(find_fault(broken), "m and v come together");
    broken.m = nullptr;
    EXPECT_STREQ(find_fault(broken), "one kind of m and v is set");
    broken = one.operands();
    broken.hi += 1;
    EXPECT_STREQ(find_fault(broken), "everything is aligned to 16 bytes");
    EXPECT_DEATH(update_on_host({}, broken), "fault == nullptr");
}

}  // namespace
}  // namespace headrace::kernels
