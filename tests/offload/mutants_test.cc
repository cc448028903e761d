// Goal: find_fault misses nothing that goes wrong. Method: break right schedules in every way of a
// long list (ops lost, doubled, moved; accesses, guards, slots, names and edges changed; things
// done that are not declared), ask the interleaver whether the broken schedule still does the right
// thing under every timing, and demand that find_fault flags all that do not. Where find_fault
// flags more than the interleaver, the kind must be in the table of those where it may, with the
// reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "offload/build.h"
#include "offload/edges.h"
#include "offload/find_fault.h"
#include "tests/offload/interleaver.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

struct Base {
    std::string name;
    Workload workload;
    Plan plan;
    Schedule schedule{};
    SlotTable table{};
};

struct Mutant {
    std::string kind;
    std::string what;
    Schedule declared;  // what find_fault sees
    Schedule done;      // what the interleaver runs: the ops as they act, the edges as derived
};

// Collects the mutants of one base.
class Mutants {
  public:
    explicit Mutants(const Base& base) : base_(base) {}

    const Schedule& original() const { return base_.schedule; }
    const Base& base() const { return base_; }

    // Ops changed; edges derived again, as build would.
    void add_ops(const std::string& kind, const std::string& what, std::vector<Op> ops) {
        Schedule schedule = original();
        schedule.ops = std::move(ops);
        schedule.edges = derive_edges(schedule.ops, schedule.slots.size());
        add(kind, what, std::move(schedule));
    }

    // One op changed.
    void add_op(const std::string& kind, OpId id, Op op) {
        const std::string what = "op " + std::to_string(id) + ", " + name(id);
        std::vector<Op> ops = original().ops;
        if (ops[id] == op) return;
        ops[id] = std::move(op);
        add_ops(kind, what, std::move(ops));
    }

    void add(const std::string& kind, const std::string& what, Schedule schedule) {
        list_.push_back({kind, what, schedule, std::move(schedule)});
    }

    // The op says `op`, its edges follow from that, and it goes on doing what it did.
    void add_undeclared(const std::string& kind, OpId id, Op op) {
        add_op(kind, id, std::move(op));
        list_.back().done.ops = original().ops;
    }

    std::string name(OpId id) const { return describe(original(), original().ops[id]); }
    const std::vector<Mutant>& list() const { return list_; }

  private:
    const Base& base_;
    std::vector<Mutant> list_;
};

bool is_data(const Access& access) {
    return !is_control(access.value.kind);
}

// --- edges -------------------------------------------------------------------------------------

void change_edges(Mutants& mutants) {
    const Schedule& original = mutants.original();
    for (size_t i = 0; i < original.edges.size(); ++i) {
        const Edge edge = original.edges[i];
        const std::string what = mutants.name(edge.source) + " before " + mutants.name(edge.target);
        Schedule without = original;
        without.edges.erase(without.edges.begin() + static_cast<std::ptrdiff_t>(i));
        mutants.add("edge removed", what, without);
        Schedule other_period = original;
        other_period.edges[i].distance ^= 1;
        mutants.add("edge of another period", what, other_period);
        Schedule turned = original;
        std::swap(turned.edges[i].source, turned.edges[i].target);
        if (edge.source != edge.target) mutants.add("edge turned", what, turned);
    }
}

// --- whole ops ---------------------------------------------------------------------------------

void lose_and_double_ops(Mutants& mutants) {
    const std::vector<Op>& original = mutants.original().ops;
    for (OpId id = 0; id < original.size(); ++id) {
        const std::string kind{name_of(original[id].kind)};
        std::vector<Op> lost = original;
        lost.erase(lost.begin() + id);
        mutants.add_ops("lost " + kind, mutants.name(id), lost);
        std::vector<Op> doubled = original;
        doubled.insert(doubled.begin() + id, original[id]);
        mutants.add_ops("doubled " + kind, mutants.name(id), doubled);
        std::vector<Op> repeated = original;
        repeated.push_back(original[id]);
        mutants.add_ops("repeated at the end", mutants.name(id), repeated);
    }
}

