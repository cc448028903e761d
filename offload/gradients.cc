#include "offload/gradients.h"

namespace headrace::offload {

namespace {

SlotId acc_home(const Period& period, uint32_t part, uint8_t use) {
    return period.table.acc[size_t{part} * 2 + use];
}

bool lives_on_gpu(const Period& period, uint32_t part, uint8_t use) {
    const SlotId home = acc_home(period, part, use);
    return home != no_slot && period.is_on(Tier::gpu, home);
}

void fetch_accumulator(Period& period, const Value& acc, SlotId target) {
    SlotId source = acc_home(period, acc.of, acc.use);
    CHECK_NE(source, no_slot);
    if (period.is_on(Tier::nvme, source)) {
        const SlotId slot = period.out.take(period.ram_acc);
        period.out.copy({OpKind::fetch, acc, source, slot, if_train, {}});
        source = slot;
    }
    period.out.copy({OpKind::fetch, acc, source, target, if_train, {}});
}

// The sum over a part's uses becomes its stash and its norm.
void reduce(Period& period, uint32_t part, SlotId own) {
    const uint32_t last = period.workload.micro_batch_count - 1;
    Op op{.kind = OpKind::reduce, .lane = {LaneKind::gpu}, .part = part, .guard = if_train};
    op.accesses = {{own, acc_value(part, 0, last), Mode::read}};
    if (use_count(period.workload, part) == 2) {
        const Value acc = acc_value(part, 1, last);
        SlotId other = acc_home(period, part, 1);
        if (!period.is_on(Tier::gpu, other)) {
            other = period.out.take(period.gpu_seam);
            fetch_accumulator(period, acc, other);
        }
        op.accesses.push_back({other, acc, Mode::read});
    }
    const SlotId home = period.table.stash[part];
    const Value stash = part_value(Kind::stash, part, 0);
    const SlotId slot = period.leave(op, stash, home, period.gpu_stash);
    op.accesses.push_back({period.table.norm[part], part_value(Kind::norm, part, 0), Mode::write});
    period.out.emit(std::move(op));
    period.send_home(stash, slot, home,
                     has_stash_out(period.plan) ? period.ram_stash_out : period.ram_stash);
}

}  // namespace

std::vector<SlotId> bring_accumulators(Period& period, uint32_t layer, const Group& group) {
    const std::vector<uint32_t> parts = parts_used(period.workload.layout, layer);
    uint32_t ring_slots = 0;
    for (const uint32_t part : parts) {
        if (!lives_on_gpu(period, part, use_in(period.workload, part, layer))) ++ring_slots;
    }
    // One stretch of the ring, so that each run of parts lies side by side.
    std::vector<SlotId> stretch;
    if (ring_slots > 0) stretch = period.out.take_run(period.gpu_acc, ring_slots);
    auto next = stretch.begin();
    std::vector<SlotId> slots;
    for (const uint32_t part : parts) {
        const uint8_t use = use_in(period.workload, part, layer);
        if (lives_on_gpu(period, part, use)) {
            slots.push_back(acc_home(period, part, use));
            continue;
        }
        if (!period.is_first(group)) {
            fetch_accumulator(period, acc_value(part, use, group.first - 1), *next);
        }
        slots.push_back(*next++);
    }
    return slots;
}

void add_gradients(Period& period, uint32_t layer, uint32_t micro_batch,
                   const std::vector<SlotId>& accumulators, Op& op) {
    const std::vector<uint32_t> parts = parts_used(period.workload.layout, layer);
    CHECK_EQ(parts.size(), accumulators.size());
    for (size_t i = 0; i < parts.size(); ++i) {
        const SlotId slot = accumulators[i];
        const uint8_t use = use_in(period.workload, parts[i], layer);
        const Value sum = acc_value(parts[i], use, micro_batch);
        if (micro_batch > 0) {
            op.accesses.push_back({slot, acc_value(parts[i], use, micro_batch - 1), Mode::read});
        }
        op.accesses.push_back({slot, sum, Mode::write});
        period.out.hold(slot, sum);
    }
}

void finish_accumulators(Period& period, uint32_t layer, const Group& group,
                         const std::vector<SlotId>& accumulators) {
    const std::vector<uint32_t> parts = parts_used(period.workload.layout, layer);
    CHECK_EQ(parts.size(), accumulators.size());
    for (size_t i = 0; i < parts.size(); ++i) {
        const uint8_t use = use_in(period.workload, parts[i], layer);
        // The owner's layer stands before the borrower's, so in backward it comes last.
        if (period.is_last(group) && use == 0) {
            reduce(period, parts[i], accumulators[i]);
        } else {
            period.send_home(acc_value(parts[i], use, group.end - 1), accumulators[i],
                             acc_home(period, parts[i], use), period.ram_acc);
        }
    }
}

}  // namespace headrace::offload
