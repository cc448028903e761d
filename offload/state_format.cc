#include "offload/state_format.h"

#include <string>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::offload {

namespace {

uint64_t moment_bytes(StateFormat format) {
    switch (format) {
        case StateFormat::fp32: return sizeof(float);
        case StateFormat::bf16: return sizeof(uint16_t);
        case StateFormat::int8: return sizeof(uint8_t);
    }
    CHECK(false);
}

uint64_t master_bytes(Dtype weight) {
    switch (weight) {
        case Dtype::fp32: return 0;  // the weight is its own master
        case Dtype::bf16: return sizeof(uint16_t);
        case Dtype::fp16: return sizeof(float);
    }
    CHECK(false);
}

}  // namespace

std::string_view name_of(StateFormat format) {
    switch (format) {
        case StateFormat::fp32: return "fp32";
        case StateFormat::bf16: return "bf16";
        case StateFormat::int8: return "int8";
    }
    CHECK(false);
}

Result<StateFormat> parse_state_format(std::string_view name) {
    for (const StateFormat format : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8}) {
        if (name == name_of(format)) return format;
    }
    return Error{ErrorCode::usage,
                 "'" + std::string(name) +
                     "' is no format of optimizer states; known are fp32, bf16 and int8",
                 ""};
}

std::array<uint64_t, 4> section_bytes(Dtype weight, StateFormat format, uint64_t element_count) {
    const uint64_t moments_bytes = element_count * moment_bytes(format);
    const uint64_t step_count =
        format == StateFormat::int8 ? 2 * div_ceil(element_count, state_block_elements) : 0;
    return {moments_bytes, moments_bytes, step_count * sizeof(uint16_t),
            element_count * master_bytes(weight)};
}

StateLayout state_layout(Dtype weight, StateFormat format, uint64_t element_count) {
    const std::array<uint64_t, 4> sections = section_bytes(weight, format, element_count);
    const auto padded = [&](uint64_t size_bytes) {
        return format == StateFormat::int8 ? align_up(size_bytes, page_bytes) : size_bytes;
    };
    StateLayout layout;
    layout.v_offset_bytes = padded(sections[0]);
    layout.steps_offset_bytes = layout.v_offset_bytes + padded(sections[1]);
    layout.master_offset_bytes = layout.steps_offset_bytes + padded(sections[2]);
    layout.size_bytes = layout.master_offset_bytes + sections[3];
    return layout;
}

uint64_t opt_bytes(Dtype weight, StateFormat format, uint64_t element_count) {
    return state_layout(weight, format, element_count).size_bytes;
}

uint64_t page_elements(StateFormat format) {
    switch (format) {
        case StateFormat::fp32:
        case StateFormat::bf16: return page_bytes / sizeof(uint16_t);
        case StateFormat::int8: return page_bytes / (2 * sizeof(uint16_t)) * state_block_elements;
    }
    CHECK(false);
}

}  // namespace headrace::offload