void move_ops(Mutants& mutants) {
    const std::vector<Op>& original = mutants.original().ops;
    const auto op_count = static_cast<OpId>(original.size());
    for (OpId id = 0; id + 1 < op_count; ++id) {
        std::vector<Op> swapped = original;
        std::swap(swapped[id], swapped[id + 1]);
        mutants.add_ops("neighbours swapped", mutants.name(id), swapped);
        Schedule kept = mutants.original();
        kept.ops = swapped;
        mutants.add("neighbours swapped under the old edges", mutants.name(id), kept);
    }
    for (OpId id = 0; id < op_count; ++id) {
        for (const OpId target : {OpId{0}, id / 2, (id + op_count) / 2, op_count - 1}) {
            if (target == id) continue;
            std::vector<Op> moved = original;
            moved.erase(moved.begin() + id);
            moved.insert(moved.begin() + target, original[id]);
            mutants.add_ops("moved " + std::string(name_of(original[id].kind)), mutants.name(id),
                            moved);
        }
    }
}

// --- fields of an op ---------------------------------------------------------------------------

void change_guards(Mutants& mutants) {
    const std::vector<Op>& original = mutants.original().ops;
    const auto reads_verdict = [](const Access& access) {
        return access.value.kind == Kind::verdict && access.mode == Mode::read;
    };
    for (OpId id = 0; id < original.size(); ++id) {
        Op op = original[id];
        op.guard.needs_train = !op.guard.needs_train;
        mutants.add_op("guard on training changed", id, op);
        op = original[id];
        op.guard.needs_applied = !op.guard.needs_applied;
        mutants.add_op("guard on the verdict changed, its read kept", id, op);
        if (op.guard.needs_applied) {
            op.accesses.push_back(
                {mutants.base().table.verdict, {.kind = Kind::verdict, .step = -1}, Mode::read});
        } else {
            std::erase_if(op.accesses, reads_verdict);
        }
        mutants.add_op("guard on the verdict changed", id, op);
        op = original[id];
        op.if_false.clear();
        mutants.add_op("relabel dropped", id, op);
        op = original[id];
        for (Relabel& relabel : op.if_false) ++relabel.after.step;
        mutants.add_op("relabel to another step", id, op);
    }
}

void change_fields(Mutants& mutants) {
    const std::vector<Op>& original = mutants.original().ops;
    for (OpId id = 0; id < original.size(); ++id) {
        const auto lane = static_cast<int>(original[id].lane.kind);
        Op op = original[id];
        op.lane.kind = static_cast<LaneKind>((lane + 1) % lane_kind_count);
        mutants.add_op("wrong lane", id, op);
        op = original[id];
        op.part ^= 1;
        if (op.kind == OpKind::update || op.kind == OpKind::reduce) {
            mutants.add_op("wrong part", id, op);
        }
        for (const int further : {1, 2, 5}) {
            op = original[id];
            constexpr int kind_count = static_cast<int>(OpKind::seal) + 1;
            op.kind = static_cast<OpKind>((static_cast<int>(op.kind) + further) % kind_count);
            mutants.add_op("wrong kind", id, op);
        }
        if (original[id].kind != OpKind::compute) continue;
        op = original[id];
        op.micro_batch ^= 1;
        mutants.add_op("wrong micro-batch", id, op);
        op = original[id];
        op.layer = op.layer == 0 ? 1 : op.layer - 1;
        mutants.add_op("wrong layer", id, op);
        for (int pass = 0; pass <= static_cast<int>(Pass::loss); ++pass) {
            op = original[id];
            op.pass = static_cast<Pass>(pass);
            mutants.add_op("wrong pass", id, op);
        }
    }
}

// --- accesses ----------------------------------------------------------------------------------

using ChangeAccess = std::function<void(const std::string& kind, Access changed)>;

