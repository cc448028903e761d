#include "engine/train/homes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "cpu_adam/state.h"
#include "engine/train/sha256.h"
#include "offload/fp16.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::float_to_fp16;
using offload::fp16_to_float;
using offload::Kind;
using offload::Result;
using offload::SlotId;
using offload::Status;
using offload::Tier;

namespace {

// One part's home of one kind, at hand in memory.
class PartBytes {
  public:
    PartBytes(const Homes& homes, Kind kind) : homes_(homes), kind_(kind) {
        const offload::Schedule& schedule = homes.executor->schedule();
        const size_t part_count = schedule.workload.layout.parts.size();
        homes_of_kind_.assign(part_count, offload::no_slot);
        mirrors_.assign(part_count, offload::no_slot);
        for (SlotId slot = 0; slot < schedule.slots.size(); ++slot) {
            const offload::Slot& place = schedule.slots[slot];
            if (place.kind != kind) continue;
            if (place.is_home) {
                (place.is_mirror ? mirrors_ : homes_of_kind_)[place.of] = slot;
            } else if (place.tier == Tier::ram && buffer_ == offload::no_slot) {
                buffer_ = slot;
            }
        }
        CHECK_EQ(std::ranges::count(homes_of_kind_, offload::no_slot), 0);
        const bool is_on_card = std::ranges::any_of(
            homes_of_kind_, [&](SlotId slot) { return slot_at(slot).tier == Tier::gpu; });
        if (!is_on_card || homes.executor->card().has_memory()) return;
        uint64_t most_bytes = 0;
        for (uint32_t part = 0; part < part_count; ++part) {
            most_bytes = std::max(most_bytes, value_bytes(part));
        }
        stand_in_.resize(most_bytes + offload::page_bytes);
    }

    // The bytes of the part's home, or a ring slot's that stands in for a place.
    std::span<std::byte> bytes(uint32_t part) {
        const SlotId slot = is_on_nvme(part) ? buffer_ : homes_of_kind_[part];
        CHECK_NE(slot, offload::no_slot);
        const uint64_t size_bytes = value_bytes(part);
        if (!stand_in_.empty() && slot_at(slot).tier == Tier::gpu) {
            const auto begin = reinterpret_cast<uintptr_t>(stand_in_.data());
            const uint64_t before = offload::align_up(begin, offload::page_bytes) - begin;
            return std::span(stand_in_).subspan(before, size_bytes);
        }
        return homes_.executor->slots().bytes_of_slot(slot).first(size_bytes);
    }

    bool is_on_nvme(uint32_t part) const {
        return slot_at(homes_of_kind_[part]).tier == Tier::nvme;
    }
    // The part has a place in the store: its home's, or a mirror.
    bool has_place(uint32_t part) const {
        return is_on_nvme(part) || mirrors_[part] != offload::no_slot;
    }

    // Between the home and bytes(part): nothing to do for a home in memory.
    Status read(uint32_t part) {
        return is_on_nvme(part) ? transfer(part, offload::Direction::read) : Status{};
    }
    // Between the place and bytes(part), if there is one.
    Status read_place(uint32_t part) {
        return has_place(part) ? transfer(part, offload::Direction::read) : Status{};
    }
    Status write_place(uint32_t part) {
        return has_place(part) ? transfer(part, offload::Direction::write) : Status{};
    }

  private:
    uint64_t value_bytes(uint32_t part) const {
        return bytes_of_value(homes_.executor->schedule().workload, {.kind = kind_, .of = part});
    }
    const offload::Slot& slot_at(SlotId slot) const {
        return homes_.executor->schedule().slots[slot];
    }
    Status transfer(uint32_t part, offload::Direction direction) {
        CHECK(homes_.store != nullptr);
        const SlotId slot = is_on_nvme(part) ? homes_of_kind_[part] : mirrors_[part];
        const auto place = static_cast<offload::PlaceId>(slot_at(slot).offset_bytes);
        return transfer_and_wait(*homes_.store, direction, place, bytes(part));
    }

