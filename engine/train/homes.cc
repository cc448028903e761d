#include "engine/train/homes.h"

#include <fmt/format.h>

#include <algorithm>

#include "cpu_adam/state.h"
#include "engine/train/sha256.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Dtype;
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
        for (SlotId slot = 0; slot < schedule.slots.size(); ++slot) {
            const offload::Slot& place = schedule.slots[slot];
            if (place.kind != kind) continue;
            if (place.is_home) {
                homes_of_kind_.push_back(slot);
            } else if (place.tier == Tier::ram && buffer_ == offload::no_slot) {
                buffer_ = slot;
            }
        }
        CHECK_EQ(homes_of_kind_.size(), schedule.workload.layout.parts.size());
    }

    // The bytes of the part's home, or a ring slot's that stands in for a place.
    std::span<std::byte> bytes(uint32_t part) const {
        const SlotId slot = is_on_nvme(part) ? buffer_ : homes_of_kind_[part];
        CHECK_NE(slot, offload::no_slot);
        const uint64_t size_bytes =
            bytes_of_value(homes_.executor->schedule().workload, {.kind = kind_, .of = part});
        return homes_.executor->bytes_of_slot(slot).first(size_bytes);
    }

    bool is_on_nvme(uint32_t part) const { return home(part).tier == Tier::nvme; }

    Status read(uint32_t part) const { return transfer(part, offload::Direction::read); }
    Status write(uint32_t part) const { return transfer(part, offload::Direction::write); }

  private:
    const offload::Slot& home(uint32_t part) const {
        return homes_.executor->schedule().slots[homes_of_kind_[part]];
    }
    Status transfer(uint32_t part, offload::Direction direction) const {
        if (!is_on_nvme(part)) return {};
        CHECK(homes_.store != nullptr);
        const auto place = static_cast<offload::PlaceId>(home(part).offset_bytes);
        return transfer_and_wait(*homes_.store, direction, place, bytes(part));
    }

    const Homes& homes_;
    const Kind kind_;
    std::vector<SlotId> homes_of_kind_;  // by part
    SlotId buffer_ = offload::no_slot;
};

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

Status load_part(const Checkpoint& checkpoint, const offload::Workload& workload, uint32_t part,
                 std::span<std::byte> weights, std::span<uint16_t> lo) {
    std::ranges::fill(weights, std::byte{0});
    std::ranges::fill(lo, uint16_t{0});
    const ElementTarget whole{.dtype = workload.dtype, .weights = weights, .lo = lo};
    return for_each_piece(
        workload.layout, part,
        [&](const offload::TensorSpec& tensor, const offload::TensorPiece& piece) {
            return checkpoint.read_elements(tensor.name, piece.first_in_tensor,
                                            whole.piece(piece.first_in_part, piece.element_count));
        });
}

}  // namespace

Status load_homes(const Homes& homes, const Checkpoint& checkpoint) {
    const offload::Workload& workload = homes.executor->schedule().workload;
    const PartBytes hi(homes, Kind::hi);
    const PartBytes opt(homes, Kind::opt);
    for (uint32_t part = 0; part < workload.layout.parts.size(); ++part) {
        const std::span<std::byte> state = opt.bytes(part);
        std::ranges::fill(state, std::byte{0});
        const cpu_adam::StateView view =
            cpu_adam::view_state(workload.dtype, state, workload.layout.parts[part].element_count);
        const std::span<std::byte> weights = hi.bytes(part);
        if (Status status = load_part(checkpoint, workload, part, weights, view.lo); !status) {
            return status;
        }
        if (Status status = hi.write(part); !status) return status;
        const bool is_zero = std::ranges::all_of(view.lo, [](uint16_t half) { return half == 0; });
        if (is_zero && opt.is_on_nvme(part)) continue;
        if (Status status = opt.write(part); !status) return status;
    }
    return {};
}

Status export_homes(const Homes& homes, CheckpointWriter& writer) {
    const offload::Workload& workload = homes.executor->schedule().workload;
    const PartBytes hi(homes, Kind::hi);
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
    const PartBytes hi(homes, Kind::hi);
    const PartBytes opt(homes, Kind::opt);
    Sha256 weights;
    std::array<Sha256, 3> states;  // m, v, lo: one stream each, since a part interleaves them
    for (uint32_t part = 0; part < workload.layout.parts.size(); ++part) {
        if (Status status = hi.read(part); !status) return status.error();
        weights.add(hi.bytes(part));
        if (Status status = opt.read(part); !status) return status.error();
        const cpu_adam::StateView view = cpu_adam::view_state(
            workload.dtype, opt.bytes(part), workload.layout.parts[part].element_count);
        states[0].add(std::as_bytes(view.m));
        states[1].add(std::as_bytes(view.v));
        states[2].add(std::as_bytes(view.lo));
    }
    Sha256 all;
    for (Sha256& state : states) {
        const std::string digest = state.finish();
        all.add(std::as_bytes(std::span(digest)));
    }
    return HomesDigest{.weights_sha256 = weights.finish(), .states_sha256 = all.finish()};
}

}  // namespace headrace::engine