void change_name(const Access& access, const ChangeAccess& change) {
    for (const int step : {-1, 1}) {
        Access other = access;
        other.value.step = static_cast<int8_t>(other.value.step + step);
        change(step < 0 ? "older value named" : "newer value named", other);
    }
    Access other = access;
    other.value.micro_batch ^= 1;
    change("another micro-batch named", other);
    other = access;
    other.value.use ^= 1;
    if (access.value.kind == Kind::acc) change("another use named", other);
    other = access;
    other.value.of ^= 1;
    change("another part, boundary or path named", other);
    other = access;
    other.mode = access.mode == Mode::read ? Mode::write : Mode::read;
    change("read and write confused", other);
}

// Every other slot of this kind, and every fifth of those of another that are large enough.
void change_slot(const Schedule& schedule, const Access& access, const ChangeAccess& change) {
    const Slot& slot = schedule.slots[access.slot];
    for (SlotId id = 0; id < schedule.slots.size(); ++id) {
        const Slot& candidate = schedule.slots[id];
        if (id == access.slot || is_control(slot.kind) != is_control(candidate.kind)) continue;
        Access other = access;
        other.slot = id;
        if (candidate.kind != slot.kind) {
            const bool fits = candidate.size_bytes >= slot.size_bytes;
            if (fits && (id + access.slot) % 5 == 0) change("slot of another kind", other);
        } else if (candidate.tier != slot.tier) {
            change("slot of another tier", other);
        } else {
            change(candidate.is_home ? "another home" : "another slot of the ring", other);
        }
    }
}

void change_accesses(Mutants& mutants) {
    const Schedule& schedule = mutants.original();
    for (OpId id = 0; id < schedule.ops.size(); ++id) {
        for (size_t i = 0; i < schedule.ops[id].accesses.size(); ++i) {
            const ChangeAccess change = [&](const std::string& kind, const Access& changed) {
                Op op = schedule.ops[id];
                op.accesses[i] = changed;
                mutants.add_op(kind, id, op);
            };
            change_name(schedule.ops[id].accesses[i], change);
            change_slot(schedule, schedule.ops[id].accesses[i], change);
            Op op = schedule.ops[id];
            op.accesses.erase(op.accesses.begin() + static_cast<std::ptrdiff_t>(i));
            const std::string kind{name_of(op.kind)};
            mutants.add_op("access dropped by " + kind, id, op);
            mutants.add_undeclared("access undeclared by " + kind, id, op);
        }
        Op op = schedule.ops[id];
        for (const Op& other : schedule.ops) {
            if (!other.accesses.empty() && other.accesses.front() != op.accesses.front()) {
                op.accesses.push_back(other.accesses.front());
                break;
            }
        }
        mutants.add_op("access added", id, op);
    }
}

// A copy of the wrong thing, consistently named: all its accesses speak of another step,
// micro-batch, use or part.
void copy_another_value(Mutants& mutants) {
    const std::vector<Op>& original = mutants.original().ops;
    for (OpId id = 0; id < original.size(); ++id) {
        if (original[id].kind != OpKind::fetch && original[id].kind != OpKind::evict) continue;
        const auto all = [&](const std::string& kind, const std::function<void(Value&)>& change) {
            Op op = original[id];
            for (Access& access : op.accesses) {
                if (is_data(access)) change(access.value);
            }
            mutants.add_op("copies another " + kind, id, op);
        };
        all("step", [](Value& value) { --value.step; });
        all("micro-batch", [](Value& value) { value.micro_batch ^= 1; });
        all("use", [](Value& value) { value.use ^= 1; });
        all("part or boundary", [](Value& value) { value.of ^= 1; });
    }
}

// After op `writer` wrote `access` to slot `other` instead: its readers, in the list order, go
// along until the old slot is written again.
void move_readers(std::vector<Op>& ops, OpId writer, const Access& access, SlotId other) {
    for (size_t later = writer + 1; later < ops.size(); ++later) {
        bool is_rewritten = false;
        for (Access& reader : ops[later].accesses) {
            if (reader.slot != access.slot) continue;
            is_rewritten = is_rewritten || reader.mode == Mode::write;
            if (reader.mode == Mode::read && reader.value == access.value) reader.slot = other;
        }
        if (is_rewritten) return;
    }
}