    const Homes& homes_;
    const Kind kind_;
    std::vector<SlotId> homes_of_kind_;  // by part
    std::vector<SlotId> mirrors_;        // by part; no_slot where there is none
    SlotId buffer_ = offload::no_slot;
    // Of a part whose home is a card without memory, from the first page in it; what is written to
    // it is lost.
    std::vector<std::byte> stand_in_;
};

// For every part whose home of this kind is in memory.
Status for_memory_homes(const Homes& homes, Kind kind, Status (PartBytes::*move)(uint32_t part)) {
    PartBytes parts(homes, kind);
    const size_t part_count = homes.executor->schedule().workload.layout.parts.size();
    for (uint32_t part = 0; part < part_count; ++part) {
        if (parts.is_on_nvme(part)) continue;
        if (Status status = (parts.*move)(part); !status) return status;
    }
    return {};
}

// Calls visit(tensor, piece) for what each part shares with the model's tensors.
using VisitPiece = std::function<Status(const offload::TensorSpec&, const offload::TensorPiece&)>;

Status for_each_piece(const offload::Layout& layout, uint32_t part, const VisitPiece& visit) {
    const std::vector<offload::TensorSpec>& tensors =
        layout.specs[layout.parts[part].layer].tensors;
    for (const offload::TensorPiece& piece : pieces_of(layout, part)) {
        if (Status status = visit(tensors[piece.tensor], piece); !status) return status;
    }
    return {};
}

// A finite source that became infinite in fp16 would train as if it had been infinite.
Status check_fits_fp16(const std::string& tensor, const ElementTarget& piece) {
    for (const float value : piece.master) {
        if (!std::isfinite(value) || std::isfinite(fp16_to_float(float_to_fp16(value)))) continue;
        return offload::Error{offload::ErrorCode::bad_data,
                              fmt::format("{} has the weight {:g}, and fp16 ends at {:g}", tensor,
                                          value, offload::fp16_max),
                              "train in bf16"};
    }
    return {};
}

// weights and state are zero before.
Status load_part(const Checkpoint& checkpoint, const offload::Workload& workload, uint32_t part,
                 std::span<std::byte> weights, const cpu_adam::StateView& state) {
    const ElementTarget whole{
        .dtype = workload.dtype, .weights = weights, .lo = state.lo, .master = state.master};
    return for_each_piece(
        workload.layout, part,
        [&](const offload::TensorSpec& tensor, const offload::TensorPiece& piece) {
            const ElementTarget target = whole.piece(piece.first_in_part, piece.element_count);
            const Status read =
                checkpoint.read_elements(tensor.name, piece.first_in_tensor, target);
            return read ? check_fits_fp16(tensor.name, target) : read;
        });
}

// The sections of a part's state (offload/state_format.h), without what pads them.
std::array<std::span<const std::byte>, 4> sections_in(const offload::Workload& workload,
                                                      std::span<const std::byte> state,
                                                      uint64_t element_count) {
    const auto layout = offload::state_layout(workload.dtype, workload.states, element_count);
    const auto bytes = offload::section_bytes(workload.dtype, workload.states, element_count);
    return {state.subspan(layout.m_offset_bytes, bytes[0]),
            state.subspan(layout.v_offset_bytes, bytes[1]),
            state.subspan(layout.steps_offset_bytes, bytes[2]),
            state.subspan(layout.master_offset_bytes, bytes[3])};
}

// Fills weights and master of one part; both are zero before.
using FillPart =
    std::function<Status(uint32_t part, std::span<std::byte> weights, const cpu_adam::StateView&)>;

Status fill_homes(const Homes& homes, const FillPart& fill) {
    const offload::Workload& workload = homes.executor->schedule().workload;
    PartBytes hi(homes, Kind::hi);
    PartBytes opt(homes, Kind::opt);
    for (uint32_t part = 0; part < workload.layout.parts.size(); ++part) {
        const std::span<std::byte> state = opt.bytes(part);
        std::ranges::fill(state, std::byte{0});
        const cpu_adam::StateView view = cpu_adam::view_state(
            workload.dtype, workload.states, state, workload.layout.parts[part].element_count);
        const std::span<std::byte> weights = hi.bytes(part);
        std::ranges::fill(weights, std::byte{0});
        if (Status status = fill(part, weights, view); !status) return status;
        if (Status status = hi.write_place(part); !status) return status;
        const bool is_zero = view.master.empty() &&
                             std::ranges::all_of(view.lo, [](uint16_t half) { return half == 0; });
        if (is_zero) continue;  // a place that was never written reads as zeros
        if (Status status = opt.write_place(part); !status) return status;
    }
    return {};
}

// -0.03 to 0.03, another one for each of the next 2^32 elements.
float made_up_weight(uint32_t element) {
    const uint32_t mixed = element * 2654435761u;
    return 0.06f * (static_cast<float>(mixed >> 8) / static_cast<float>(1 << 24) - 0.5f);
}

}  // namespace

