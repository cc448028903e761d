#include "engine/resume/repack.h"

#include <fmt/format.h>

#include <algorithm>

#include "cpu_adam/convert.h"
#include "cpu_adam/state.h"
#include "kernels/host/slab.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Direction;
using offload::Dtype;
using offload::Error;
using offload::ErrorCode;
using offload::Layout;
using offload::Part;
using offload::Status;

namespace {

// The weights and states of one part of one store, at hand in memory.
class PartInMemory {
  public:
    PartInMemory(const CutStore& cut, Dtype dtype, std::span<std::byte> memory)
        : cut_(cut), dtype_(dtype), memory_(memory) {}

    static uint64_t bytes_for(const CutStore& cut, Dtype dtype) {
        const uint64_t most =
            std::ranges::max(cut.layout->parts, {}, &Part::element_count).element_count;
        return bytes_of(dtype, most) + offload::opt_bytes(dtype, cut.states, most);
    }

    void choose(uint32_t part) { part_ = part; }
    uint32_t chosen() const { return part_; }
    const Part& part() const { return cut_.layout->parts[part_]; }

    std::span<std::byte> weights() const {
        return memory_.first(bytes_of(dtype_, part().element_count));
    }
    std::span<std::byte> states() const {
        return memory_.subspan(weights().size(),
                               offload::opt_bytes(dtype_, cut_.states, part().element_count));
    }
    cpu_adam::StateView view() const {
        return cpu_adam::view_state(dtype_, cut_.states, states(), part().element_count);
    }
    offload::StateFormat format() const { return cut_.states; }

    Status move(Direction direction) const {
        const auto part_count = static_cast<uint32_t>(cut_.layout->parts.size());
        const Status moved = transfer_and_wait(*cut_.store, direction, part_, weights());
        if (!moved) return moved;
        return transfer_and_wait(*cut_.store, direction, part_count + part_, states());
    }

  private:
    const CutStore& cut_;
    const Dtype dtype_;
    const std::span<std::byte> memory_;
    uint32_t part_ = ~uint32_t{0};  // none yet
};

// Elements [first, end) of the layer's flat run, which both parts hold.
void copy_elements(const PartInMemory& source, const PartInMemory& target, Dtype dtype,
                   uint64_t first, uint64_t end) {
    const uint64_t from = first - source.part().first_element;
    const uint64_t to = first - target.part().first_element;
    const uint64_t count = end - first;
    std::ranges::copy(source.weights().subspan(bytes_of(dtype, from), bytes_of(dtype, count)),
                      target.weights().subspan(bytes_of(dtype, to)).begin());
    const bool is_same_format = source.format() == target.format();
    (is_same_format ? cpu_adam::copy_state : cpu_adam::convert_state)(
        source.view(), target.view(),
        {.source_first = from, .target_first = to, .element_count = count});
}

}  // namespace

Status repack(const CutStore& source, const CutStore& target, Dtype dtype, uint64_t ram_bytes) {
    CHECK(source.store != nullptr && target.store != nullptr);
    CHECK(source.layout->specs == target.layout->specs);
    const uint64_t source_bytes = PartInMemory::bytes_for(source, dtype);
    const uint64_t target_bytes = PartInMemory::bytes_for(target, dtype);
    if (source_bytes + target_bytes > ram_bytes) {
        return Error{
            ErrorCode::does_not_fit,
            fmt::format("repacking holds the largest part of both cuts at once, {} and {}, and "
                        "ram_budget is {}",
                        offload::format_bytes(source_bytes), offload::format_bytes(target_bytes),
                        offload::format_bytes(ram_bytes)),
            "raise ram_budget for this start, or keep part_bytes and optimizer_states as they "
            "were"};
    }
    kernels::HostMemory memory({.ram_capacity_bytes = source_bytes + target_bytes});
    const auto slab = memory.take(offload::Tier::ram, source_bytes + target_bytes);
    if (!slab) return slab.error();
    PartInMemory from(source, dtype, slab->first(source_bytes));
    PartInMemory to(target, dtype, slab->subspan(source_bytes));
    for (uint32_t number = 0; number < target.layout->parts.size(); ++number) {
        to.choose(number);
        std::ranges::fill(to.states(), std::byte{0});  // what is between its sections too
        const Part& wanted = to.part();
        const uint64_t wanted_end = wanted.first_element + wanted.element_count;
        const offload::LayerLayout& layer = source.layout->layers[wanted.layer];
        uint64_t copied_count = 0;
        for (uint32_t i = 0; i < layer.part_count; ++i) {
            const Part& part = source.layout->parts[layer.first_part + i];
            const uint64_t first = std::max(part.first_element, wanted.first_element);
            const uint64_t end = std::min(part.first_element + part.element_count, wanted_end);
            if (first >= end) continue;
            if (from.chosen() != layer.first_part + i) {
                from.choose(layer.first_part + i);
                if (Status read = from.move(Direction::read); !read) return read;
            }
            copy_elements(from, to, dtype, first, end);
            copied_count += end - first;
        }
        CHECK_EQ(copied_count, wanted.element_count);
        if (Status written = to.move(Direction::write); !written) return written;
    }
    return {};
}

}  // namespace headrace::engine