// An output lands on one of the op's own inputs.
void write_over_inputs(Mutants& mutants) {
    const std::vector<Op>& original = mutants.original().ops;
    for (OpId id = 0; id < original.size(); ++id) {
        for (size_t target = 0; target < original[id].accesses.size(); ++target) {
            for (const Access& source : original[id].accesses) {
                Op op = original[id];
                Access& access = op.accesses[target];
                if (access.mode != Mode::write || source.mode != Mode::read) continue;
                if (!is_data(access) || !is_data(source) || access.slot == source.slot) continue;
                std::vector<Op> ops = original;
                access.slot = source.slot;
                ops[id] = op;
                mutants.add_ops("output over input", mutants.name(id), ops);
                move_readers(ops, id, original[id].accesses[target], source.slot);
                mutants.add_ops("output over input, readers follow", mutants.name(id), ops);
            }
        }
    }
}

// --- slots -------------------------------------------------------------------------------------

void replace_slot(std::vector<Op>& ops, SlotId from, SlotId to) {
    for (Op& op : ops) {
        for (Access& access : op.accesses) {
            if (access.slot == from) access.slot = to;
        }
        for (Relabel& relabel : op.if_false) {
            if (relabel.slot == from) relabel.slot = to;
        }
    }
}

void change_slots(Mutants& mutants) {
    const Schedule& original = mutants.original();
    for (SlotId one = 0; one < original.slots.size(); ++one) {
        const Slot& slot = original.slots[one];
        if (slot.size_bytes > 0) {
            Schedule small = original;
            small.slots[one].size_bytes = slot.size_bytes / 2;
            mutants.add("slot too small", std::to_string(one), small);
        }
        for (SlotId other = 0; other < original.slots.size(); ++other) {
            const Slot& rival = original.slots[other];
            if (one == other || rival.kind != slot.kind || rival.tier != slot.tier) continue;
            std::vector<Op> merged = original.ops;
            replace_slot(merged, one, other);
            const std::string what = std::to_string(one) + " and " + std::to_string(other);
            mutants.add_ops(slot.is_home == rival.is_home ? "two slots made one"
                                                          : "ring slot and home made one",
                            what, merged);
            if (one > other) continue;
            std::vector<Op> swapped = original.ops;
            const auto spare = static_cast<SlotId>(original.slots.size());
            replace_slot(swapped, one, spare);
            replace_slot(swapped, other, one);
            replace_slot(swapped, spare, other);
            mutants.add_ops(slot.is_home ? "homes swapped" : "ring slots swapped", what, swapped);
        }
    }
}

// A value goes to another slot and all its readers follow, until the old slot is written again:
// right exactly where the other slot is free for so long.
void move_values(Mutants& mutants) {
    const Schedule& original = mutants.original();
    for (OpId id = 0; id < original.ops.size(); ++id) {
        for (size_t i = 0; i < original.ops[id].accesses.size(); ++i) {
            const Access access = original.ops[id].accesses[i];
            if (access.mode == Mode::read || !is_data(access)) continue;
            const Slot& slot = original.slots[access.slot];
            for (SlotId other = 0; other < original.slots.size(); ++other) {
                const Slot& candidate = original.slots[other];
                if (other == access.slot || is_control(candidate.kind)) continue;
                if (candidate.tier != slot.tier || candidate.size_bytes < slot.size_bytes) continue;
                std::vector<Op> ops = original.ops;
                ops[id].accesses[i].slot = other;
                move_readers(ops, id, access, other);
                mutants.add_ops("value moved, readers follow", mutants.name(id), ops);
            }
        }
    }
}

// A value is not fetched: its readers take an older copy of it on the same tier, which is right
// exactly where nothing was written over that copy since.
void believe_older_copies(Mutants& mutants) {
    const Schedule& original = mutants.original();
    for (OpId id = 0; id < original.ops.size(); ++id) {
        const Op& fetch = original.ops[id];
        if (fetch.kind != OpKind::fetch) continue;
        const auto to = std::ranges::find(fetch.accesses, Mode::write, &Access::mode);
        const Tier tier = original.slots[to->slot].tier;
        for (OpId older = 0; older < id; ++older) {
            for (const Access& copy : original.ops[older].accesses) {
                if (copy.mode != Mode::write || copy.value != to->value) continue;
                if (original.slots[copy.slot].tier != tier) continue;
                std::vector<Op> ops = original.ops;
                move_readers(ops, id, *to, copy.slot);
                ops.erase(ops.begin() + id);
                mutants.add_ops("older copy believed", mutants.name(id), ops);
            }
        }
    }
}