Status load_homes(const Homes& homes, const Checkpoint& checkpoint) {
    const offload::Workload& workload = homes.executor->schedule().workload;
    return fill_homes(
        homes, [&](uint32_t part, std::span<std::byte> weights, const cpu_adam::StateView& view) {
            return load_part(checkpoint, workload, part, weights, view);
        });
}

Status make_up_homes(const Homes& homes) {
    const offload::Workload& workload = homes.executor->schedule().workload;
    return fill_homes(
        homes,
        [&](uint32_t part, std::span<std::byte> weights,
            const cpu_adam::StateView& view) -> Status {
            const auto count = static_cast<uint32_t>(workload.layout.parts[part].element_count);
            const uint64_t size_bytes = offload::element_bytes(workload.dtype);
            for (uint32_t i = 0; i < count; ++i) {
                const float value = made_up_weight(i + 97 * part);
                const uint32_t bits = std::bit_cast<uint32_t>(value);
                const auto half = static_cast<uint16_t>(
                    workload.dtype == offload::Dtype::bf16 ? bits >> 16 : float_to_fp16(value));
                const void* source = &bits;
                if (size_bytes == sizeof(half)) source = &half;
                std::memcpy(weights.data() + i * size_bytes, source, size_bytes);
                if (!view.master.empty()) view.master[i] = fp16_to_float(half);
            }
            return {};
        });
}

Status load_memory_homes(const Homes& homes) {
    if (Status status = for_memory_homes(homes, Kind::hi, &PartBytes::read_place); !status) {
        return status;
    }
    return for_memory_homes(homes, Kind::opt, &PartBytes::read_place);
}

Status write_mirrors(const Homes& homes) {
    if (Status status = for_memory_homes(homes, Kind::hi, &PartBytes::write_place); !status) {
        return status;
    }
    return for_memory_homes(homes, Kind::opt, &PartBytes::write_place);
}

Status export_homes(const Homes& homes, CheckpointWriter& writer) {
    const offload::Workload& workload = homes.executor->schedule().workload;
    PartBytes hi(homes, Kind::hi);
    for (uint32_t part = 0; part < workload.layout.parts.size(); ++part) {
        if (Status status = hi.read(part); !status) return status;
        const std::span<const std::byte> weights = hi.bytes(part);
        const uint64_t size_bytes = offload::element_bytes(workload.dtype);
        Status status = for_each_piece(
            workload.layout, part,
            [&](const offload::TensorSpec& tensor, const offload::TensorPiece& piece) {
                return writer.write(tensor.name, piece.first_in_tensor,
                                    weights.subspan(piece.first_in_part * size_bytes,
                                                    piece.element_count * size_bytes));
            });
        if (!status) return status;
    }
    return {};
}

Result<HomesDigest> digest_homes(const Homes& homes) {
    const offload::Workload& workload = homes.executor->schedule().workload;
    PartBytes hi(homes, Kind::hi);
    PartBytes opt(homes, Kind::opt);
    Sha256 weights;
    std::array<Sha256, 4> states;  // one stream for each section, since a part interleaves them
    for (uint32_t part = 0; part < workload.layout.parts.size(); ++part) {
        if (Status status = hi.read(part); !status) return status.error();
        weights.add(hi.bytes(part));
        if (Status status = opt.read(part); !status) return status.error();
        const auto sections =
            sections_in(workload, opt.bytes(part), workload.layout.parts[part].element_count);
        for (size_t i = 0; i < states.size(); ++i) states[i].add(sections[i]);
    }
    Sha256 all;
    for (Sha256& state : states) {
        const std::string digest = state.finish();
        all.add(std::as_bytes(std::span(digest)));
    }
    return HomesDigest{.weights_sha256 = weights.finish(), .states_sha256 = all.finish()};
}

}  // namespace headrace::engine
