// Emitter: writes a list of ops while keeping track of what each ring slot holds. It knows rings,
// copies and writes that wait; what is computed when is build's business (offload/build.cc).
//
// A *late write* is an evict whose source slot nobody needs yet: it is emitted just before its slot
// is taken again or its target is read, else spread under backward by write_some().
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "offload/slots.h"

namespace headrace::offload {

// Slots that are taken in turn. Taking one forgets what it held.
struct Ring {
    std::vector<SlotId> slots;
    uint32_t next = 0;
};

struct Copy {
    OpKind kind = OpKind::fetch;
    Value value{};
    SlotId source = no_slot;
    SlotId target = no_slot;
    Guard guard{};
    std::optional<Relabel> if_false{};
};

class Emitter {
  public:
    // `slots` and `commits` as in the schedule to come; both must outlive the emitter.
    Emitter(const SlotTable& table, bool commits);

    // Takes the next slot, or `slot_count` neighbouring ones, emitting late writes from them first.
    SlotId take(Ring& ring);
    std::vector<SlotId> take_run(Ring& ring, uint32_t slot_count);

    // The slot of the ring that holds the value, if any; hold() says that one now does.
    std::optional<SlotId> held(const Ring& ring, const Value& value) const;
    void hold(SlotId slot, const Value& value);

    // Adds the accesses that a guard or a durable write implies, then appends the op.
    void emit(Op op);
    // Emits a copy now; its target then holds the value. A late write to its source goes first.
    void copy(const Copy& copy);
    // Leaves the evict for later.
    void copy_late(const Copy& copy);

    // Emits the oldest `write_count` late writes; all of them.
    void write_some(size_t write_count);
    void write_all() { write_some(late_.size()); }
    size_t late_count() const { return late_.size(); }

    std::vector<Op> release() { return std::move(ops_); }

  private:
    void write_from(SlotId source);
    void write_to(SlotId target);
    Op make(const Copy& copy) const;

    const SlotTable& table_;
    const bool commits_;
    std::vector<Op> ops_;
    std::vector<std::optional<Value>> content_;  // by slot
    std::deque<Copy> late_;
};

}  // namespace headrace::offload