// --- the whole list ----------------------------------------------------------------------------

void change_everywhere(Mutants& mutants, const std::string& kind,
                       const std::function<void(Op&)>& change) {
    std::vector<Op> ops = mutants.original().ops;
    for (Op& op : ops) change(op);
    if (ops != mutants.original().ops) mutants.add_ops(kind, "everywhere", ops);
}

void change_the_list(Mutants& mutants) {
    const auto in_values = [](const std::function<void(Value&)>& change) {
        return [change](Op& op) {
            for (Access& access : op.accesses) change(access.value);
            for (Relabel& relabel : op.if_false) change(relabel.before), change(relabel.after);
        };
    };
    change_everywhere(mutants, "no guard on the verdict", [](Op& op) {
        op.guard.needs_applied = false;
        op.if_false.clear();
    });
    change_everywhere(mutants, "no guard on training",
                      [](Op& op) { op.guard.needs_train = false; });
    change_everywhere(mutants, "micro-batches exchanged throughout", [&](Op& op) {
        in_values([](Value& value) { value.micro_batch ^= 1; })(op);
        if (op.kind == OpKind::compute) op.micro_batch ^= 1;
    });
    change_everywhere(mutants, "uses exchanged throughout", in_values([](Value& value) {
                          if (value.kind == Kind::acc) value.use ^= 1;
                      }));
    change_everywhere(mutants, "commits not awaited", [](Op& op) {
        std::erase_if(op.accesses, [](const Access& access) {
            return access.value.kind == Kind::committed && access.mode == Mode::read;
        });
    });
    change_everywhere(mutants, "no place synced", [](Op& op) {
        if (op.kind == OpKind::sync) std::erase_if(op.accesses, is_data);
    });
}

// The commit stands elsewhere.
void move_commit(Mutants& mutants) {
    std::vector<Op> commit;
    std::vector<Op> rest;
    for (const Op& op : mutants.original().ops) {
        const bool commits =
            op.kind == OpKind::sync || op.kind == OpKind::record || op.kind == OpKind::seal;
        (commits ? commit : rest).push_back(op);
    }
    if (commit.empty()) return;
    for (size_t target = 0; target <= rest.size(); ++target) {
        std::vector<Op> ops = rest;
        ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(target), commit.begin(), commit.end());
        mutants.add_ops("commit elsewhere", "at " + std::to_string(target), ops);
    }
}

// Two ops of a kind take each other's place in the list, or each other's slot to write to.
void exchange_ops(Mutants& mutants) {
    const std::vector<Op>& original = mutants.original().ops;
    for (OpId one = 0; one < original.size(); ++one) {
        for (OpId other = one + 1; other < original.size(); ++other) {
            if (original[one].kind != original[other].kind) continue;
            const std::string what = mutants.name(one) + " and " + mutants.name(other);
            std::vector<Op> ops = original;
            std::swap(ops[one], ops[other]);
            mutants.add_ops("ops of a kind exchanged", what, ops);
            ops = original;
            Access* left = const_cast<Access*>(
                find_access(ops[one], original[one].accesses.front().value.kind, Mode::write));
            Access* right = const_cast<Access*>(
                find_access(ops[other], original[one].accesses.front().value.kind, Mode::write));
            if (left == nullptr || right == nullptr) continue;
            std::swap(left->slot, right->slot);
            mutants.add_ops("targets exchanged", what, ops);
        }
    }
}

// --- bases -------------------------------------------------------------------------------------

