#include "engine/train/slot_bytes.h"

#include "offload/units.h"

namespace headrace::engine {

using offload::Access;
using offload::Kind;
using offload::Mode;
using offload::Op;

const offload::Schedule& SlotBytes::schedule() const {
    CHECK(schedule_ != nullptr);
    return *schedule_;
}

std::span<std::byte> SlotBytes::bytes_of_slot(offload::SlotId slot) const {
    const offload::Slot& place = schedule().slots[slot];
    CHECK_NE(place.tier, offload::Tier::nvme);
    const bool is_gpu = place.tier == offload::Tier::gpu;
    return (is_gpu ? slabs_.gpu : slabs_.ram).subspan(place.offset_bytes, place.size_bytes);
}

std::span<std::byte> SlotBytes::value_bytes(const Access& access, const StepBatch& batch) const {
    uint64_t size_bytes = bytes_of_value(schedule().workload, access.value);
    if (access.value.kind == Kind::act || access.value.kind == Kind::kept) {
        const TokenBatch& tokens =
            batch.micro_batches[static_cast<size_t>(access.value.micro_batch)];
        const auto token_count = static_cast<uint64_t>(tokens.row_count * tokens.column_count);
        const auto hidden = static_cast<uint64_t>(config_.hidden_size);
        size_bytes =
            access.value.kind == Kind::kept
                ? compute_.kept_bytes(tokens.row_count, tokens.column_count)
                : offload::align_up(bytes_of(schedule().workload.dtype, token_count * hidden),
                                    offload::page_bytes);
    }
    return bytes_of_slot(access.slot).first(size_bytes);
}

std::span<std::byte> SlotBytes::run_bytes(const Op& op, Kind kind, Mode mode,
                                          uint32_t layer) const {
    const offload::LayerLayout& run = schedule().workload.layout.layers[layer];
    if (run.part_count == 0) return {};
    std::byte* begin = nullptr;
    uint64_t size_bytes = 0;
    for (const Access& access : op.accesses) {
        if (access.value.kind != kind || access.mode != mode) continue;
        const uint32_t part = access.value.of;
        if (part < run.first_part || part >= run.first_part + run.part_count) continue;
        std::byte* here = bytes_of_slot(access.slot).data();
        if (begin == nullptr) begin = here;
        CHECK_EQ(here, begin + size_bytes);  // find_fault proved it; the caller relies on it
        size_bytes += bytes_of_value(schedule().workload, access.value);
    }
    CHECK(begin != nullptr);
    return {begin, size_bytes};
}

std::span<std::byte> SlotBytes::workspace() const {
    return slabs_.gpu.subspan(schedule().workspace_offset_bytes,
                              schedule().workload.workspace_bytes);
}

const Access& data_access(const Op& op, Mode mode) {
    for (const Access& access : op.accesses) {
        if (access.mode == mode && !is_control(access.value.kind)) return access;
    }
    CHECK_TEXT(false, "an op without data");
}

}  // namespace headrace::engine
