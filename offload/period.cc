#include "offload/period.h"

namespace headrace::offload {

Value part_value(Kind kind, uint32_t part, int8_t step) {
    return {.kind = kind, .of = part, .step = step};
}

Value acc_value(uint32_t part, uint8_t use, uint32_t micro_batch) {
    return {.kind = Kind::acc,
            .of = part,
            .use = use,
            .micro_batch = static_cast<int16_t>(micro_batch)};
}

Value micro_batch_value(Kind kind, uint32_t of, uint32_t micro_batch) {
    return {.kind = kind, .of = of, .micro_batch = static_cast<int16_t>(micro_batch)};
}

Period::Period(const Workload& workload_of_list, const Plan& plan_of_list)
    : workload(workload_of_list),
      plan(plan_of_list),
      table(lay_slots(workload, plan)),
      out(table, commits_every_step(plan)),
      gpu_hi{.slots = table.gpu_hi},
      gpu_acc{.slots = table.gpu_acc},
      gpu_seam{.slots = table.gpu_seam},
      gpu_stash{.slots = table.gpu_stash},
      gpu_act{.slots = table.gpu_act},
      gpu_dact{.slots = table.gpu_dact},
      gpu_kept{.slots = table.gpu_kept},
      ram_hi{.slots = table.ram_hi},
      ram_opt{.slots = table.ram_opt},
      ram_stash{.slots = table.ram_stash},
      ram_stash_out{.slots = table.ram_stash_out},
      ram_acc{.slots = table.ram_acc},
      ram_act{.slots = table.ram_act},
      ram_kept{.slots = table.ram_kept} {}

SlotId Period::in_ram(const Value& value, SlotId home, Ring& ring, const Guard& guard) {
    CHECK_NE(home, no_slot);
    if (is_on(Tier::ram, home)) return home;
    if (const auto slot = out.held(ring, value)) return *slot;
    const SlotId slot = out.take(ring);
    out.copy({OpKind::fetch, value, home, slot, guard, {}});
    return slot;
}

SlotId Period::on_gpu(const Value& value, SlotId home, Ring& gpu_ring, Ring& ram_ring) {
    if (const auto slot = out.held(gpu_ring, value)) return *slot;
    CHECK_NE(home, no_slot);
    if (is_on(Tier::gpu, home)) return home;
    const SlotId source = in_ram(value, home, ram_ring, if_train);
    const SlotId slot = out.take(gpu_ring);
    out.copy({OpKind::fetch, value, source, slot, if_train, {}});
    return slot;
}

SlotId Period::leave(Op& op, const Value& value, SlotId home, Ring& gpu_ring) {
    const bool is_home = home != no_slot && is_on(Tier::gpu, home);
    const SlotId slot = is_home ? home : out.take(gpu_ring);
    op.accesses.push_back({slot, value, Mode::write});
    out.hold(slot, value);
    return slot;
}

void Period::send_home(const Value& value, SlotId slot, SlotId home, Ring& ram_ring) {
    if (slot == home) return;
    CHECK_NE(home, no_slot);
    SlotId source = slot;
    if (is_on(Tier::nvme, home)) {
        source = out.take(ram_ring);
        out.copy({OpKind::evict, value, slot, source, if_train, {}});
    }
    out.copy({OpKind::evict, value, source, home, if_train, {}});
}

}  // namespace headrace::offload