struct BaseOptions {
    std::string name;
    SmallShape shape{};
    PartHomes homes{};
    Tier act = Tier::gpu;
    uint32_t group = 1;
    uint32_t window = 1;
    uint32_t ring_slots = 1;
    uint32_t path_count = 0;
    Purpose purpose = Purpose::train;
    std::optional<Tier> kept{};
    bool twice = false;  // all that can
    // So many boundaries (the last) and gradients (the first) are in ram, the others on nvme.
    std::optional<uint32_t> near_count{};
};

Base make_base(const BaseOptions& options) {
    Base base{.name = options.name, .workload = small_workload(options.shape), .plan = {}};
    base.workload.purpose = options.purpose;
    base.plan = uniform_plan(base.workload, options.homes, options.act);
    base.plan.group = options.group;
    base.plan.window = options.window;
    const uint32_t slots = options.ring_slots;
    base.plan.rings = {slots, slots, slots, slots, slots, slots, slots, slots, slots};
    keep_blocks(base.workload, options.kept, base.plan);
    base.plan.path_count = options.path_count;
    for (uint32_t part = 0; part < base.plan.homes.size(); ++part) {
        base.plan.twice.push_back(options.twice && can_update_twice(base.workload, part));
    }
    for (uint32_t i = 0; options.near_count && i < layer_count(base.workload); ++i) {
        const Tier tier = i < *options.near_count ? Tier::ram : Tier::nvme;
        if (i + 1 < head_layer(base.workload)) {
            base.plan.act_homes[head_layer(base.workload) - 1 - i] = tier;
        }
        base.plan.homes[i].stash = tier;
    }
    base.schedule = *build(base.workload, base.plan);
    base.table = lay_slots(base.workload, base.plan);
    return base;
}

Base make_base_of(const std::string& name) {
    constexpr Tier gpu = Tier::gpu;
    constexpr Tier ram = Tier::ram;
    constexpr Tier nvme = Tier::nvme;
    constexpr Purpose train = Purpose::train;
    constexpr Purpose evaluate = Purpose::evaluate;
    constexpr SmallShape untied{.block_count = 0};
    constexpr SmallShape tied{.block_count = 0, .tied = true, .micro_batch_count = 2};
    constexpr SmallShape block{.block_count = 1, .micro_batch_count = 2};
    constexpr SmallShape single{.block_count = 1};
    constexpr SmallShape pair{.block_count = 2};
    const std::vector<BaseOptions> all = {
        {"Resident", untied, {gpu, gpu, gpu, gpu}},
        {"Ram", tied, {ram, ram, ram, ram}, gpu, 1, 1, 1, 1},
        {"Mirrors", untied, {gpu, gpu, ram, ram}, gpu, 1, 1, 1, 2},
        {"Nvme", untied, {nvme, nvme, nvme, nvme}, nvme, 1, 1, 1, 1},
        {"Mixed", tied, {nvme, ram, gpu, nvme}, ram, 2, 2, 2, 2},
        {"Block", block, {ram, nvme, ram, ram}, ram, 2, 1, 1, 1},
        {"Evaluation", block, {nvme, nvme, nvme, nvme}, nvme, 2, 1, 1, 1, evaluate, ram},
        {"KeptOnGpu", block, {gpu, gpu, gpu, ram}, gpu, 1, 1, 1, 0, train, gpu},
        {"KeptInRam", block, {gpu, ram, ram, ram}, ram, 2, 1, 1, 0, train, ram},
        {"KeptOnNvme", single, {gpu, ram, ram, ram}, gpu, 1, 1, 2, 0, train, nvme},
        {"Twice", untied, {nvme, nvme, ram, ram}, gpu, 1, 1, 1, 1, train, {}, true},
        {"TwiceLong", single, {nvme, nvme, ram, ram}, gpu, 1, 1, 2, 0, train, {}, true},
        {"Spilled", pair, {gpu, gpu, gpu, gpu}, gpu, 1, 1, 1, 0, train, {}, false, 1},
        {"SpilledAll", pair, {gpu, gpu, gpu, gpu}, gpu, 1, 1, 1, 0, train, {}, false, 0},
    };
    const auto found = std::ranges::find(all, name, &BaseOptions::name);
    CHECK(found != all.end());
    return make_base(*found);
}

