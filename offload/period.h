// Period: one list in the making: what is computed, where things live, the ops so far and what each
// ring slot holds by now; and how a value gets from its home to where it is used and back, one tier
// at a time, through the rings. What is computed when is build's business (offload/build.cc).
#pragma once

#include <vector>

#include "offload/emitter.h"

namespace headrace::offload {

inline constexpr Guard always{};
inline constexpr Guard if_train{.needs_train = true};
inline constexpr Guard if_applied{.needs_applied = true};

Value part_value(Kind kind, uint32_t part, int8_t step);
Value acc_value(uint32_t part, uint8_t use, uint32_t micro_batch);
Value micro_batch_value(Kind kind, uint32_t of, uint32_t micro_batch);

// The micro-batches [first, end) of one pass over the layers.
struct Group {
    uint32_t first = 0;
    uint32_t end = 0;
};

struct Period {
    // Both outlive it.
    Period(const Workload& workload, const Plan& plan);
    Period(const Period&) = delete;
    Period& operator=(const Period&) = delete;

    const Workload& workload;
    const Plan& plan;
    const SlotTable table;
    Emitter out;
    Ring gpu_hi, gpu_acc, gpu_seam, gpu_stash, gpu_act, gpu_dact, gpu_kept;
    Ring ram_hi, ram_opt, ram_stash, ram_stash_out, ram_acc, ram_act, ram_kept;

    bool trains() const { return workload.purpose == Purpose::train; }
    uint32_t head() const { return head_layer(workload); }
    bool is_first(const Group& group) const { return group.first == 0; }
    bool is_last(const Group& group) const { return group.end == workload.micro_batch_count; }
    bool is_on(Tier tier, SlotId slot) const { return table.slots[slot].tier == tier; }
    // Of what computes, and of what is fetched for it.
    Guard compute_guard() const { return trains() ? if_train : always; }

    // The ram slot to use the value in: its home, a ring slot that still has it, or a fetched copy.
    SlotId in_ram(const Value& value, SlotId home, Ring& ring, const Guard& guard);

    // The gpu slot to read the value in: a ring slot that still has it, its home, or a copy that is
    // fetched, from nvme through the ring in ram. home: no_slot if the ring must have it.
    SlotId on_gpu(const Value& value, SlotId home, Ring& gpu_ring, Ring& ram_ring);

    // The gpu slot where the op leaves the value: its home, if that is there, or one of the ring.
    // Adds the write to the op.
    SlotId leave(Op& op, const Value& value, SlotId home, Ring& gpu_ring);

    // Copies a gpu value to its home, to nvme through the ring in ram, unless it is home already.
    void send_home(const Value& value, SlotId slot, SlotId home, Ring& ram_ring);
};

}  // namespace headrace::offload
