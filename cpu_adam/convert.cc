#include "cpu_adam/convert.h"

#include <algorithm>
#include <array>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::cpu_adam {

using offload::bf16_to_float;
using offload::state_block_elements;

namespace {

bool is_whole_blocks(uint64_t element_count, ElementRange range) {
    const uint64_t end = range.first_element + range.element_count;
    const bool ends_at_block = end % state_block_elements == 0 || end == element_count;
    return range.first_element % state_block_elements == 0 && ends_at_block;
}

void check_range(const StateView& view, ElementRange range) {
    const uint64_t element_count = element_count_of(view);
    CHECK_LE(range.first_element, element_count);
    CHECK_LE(range.element_count, element_count - range.first_element);
    CHECK(view.m_int8.empty() || is_whole_blocks(element_count, range));
}

// Of the block's elements at `first`.
BlockInt8 block_at(const StateView& view, uint64_t first, uint64_t element_count) {
    uint16_t* const steps = view.steps.data() + 2 * (first / state_block_elements);
    return {.m = view.m_int8.subspan(first, element_count),
            .root = view.root_uint8.subspan(first, element_count),
            .steps = std::span<uint16_t, 2>(steps, 2)};
}

template <typename T>
void copy(std::span<T> source, std::span<T> target, const CopiedElements& elements) {
    CHECK_EQ(source.empty(), target.empty());
    if (source.empty()) return;
    std::ranges::copy(source.subspan(elements.source_first, elements.element_count),
                      target.subspan(elements.target_first).begin());
}

}  // namespace

uint64_t element_count_of(const StateView& view) {
    return std::max({view.m.size(), view.m_bf16.size(), view.m_int8.size()});
}

void read_moments(const StateView& source, ElementRange range, std::span<float> m,
                  std::span<float> v) {
    check_range(source, range);
    CHECK_EQ(m.size(), range.element_count);
    CHECK_EQ(v.size(), range.element_count);
    for (uint64_t k = 0; k < range.element_count; ++k) {
        const uint64_t i = range.first_element + k;
        if (!source.m.empty()) {
            m[k] = source.m[i];
            v[k] = source.v[i];
        } else if (!source.m_bf16.empty()) {
            m[k] = bf16_to_float(source.m_bf16[i]);
            v[k] = bf16_to_float(source.v_bf16[i]);
        } else {
            const uint16_t* steps = source.steps.data() + 2 * (i / state_block_elements);
            m[k] = load_m(source.m_int8[i], steps[0]);
            v[k] = load_v(source.root_uint8[i], steps[1]);
        }
    }
}

void write_moments(std::span<const float> m, std::span<const float> v, const StateView& target,
                   ElementRange range) {
    check_range(target, range);
    CHECK_EQ(m.size(), range.element_count);
    CHECK_EQ(v.size(), range.element_count);
    std::array<uint32_t, state_block_elements> nearest;
    nearest.fill(nearest_bits);
    for (uint64_t k = 0; k < range.element_count; k += state_block_elements) {
        const uint64_t count = std::min(state_block_elements, range.element_count - k);
        const uint64_t first = range.first_element + k;
        if (!target.m_int8.empty()) {
            store_block(m.subspan(k, count), v.subspan(k, count), std::span(nearest).first(count),
                        block_at(target, first, count));
            continue;
        }
        for (uint64_t i = 0; i < count; ++i) {
            if (!target.m.empty()) {
                target.m[first + i] = m[k + i];
                target.v[first + i] = v[k + i];
            } else {
                target.m_bf16[first + i] = to_bf16(m[k + i], nearest_bits & 0xFFFFu);
                target.v_bf16[first + i] = to_bf16(v[k + i], nearest_bits >> 16);
            }
        }
    }
}

void convert_state(const StateView& source, const StateView& target,
                   const CopiedElements& elements) {
    CHECK_EQ(target.lo.empty(), source.lo.empty());
    CHECK_EQ(target.master.empty(), source.master.empty());
    std::array<float, state_block_elements> m, v;
    for (uint64_t done = 0; done < elements.element_count; done += state_block_elements) {
        const uint64_t count = std::min(state_block_elements, elements.element_count - done);
        const auto block_m = std::span(m).first(count);
        const auto block_v = std::span(v).first(count);
        read_moments(source, {elements.source_first + done, count}, block_m, block_v);
        write_moments(block_m, block_v, target, {elements.target_first + done, count});
    }
    copy(source.lo, target.lo, elements);
    copy(source.master, target.master, elements);
}

void copy_state(const StateView& source, const StateView& target, const CopiedElements& elements) {
    check_range(source, {elements.source_first, elements.element_count});
    check_range(target, {elements.target_first, elements.element_count});
    copy(source.m, target.m, elements);
    copy(source.v, target.v, elements);
    copy(source.m_bf16, target.m_bf16, elements);
    copy(source.v_bf16, target.v_bf16, elements);
    copy(source.m_int8, target.m_int8, elements);
    copy(source.root_uint8, target.root_uint8, elements);
    copy(source.lo, target.lo, elements);
    copy(source.master, target.master, elements);
    const auto steps_before = [](uint64_t element) {
        return 2 * offload::div_ceil(element, state_block_elements);
    };
    copy(source.steps, target.steps,
         {.source_first = steps_before(elements.source_first),
          .target_first = steps_before(elements.target_first),
          .element_count = steps_before(elements.element_count)});
}

}  // namespace headrace::cpu_adam