std::vector<Mutant> all_mutants(const Base& base) {
    Mutants mutants(base);
    for (const auto change :
         {change_edges, lose_and_double_ops, move_ops, change_guards, change_fields,
          change_accesses, copy_another_value, write_over_inputs, change_slots, move_values,
          believe_older_copies, change_the_list, move_commit, exchange_ops}) {
        change(mutants);
    }
    return mutants.list();
}

// --- verdicts ----------------------------------------------------------------------------------

// Kinds where find_fault may flag what the interleaver accepts, with the reason.
const std::map<std::string, std::string>& stricter_kinds() {
    static const std::map<std::string, std::string> kinds = {
        {"access added", "an op of its kind does not touch that slot"},
        {"access dropped by ", "read for its order only, which other edges of this list imply"},
        {"access undeclared by ", "other edges of this list imply the order that is lost"},
        {"doubled ", "bytes come out the same; counted or relabelled twice"},
        {"edge turned", "against the list order, but the slot held the same bytes before"},
        {"guard on ", "a false op would have copied bytes that do not change"},
        {"output over input", "no lane copies between these tiers"},
        {"read and write confused", "a token of the commit that orders nothing else here"},
        {"relabel ", "bytes need no relabel, names do"},
        {"repeated at the end", "as doubled"},
        {"ring slot and home made one", "the home is free for so long, but another value's"},
        {"ring slots swapped", "parts of a layer lie apart; the interleaver has no addresses"},
        {"slot of another ", "no lane copies between these tiers"},
        {"value moved, readers follow", "parts lie apart, or no lane copies between these tiers"},
        {"wrong ", "bytes do not depend on the field; a backend does"},
    };
    return kinds;
}

bool may_be_stricter(const std::string& kind) {
    return std::ranges::any_of(stricter_kinds(),
                               [&](const auto& entry) { return kind.starts_with(entry.first); });
}

struct Tally {
    size_t both_flag = 0;
    size_t both_accept = 0;
    size_t stricter = 0;
};

class MutantsOf : public testing::TestWithParam<std::string> {};

TEST_P(MutantsOf, FindFaultMissesNothing) {
    const Base base = make_base_of(GetParam());
    ASSERT_FALSE(find_fault(base.schedule).has_value());
    std::map<std::string, Tally> tallies;
    for (const Mutant& mutant : all_mutants(base)) {
        const std::string what = mutant.kind + ": " + mutant.what;
        const Fault fault = find_fault(mutant.declared);
        const Finding finding = interleave(mutant.done, base.table, {});
        ASSERT_TRUE(finding.is_complete) << what;
        Tally& tally = tallies[mutant.kind];
        if (fault && finding.violation) ++tally.both_flag;
        if (!fault && !finding.violation) ++tally.both_accept;
        if (fault && !finding.violation) ++tally.stricter;
        EXPECT_TRUE(fault || !finding.violation) << what << ": missed: " << *finding.violation;
        EXPECT_TRUE(!fault || finding.violation || may_be_stricter(mutant.kind))
            << what << ": too strict: " << *fault;
    }
    for (const char* kind : {"edge removed", "lost fetch", "lost compute", "older value named",
                             "slot of another tier", "access undeclared by compute",
                             "neighbours swapped under the old edges", "wrong micro-batch"}) {
        EXPECT_GT(tallies[kind].both_flag, 0u) << kind;
    }
    for (const char* kind : {"edge removed", "neighbours swapped"}) {
        EXPECT_GT(tallies[kind].both_accept, 0u) << kind;
    }
    for (const auto& [kind, tally] : tallies) {
        RecordProperty(kind, std::to_string(tally.both_flag) + " flagged by both, " +
                                 std::to_string(tally.both_accept) + " accepted by both, " +
                                 std::to_string(tally.stricter) + " by find_fault alone");
    }
}

const std::vector<std::string> base_names = {
    "Resident",  "Ram",       "Mirrors",    "Nvme",  "Mixed",     "Block",   "Evaluation",
    "KeptOnGpu", "KeptInRam", "KeptOnNvme", "Twice", "TwiceLong", "Spilled", "SpilledAll"};

