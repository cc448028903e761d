#include "cpu_adam/state.h"

#include <xmmintrin.h>

#include "offload/check.h"
#include "offload/page_sum.h"
#include "offload/units.h"

namespace headrace::cpu_adam {

using offload::Dtype;

namespace {

bool is_aligned(const std::byte* address, uint64_t alignment_bytes) {
    return reinterpret_cast<uintptr_t>(address) % alignment_bytes == 0;
}

// Flush to zero, denormals are zero and the rounding mode: bits 15, 6 and 14-13 of MXCSR. Somebody
// else's library may have set them on the thread it was given.
bool thread_rounds_as_ieee() {
    return (_mm_getcsr() & 0xE040u) == 0;
}

bool is_at_block(uint64_t element) {
    return element % offload::state_block_elements == 0;
}

template <typename T>
std::span<T> elements_at(std::byte* bytes, uint64_t offset_bytes, uint64_t element_count) {
    return {reinterpret_cast<T*>(bytes + offset_bytes), element_count};
}

// The pointers of a call whose first element is the part's element `first`.
void set_weights(const PartUpdate& part, const StateView& state, uint64_t first,
                 Operands* operands) {
    switch (part.weight_dtype) {
        case Dtype::bf16:
            operands->hi = reinterpret_cast<uint16_t*>(part.weight.data()) + first;
            operands->lo = state.lo.data() + first;
            return;
        case Dtype::fp16:
            operands->weight_fp16 = reinterpret_cast<uint16_t*>(part.weight.data()) + first;
            operands->weight = state.master.data() + first;
            return;
        case Dtype::fp32:
            operands->weight = reinterpret_cast<float*>(part.weight.data()) + first;
            return;
    }
    CHECK(false);
}

void set_moments(const PartUpdate& part, const StateView& state, uint64_t first,
                 Operands* operands) {
    switch (part.format) {
        case StateFormat::fp32:
            operands->m = state.m.data() + first;
            operands->v = state.v.data() + first;
            return;
        case StateFormat::bf16:
            operands->m_bf16 = state.m_bf16.data() + first;
            operands->v_bf16 = state.v_bf16.data() + first;
            return;
        case StateFormat::int8:
            operands->m_int8 = state.m_int8.data() + first;
            operands->root_uint8 = state.root_uint8.data() + first;
            operands->steps = state.steps.data() + 2 * first / offload::state_block_elements;
            return;
    }
    CHECK(false);
}

void set_gradients(const PartUpdate& part, uint64_t first, Operands* operands) {
    const auto* const narrow = reinterpret_cast<const uint16_t*>(part.gradient.data());
    switch (part.gradient_dtype) {
        case Dtype::bf16: operands->gradient_bf16 = narrow + first; return;
        case Dtype::fp16: operands->gradient_fp16 = narrow + first; return;
        case Dtype::fp32:
            operands->gradient_fp32 = reinterpret_cast<const float*>(part.gradient.data()) + first;
            return;
    }
    CHECK(false);
}

}  // namespace

StateView view_state(Dtype weight_dtype, StateFormat format, std::span<std::byte> bytes,
                     uint64_t element_count) {
    CHECK_GE(bytes.size(), offload::opt_bytes(weight_dtype, format, element_count));
    CHECK(is_aligned(bytes.data(), alignof(float)));
    const offload::StateLayout layout = offload::state_layout(weight_dtype, format, element_count);
    std::byte* const at = bytes.data();
    const uint64_t v_at = layout.v_offset_bytes;
    StateView view{};
    switch (format) {
        case StateFormat::fp32:
            view.m = elements_at<float>(at, 0, element_count);
            view.v = elements_at<float>(at, v_at, element_count);
            break;
        case StateFormat::bf16:
            view.m_bf16 = elements_at<uint16_t>(at, 0, element_count);
            view.v_bf16 = elements_at<uint16_t>(at, v_at, element_count);
            break;
        case StateFormat::int8:
            view.m_int8 = elements_at<int8_t>(at, 0, element_count);
            view.root_uint8 = elements_at<uint8_t>(at, v_at, element_count);
            view.steps = elements_at<uint16_t>(
                at, layout.steps_offset_bytes,
                2 * offload::div_ceil(element_count, offload::state_block_elements));
            break;
    }
    const uint64_t master_at = layout.master_offset_bytes;
    if (weight_dtype == Dtype::bf16) {
        view.lo = elements_at<uint16_t>(at, master_at, element_count);
    } else if (weight_dtype == Dtype::fp16) {
        view.master = elements_at<float>(at, master_at, element_count);
    }
    return view;
}

std::array<ByteRange, 4> sections_of(const StateExtent& part, ElementRange range) {
    const uint64_t end = range.first_element + range.element_count;
    CHECK_LE(range.first_element, part.element_count);
    CHECK_LE(range.element_count, part.element_count - range.first_element);
    CHECK(is_at_block(range.first_element));
    CHECK(is_at_block(end) || end == part.element_count);
    const offload::StateLayout layout =
        offload::state_layout(part.weight_dtype, part.format, part.element_count);
    const auto bytes_to = [&](uint64_t element) {
        return offload::section_bytes(part.weight_dtype, part.format, element);
    };
    const std::array<uint64_t, 4> from = bytes_to(range.first_element);
    const std::array<uint64_t, 4> to = bytes_to(end);
    const std::array<uint64_t, 5> begins = {layout.m_offset_bytes, layout.v_offset_bytes,
                                            layout.steps_offset_bytes, layout.master_offset_bytes,
                                            layout.size_bytes};
    std::array<ByteRange, 4> sections;
    for (size_t i = 0; i < sections.size(); ++i) {
        const uint64_t section_end = end == part.element_count ? begins[i + 1] : begins[i] + to[i];
        sections[i] = {.offset_bytes = begins[i] + from[i],
                       .size_bytes = section_end - begins[i] - from[i]};
    }
    return sections;
}

RangeSums sums_of(const PartUpdate& part, ElementRange range) {
    const auto sum_at = [](std::span<const std::byte> place, const ByteRange& bytes) {
        return offload::page_sum(place.subspan(bytes.offset_bytes, bytes.size_bytes),
                                 bytes.offset_bytes / offload::page_bytes);
    };
    const StateExtent extent{part.weight_dtype, part.format, part.element_count};
    RangeSums sums{.weight =
                       sum_at(part.weight, {bytes_of(part.weight_dtype, range.first_element),
                                            bytes_of(part.weight_dtype, range.element_count)})};
    for (const ByteRange& bytes : sections_of(extent, range))
        sums.state += sum_at(part.state, bytes);
    return sums;
}

void update_range(const Row& row, const StepFactors& factors, const PartUpdate& part,
                  ElementRange range) {
    CHECK(is_supported(row));
    CHECK(thread_rounds_as_ieee());
    CHECK_LE(range.first_element, part.element_count);
    CHECK_LE(range.element_count, part.element_count - range.first_element);
    CHECK_GE(part.weight.size(), bytes_of(part.weight_dtype, part.element_count));
    CHECK_GE(part.gradient.size(), bytes_of(part.gradient_dtype, part.element_count));
    CHECK(is_aligned(part.weight.data(), element_bytes(part.weight_dtype)));
    CHECK(is_aligned(part.gradient.data(), element_bytes(part.gradient_dtype)));
    if (part.format == StateFormat::int8) {
        const uint64_t end = range.first_element + range.element_count;
        CHECK(is_at_block(part.first_element));
        CHECK(is_at_block(range.first_element));
        CHECK(is_at_block(end) || end == part.element_count);
    }
    if (range.element_count == 0) return;

    const StateView state =
        view_state(part.weight_dtype, part.format, part.state, part.element_count);
    const uint64_t first = range.first_element;
    Operands operands{.element_count = range.element_count,
                      .first_element = part.first_element + first,
                      .rounding = rounding_bits(part.rounding, factors.adam_step),
                      .writes = part.writes};
    set_weights(part, state, first, &operands);
    set_moments(part, state, first, &operands);
    set_gradients(part, first, &operands);
    row.update(factors, operands);
}

}  // namespace headrace::cpu_adam
