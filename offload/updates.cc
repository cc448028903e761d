#include "offload/updates.h"

namespace headrace::offload {

namespace {

// A value that an update replaces, and the ram slot where it does so.
struct Replaced {
    SlotId slot = no_slot;
    Value before{};
    Value after{};
};

Replaced replaced(Period& period, Kind kind, uint32_t part, SlotId home, Ring& ring) {
    const Value before = part_value(kind, part, -2);
    return {.slot = period.in_ram(before, home, ring, always),
            .before = before,
            .after = part_value(kind, part, -1)};
}

Op update_op(uint32_t part) {
    return {.kind = OpKind::update, .lane = {LaneKind::cpu}, .part = part, .guard = if_applied};
}

// To a home or a mirror, if there is one.
void bring_home(Period& period, const Replaced& value, SlotId home) {
    if (value.slot == home || home == no_slot) return;
    const Copy copy{OpKind::evict, value.after, value.slot,
                    home,          if_applied,  Relabel{home, value.before, value.after}};
    if (period.is_on(Tier::nvme, home)) {
        period.out.copy_late(copy);
    } else {
        period.out.copy(copy);
    }
}

}  // namespace

void update(Period& period, uint32_t part) {
    const SlotTable& table = period.table;
    const Value gradient = part_value(Kind::stash, part, -1);
    const Replaced hi = replaced(period, Kind::hi, part, table.hi[part], period.ram_hi);
    const Replaced opt = replaced(period, Kind::opt, part, table.opt[part], period.ram_opt);
    const SlotId stash = period.in_ram(gradient, table.stash[part], period.ram_stash, if_applied);
    Op op = update_op(part);
    op.accesses = {{stash, gradient, Mode::read},
                   {hi.slot, hi.before, Mode::read},
                   {opt.slot, opt.before, Mode::read},
                   {hi.slot, hi.after, Mode::write},
                   {opt.slot, opt.after, Mode::write}};
    op.if_false = {{hi.slot, hi.before, hi.after}, {opt.slot, opt.before, opt.after}};
    period.out.emit(std::move(op));
    period.out.hold(hi.slot, hi.after);
    period.out.hold(opt.slot, opt.after);
    bring_home(period, hi, table.hi[part]);
    bring_home(period, opt, table.opt[part]);
    if (!commits_every_step(period.plan)) return;
    bring_home(period, hi, table.hi_mirror[part]);
    bring_home(period, opt, table.opt_mirror[part]);
}

void update_hi(Period& period, uint32_t part) {
    CHECK(is_updated_twice(period.plan, part));
    const SlotTable& table = period.table;
    const Value before = part_value(Kind::opt, part, -2);
    const Value gradient = part_value(Kind::stash, part, -1);
    const Replaced hi = replaced(period, Kind::hi, part, table.hi[part], period.ram_hi);
    const SlotId opt = period.in_ram(before, table.opt[part], period.ram_opt, always);
    const SlotId stash = period.in_ram(gradient, table.stash[part], period.ram_stash, if_applied);
    Op op = update_op(part);
    op.accesses = {{opt, before, Mode::read},
                   {stash, gradient, Mode::read},
                   {hi.slot, hi.before, Mode::read},
                   {hi.slot, hi.after, Mode::write}};
    op.if_false = {{hi.slot, hi.before, hi.after}};
    period.out.emit(std::move(op));
    period.out.hold(hi.slot, hi.after);
}

}  // namespace headrace::offload
