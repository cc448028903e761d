#include "offload/emitter.h"

#include <algorithm>

namespace headrace::offload {

Emitter::Emitter(const SlotTable& table, bool commits)
    : table_(table), commits_(commits), content_(table.slots.size()) {}

SlotId Emitter::take(Ring& ring) {
    return take_run(ring, 1).front();
}

std::vector<SlotId> Emitter::take_run(Ring& ring, uint32_t slot_count) {
    CHECK_GT(slot_count, 0u);
    CHECK_LE(slot_count, ring.slots.size());
    if (ring.next + slot_count > ring.slots.size()) ring.next = 0;
    std::vector<SlotId> run;
    for (uint32_t i = 0; i < slot_count; ++i) {
        const SlotId slot = ring.slots[ring.next + i];
        write_from(slot);
        content_[slot].reset();
        run.push_back(slot);
    }
    ring.next = (ring.next + slot_count) % static_cast<uint32_t>(ring.slots.size());
    return run;
}

std::optional<SlotId> Emitter::held(const Ring& ring, const Value& value) const {
    for (const SlotId slot : ring.slots) {
        if (content_[slot] == value) return slot;
    }
    return std::nullopt;
}

void Emitter::hold(SlotId slot, const Value& value) {
    CHECK_EQ(table_.slots[slot].kind, value.kind);
    content_[slot] = value;
}

void Emitter::emit(Op op) {
    if (op.guard.needs_applied) {
        op.accesses.push_back({.slot = table_.verdict,
                               .value = {.kind = Kind::verdict, .step = -1},
                               .mode = Mode::read});
    }
    ops_.push_back(std::move(op));
}

Op Emitter::make(const Copy& copy) const {
    const Slot& source = table_.slots[copy.source];
    const Slot& target = table_.slots[copy.target];
    CHECK(copy.source != no_slot && copy.target != no_slot);
    CHECK_NE(copy.source, copy.target);
    Op op{.kind = copy.kind, .lane = {copy_lane(source.tier, target.tier)}, .guard = copy.guard};
    op.accesses = {{copy.source, copy.value, Mode::read}, {copy.target, copy.value, Mode::write}};
    if (copy.if_false) op.if_false.push_back(*copy.if_false);
    if (commits_ && is_durable(target.copies)) {
        Value released{.kind = Kind::committed};
        released.step = static_cast<int8_t>(copy.value.step - 1);
        op.accesses.push_back({table_.committed, released, Mode::read});
    }
    return op;
}

void Emitter::copy(const Copy& copy) {
    write_to(copy.source);
    emit(make(copy));
    hold(copy.target, copy.value);
}

void Emitter::copy_late(const Copy& copy) {
    CHECK_EQ(copy.kind, OpKind::evict);
    CHECK(table_.slots[copy.target].is_home);  // a ring slot could be taken before the write
    late_.push_back(copy);
}

void Emitter::write_some(size_t write_count) {
    for (; write_count > 0 && !late_.empty(); --write_count) {
        emit(make(late_.front()));
        late_.pop_front();
    }
}

void Emitter::write_from(SlotId source) {
    for (auto write = late_.begin(); write != late_.end();) {
        if (write->source == source) {
            emit(make(*write));
            write = late_.erase(write);
        } else {
            ++write;
        }
    }
}

void Emitter::write_to(SlotId target) {
    const auto write = std::ranges::find(late_, target, &Copy::target);
    if (write == late_.end()) return;
    emit(make(*write));
    late_.erase(write);
}

}  // namespace headrace::offload
