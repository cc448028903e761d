#include "offload/period_end.h"

namespace headrace::offload {

namespace {

Value flushed(uint32_t path) {
    return {.kind = Kind::flushed, .of = path, .step = -1};
}

// The durable place of a value of k-1: its home, or the mirror of a home in memory.
void read_place(const Period& period, SlotId home, SlotId mirror, const Value& value, Op& sync) {
    const SlotId place = mirror == no_slot ? home : mirror;
    CHECK(period.is_on(Tier::nvme, place));
    sync.accesses.push_back({place, value, Mode::read});
}

}  // namespace

void commit(Period& period) {
    const SlotTable& table = period.table;
    const uint32_t path_count = period.plan.path_count;
    CHECK(commits_every_step(period.plan));
    for (uint32_t path = 0; path < path_count; ++path) {
        Op sync{.kind = OpKind::sync, .lane = {LaneKind::nvme_write}};
        for (uint32_t part = 0; part < period.workload.layout.parts.size(); ++part) {
            read_place(period, table.hi[part], table.hi_mirror[part],
                       part_value(Kind::hi, part, -1), sync);
            read_place(period, table.opt[part], table.opt_mirror[part],
                       part_value(Kind::opt, part, -1), sync);
        }
        sync.accesses.push_back({table.flushed[path], flushed(path), Mode::write});
        period.out.emit(std::move(sync));
    }
    const Value written{.kind = Kind::journal, .step = -1};
    const Value durable{.kind = Kind::committed, .step = -1};
    Op record{.kind = OpKind::record, .lane = {LaneKind::nvme_write}};
    for (uint32_t path = 0; path < path_count; ++path) {
        record.accesses.push_back({table.flushed[path], flushed(path), Mode::read});
    }
    record.accesses.push_back({table.journal, written, Mode::write});
    period.out.emit(std::move(record));
    Op seal{.kind = OpKind::seal, .lane = {LaneKind::nvme_write}};
    seal.accesses = {{table.journal, written, Mode::read}, {table.committed, durable, Mode::write}};
    period.out.emit(std::move(seal));
}

void give_verdict(Period& period) {
    const SlotTable& table = period.table;
    Op op{.kind = OpKind::verdict, .lane = {LaneKind::cpu}, .guard = if_train};
    for (uint32_t part = 0; part < period.workload.layout.parts.size(); ++part) {
        op.accesses.push_back({table.norm[part], part_value(Kind::norm, part, 0), Mode::read});
    }
    const Value before{.kind = Kind::verdict, .step = -1};
    const Value after{.kind = Kind::verdict, .step = 0};
    op.accesses.push_back({table.verdict, after, Mode::write});
    op.if_false = {{table.verdict, before, after}};
    period.out.emit(std::move(op));
}

}  // namespace headrace::offload