INSTANTIATE_TEST_SUITE_P(Small, MutantsOf, testing::ValuesIn(base_names),
                         [](const auto& base) { return base.param; });

// Harmless changes on top of each other: what is right by another list order or another slot than
// build would take must be seen as right, and broken on from there.
TEST_P(MutantsOf, FindFaultMissesNoSecondChange) {
    const Base base = make_base_of(GetParam());
    Mutants first(base);
    move_ops(first);
    move_values(first);
    change_slots(first);
    size_t harmless_count = 0;
    size_t wrong_count = 0;
    for (size_t i = 0; i < first.list().size() && harmless_count < 12; i += 7) {
        Base changed = base;
        changed.schedule = first.list()[i].declared;
        if (find_fault(changed.schedule)) continue;
        ++harmless_count;
        Mutants second(changed);
        move_ops(second);
        move_values(second);
        write_over_inputs(second);
        for (size_t j = i % 13; j < second.list().size(); j += 13) {
            const Mutant& mutant = second.list()[j];
            const Finding finding = interleave(mutant.done, base.table, {});
            ASSERT_TRUE(finding.is_complete);
            if (!finding.violation) continue;
            ++wrong_count;
            EXPECT_TRUE(find_fault(mutant.declared).has_value())
                << first.list()[i].kind << ": " << first.list()[i].what << "; then " << mutant.kind
                << ": " << mutant.what << ": missed: " << *finding.violation;
        }
    }
    EXPECT_GT(harmless_count, 0u);
    EXPECT_GT(wrong_count, 0u);
}

constexpr const char* every_kind[] = {"edge removed",
                                      "edge of another period",
                                      "edge turned",
                                      "lost fetch",
                                      "lost evict",
                                      "lost update",
                                      "lost reduce",
                                      "lost verdict",
                                      "lost sync",
                                      "lost record",
                                      "lost seal",
                                      "doubled compute",
                                      "doubled record",
                                      "repeated at the end",
                                      "neighbours swapped",
                                      "neighbours swapped under the old edges",
                                      "moved update",
                                      "moved evict",
                                      "moved verdict",
                                      "guard on training changed",
                                      "guard on the verdict changed",
                                      "guard on the verdict changed, its read kept",
                                      "relabel dropped",
                                      "relabel to another step",
                                      "wrong lane",
                                      "wrong part",
                                      "wrong kind",
                                      "wrong micro-batch",
                                      "wrong layer",
                                      "wrong pass",
                                      "older value named",
                                      "newer value named",
                                      "another micro-batch named",
                                      "another use named",
                                      "read and write confused",
                                      "another part, boundary or path named",
                                      "slot of another kind",
                                      "slot of another tier",
                                      "another home",
                                      "another slot of the ring",
                                      "access dropped by sync",
                                      "access undeclared by sync",
                                      "access undeclared by update",
                                      "access added",
                                      "copies another step",
                                      "copies another micro-batch",
                                      "output over input",
                                      "output over input, readers follow",
                                      "slot too small",
                                      "two slots made one",
                                      "ring slot and home made one",
                                      "homes swapped",
                                      "ring slots swapped",
                                      "value moved, readers follow",
                                      "older copy believed",
                                      "no guard on the verdict",
                                      "no guard on training",
                                      "commits not awaited",
                                      "no place synced",
                                      "micro-batches exchanged throughout",
                                      "uses exchanged throughout",
                                      "commit elsewhere",
                                      "ops of a kind exchanged",
                                      "targets exchanged"};

// The table is not empty in any row: each kind of mutant exists.
TEST(Mutants, EveryKindIsMade) {
    std::map<std::string, size_t> counts;
    for (const std::string& name : base_names) {
        for (const Mutant& mutant : all_mutants(make_base_of(name))) ++counts[mutant.kind];
    }
    for (const char* kind : every_kind) {
        EXPECT_GT(counts[kind], 0u) << kind;
    }
}

}  // namespace
}  // namespace headrace::offload
