// Goal: the bytes of a part's states are those of the table, and ranges between multiples of
// page_elements have whole pages in every section.
// Method: the formula against the table, for all weights and formats.
#include "offload/state_format.h"

#include <gtest/gtest.h>

#include "offload/schedule.h"
#include "offload/units.h"

namespace headrace::offload {

namespace {

constexpr StateFormat formats[] = {StateFormat::fp32, StateFormat::bf16, StateFormat::int8};
constexpr Dtype weights[] = {Dtype::bf16, Dtype::fp16, Dtype::fp32};

}  // namespace

TEST(StateFormat, bytes_are_those_of_the_table) {
    constexpr uint64_t eighths[3][3] = {{80, 96, 64}, {48, 64, 32}, {33, 49, 17}};
    const uint64_t element_count = 1 << 20;  // of which no section needs padding
    for (size_t format = 0; format < 3; ++format) {
        for (size_t weight = 0; weight < 3; ++weight) {
            EXPECT_EQ(opt_bytes(weights[weight], formats[format], element_count),
                      eighths[format][weight] * element_count / 8);
        }
    }
    EXPECT_EQ(opt_bytes(Dtype::bf16, StateFormat::fp32, 2048), 20480u);
    for (const StateFormat format : formats) EXPECT_EQ(opt_bytes(Dtype::bf16, format, 0), 0u);
}

TEST(StateFormat, parts_are_whole_pages_and_int8_pads_each_section) {
    for (const StateFormat format : formats) {
        for (const Dtype weight : weights) {
            for (uint64_t blocks = 1; blocks < 40; ++blocks) {
                EXPECT_EQ(opt_bytes(weight, format, blocks * 2048) % page_bytes, 0u);
            }
        }
    }
    const StateLayout expected{.m_offset_bytes = 0,
                               .v_offset_bytes = 4096,
                               .steps_offset_bytes = 8192,
                               .master_offset_bytes = 12288,
                               .size_bytes = 16384};
    EXPECT_EQ(state_layout(Dtype::bf16, StateFormat::int8, 2048), expected);
}

TEST(StateFormat, odd_counts_have_a_last_block) {
    const std::array<uint64_t, 4> expected = {33, 33, 8, 66};
    EXPECT_EQ(section_bytes(Dtype::bf16, StateFormat::int8, 33), expected);
}

TEST(StateFormat, page_elements_have_whole_pages_in_every_section) {
    for (const StateFormat format : formats) {
        for (const Dtype weight : weights) {
            for (const uint64_t bytes : section_bytes(weight, format, page_elements(format))) {
                EXPECT_EQ(bytes % page_bytes, 0u) << name_of(format);
            }
        }
    }
}

TEST(StateFormat, names_come_back_and_others_are_refused) {
    for (const StateFormat format : formats) {
        const auto parsed = parse_state_format(name_of(format));
        ASSERT_TRUE(parsed.ok());
        EXPECT_EQ(parsed.value(), format);
    }
    const auto unknown = parse_state_format("int4");
    ASSERT_FALSE(unknown.ok());
    EXPECT_NE(unknown.error().text().find("int8"), std::string::npos);
}

}  // namespace headrace::offload
