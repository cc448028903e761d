// The signature check: each op alone. Names alone do not prove that an op reads what it needs, so
// every kind says here what its writes are made of, where it may run and what its guard must be.

#include <fmt/format.h>

#include <algorithm>

#include "offload/find_fault.h"
#include "offload/slots.h"

namespace headrace::offload {

namespace {

// Collects what an op must touch and ticks it off; what is left over is a fault too.
class Signature {
  public:
    Signature(const Schedule& schedule, const Op& op)
        : schedule_(schedule), op_(op), is_ticked_(op.accesses.size(), false) {}

    // The slot of the access, which must exist exactly once on the tier.
    std::optional<SlotId> need(Mode mode, const Value& value, Tier tier) {
        for (size_t i = 0; i < op_.accesses.size(); ++i) {
            const Access& access = op_.accesses[i];
            if (is_ticked_[i] || access.mode != mode || access.value != value) continue;
            if (schedule_.slots[access.slot].tier != tier) continue;
            is_ticked_[i] = true;
            return access.slot;
        }
        say(fmt::format("does not {} {} on {}", mode == Mode::read ? "read" : "write",
                        describe(value), name_of(tier)));
        return std::nullopt;
    }

    std::optional<SlotId> need_control(Mode mode, const Value& value) {
        return need(mode, value, Tier::ram);
    }

    // A guard is a read of the verdict.
    void need_guard(const Guard& guard) {
        if (op_.guard != guard) return say("has another guard than its kind");
        if (guard.needs_applied) need_control(Mode::read, {.kind = Kind::verdict, .step = -1});
    }

    void need_lane(LaneKind kind) {
        if (op_.lane.kind != kind) say("runs on another lane than its kind");
    }

    void need_relabel(const Relabel& relabel) {
        if (std::ranges::find(op_.if_false, relabel) == op_.if_false.end()) {
            say(fmt::format("does not call {} {} when skipped", describe(relabel.before),
                            describe(relabel.after)));
        }
    }

    // May be there: the commit a durable write waits for (the meaning check insists on it).
    void allow_committed() {
        for (size_t i = 0; i < op_.accesses.size(); ++i) {
            if (op_.accesses[i].value.kind == Kind::committed) is_ticked_[i] = true;
        }
    }

    void say(std::string text) {
        if (!fault_) fault_ = fmt::format("{} {}", describe(schedule_, op_), text);
    }

    Fault result(size_t relabel_count) {
        if (std::ranges::find(is_ticked_, false) != is_ticked_.end()) {
            say("touches a slot that its kind does not");
        }
        if (op_.if_false.size() != relabel_count) say("relabels other values than its kind");
        return fault_;
    }

  private:
    const Schedule& schedule_;
    const Op& op_;
    std::vector<bool> is_ticked_;
    Fault fault_;
};

Value of_part(Kind kind, uint32_t part, int8_t step) {
    return {.kind = kind, .of = part, .step = step};
}

Value of_boundary(Kind kind, uint32_t boundary, int16_t micro_batch) {
    return {.kind = kind, .of = boundary, .micro_batch = micro_batch};
}

Guard compute_guard(const Workload& workload) {
    return {.needs_train = workload.purpose == Purpose::train};
}

// A copy writes exactly the value it reads, to a neighbouring tier, whole.
Fault check_copy(const Schedule& schedule, const Op& op) {
    Signature signature(schedule, op);
    const auto is_data = [](const Access& access) { return !is_control(access.value.kind); };
    const auto source = std::ranges::find_if(
        op.accesses, [&](const Access& a) { return is_data(a) && a.mode == Mode::read; });
    if (source == op.accesses.end()) {
        signature.say("copies nothing");
        return signature.result(0);
    }
    const Value value = source->value;
    const auto target = std::ranges::find_if(
        op.accesses, [&](const Access& a) { return is_data(a) && a.mode == Mode::write; });
    if (target == op.accesses.end() || target->value != value) {
        signature.say("does not write what it reads");
        return signature.result(op.if_false.size());
    }
    const Slot& from = schedule.slots[source->slot];
    const Slot& to = schedule.slots[target->slot];
    const int hops = std::abs(static_cast<int>(from.tier) - static_cast<int>(to.tier));
    if (hops != 1) {
        signature.say("does not copy between neighbouring tiers");
        return signature.result(op.if_false.size());
    }
    signature.need_lane(copy_lane(from.tier, to.tier));
    signature.need(Mode::read, value, from.tier);
    signature.need(Mode::write, value, to.tier);
    signature.allow_committed();
    // Only what belongs to the pending step needs its verdict; a skipped evict renames its home.
    const bool is_state = value.kind == Kind::hi || value.kind == Kind::opt;
    const bool is_pending =
        (value.kind == Kind::stash && value.step == -1) || (op.kind == OpKind::evict && is_state);
    Guard guard = op.guard;
    guard.needs_applied = is_pending;
    if (is_pending || (is_state && value.step == -2)) guard.needs_train = false;
    if (!is_pending && !(is_state && value.step == -2)) guard = compute_guard(schedule.workload);
    signature.need_guard(guard);
    const bool renames = op.kind == OpKind::evict && is_state;
    if (renames) {
        Value before = value;
        before.step = static_cast<int8_t>(value.step - 1);
        signature.need_relabel({target->slot, before, value});
    }
    return signature.result(renames ? 1 : 0);
}

// The first of two updates makes the new weight alone, from all that the second one reads too.
bool makes_hi_alone(const Op& op) {
    return op.kind == OpKind::update && find_access(op, Kind::opt, Mode::write) == nullptr;
}

Fault check_update(const Schedule& schedule, const Op& op) {
    Signature signature(schedule, op);
    const bool hi_alone = makes_hi_alone(op);
    signature.need_lane(LaneKind::cpu);
    signature.need_guard({.needs_applied = true});
    signature.need(Mode::read, of_part(Kind::stash, op.part, -1), Tier::ram);
    for (const Kind kind : {Kind::hi, Kind::opt}) {
        const Value before = of_part(kind, op.part, -2);
        const Value after = of_part(kind, op.part, -1);
        const auto source = signature.need(Mode::read, before, Tier::ram);
        if (kind == Kind::opt && hi_alone) continue;
        const auto target = signature.need(Mode::write, after, Tier::ram);
        if (source != target) signature.say("does not update in place");
        if (target) signature.need_relabel({*target, before, after});
    }
    return signature.result(hi_alone ? 1 : 2);
}

// Neighbouring parts of one layer must lie side by side on the gpu.
void need_whole(Signature& signature, const Schedule& schedule, Kind kind,
                const std::vector<uint32_t>& parts, const std::vector<SlotId>& slots) {
    for (size_t i = 1; i < slots.size(); ++i) {
        const Layout& layout = schedule.workload.layout;
        if (layout.parts[parts[i]].layer != layout.parts[parts[i - 1]].layer) continue;
        const uint64_t size_bytes =
            bytes_of_value(schedule.workload, of_part(kind, parts[i - 1], 0));
        if (schedule.slots[slots[i]].offset_bytes !=
            schedule.slots[slots[i - 1]].offset_bytes + size_bytes) {
            signature.say(fmt::format("finds {} of part {} apart from the part before it",
                                      name_of(kind), parts[i]));
        }
    }
}

void need_weights(Signature& signature, const Schedule& schedule, const Op& op) {
    const std::vector<uint32_t> parts = parts_used(schedule.workload.layout, op.layer);
    std::vector<SlotId> slots;
    for (const uint32_t part : parts) {
        const auto slot = signature.need(Mode::read, of_part(Kind::hi, part, -1), Tier::gpu);
        slots.push_back(slot.value_or(0));
    }
    need_whole(signature, schedule, Kind::hi, parts, slots);
}

void need_accumulators(Signature& signature, const Schedule& schedule, const Op& op) {
    const std::vector<uint32_t> parts = parts_used(schedule.workload.layout, op.layer);
    std::vector<SlotId> slots;
    for (const uint32_t part : parts) {
        Value acc = of_boundary(Kind::acc, part, op.micro_batch);
        acc.use = use_in(schedule.workload, part, op.layer);
        const auto target = signature.need(Mode::write, acc, Tier::gpu);
        slots.push_back(target.value_or(0));
        if (op.micro_batch == 0) continue;
        acc.micro_batch = static_cast<int16_t>(op.micro_batch - 1);
        const auto source = signature.need(Mode::read, acc, Tier::gpu);
        if (source != target) signature.say("does not accumulate in place");
    }
    need_whole(signature, schedule, Kind::acc, parts, slots);
}

// `keeps`: the op's layer has homes for what it keeps.
Fault check_compute(const Schedule& schedule, const Op& op, bool keeps) {
    Signature signature(schedule, op);
    const uint32_t head = head_layer(schedule.workload);
    const int16_t m = op.micro_batch;
    signature.need_lane(LaneKind::gpu);
    signature.need_guard(compute_guard(schedule.workload));
    const bool is_embedding_backward = op.pass == Pass::backward && op.layer == 0;
    if (!is_embedding_backward) need_weights(signature, schedule, op);
    const bool reads_act = op.layer > 0;
    if (reads_act) signature.need(Mode::read, of_boundary(Kind::act, op.layer, m), Tier::gpu);
    switch (op.pass) {
        case Pass::forward:
            if (op.layer >= head) signature.say("runs forward on the head");
            signature.need(Mode::write, of_boundary(Kind::act, op.layer + 1, m), Tier::gpu);
            if (keeps) signature.need(Mode::write, of_boundary(Kind::kept, op.layer, m), Tier::gpu);
            break;
        case Pass::backward:
            if (op.layer >= head) signature.say("runs backward on the head");
            signature.need(Mode::read, of_boundary(Kind::dact, op.layer + 1, m), Tier::gpu);
            if (keeps) signature.need(Mode::read, of_boundary(Kind::kept, op.layer, m), Tier::gpu);
            break;
        case Pass::head:
        case Pass::loss:
            if (op.layer != head) signature.say("computes a loss on a layer that is not the head");
            break;
        case Pass::none: signature.say("computes nothing"); break;
    }
    if (op.pass == Pass::backward || op.pass == Pass::head) {
        need_accumulators(signature, schedule, op);
        if (reads_act) signature.need(Mode::write, of_boundary(Kind::dact, op.layer, m), Tier::gpu);
    }
    return signature.result(0);
}

Fault check_reduce(const Schedule& schedule, const Op& op) {
    if (op.part >= schedule.workload.layout.parts.size()) {
        return fmt::format("a reduce of part {}, which does not exist", op.part);
    }
    Signature signature(schedule, op);
    signature.need_lane(LaneKind::gpu);
    signature.need_guard({.needs_train = true});
    for (uint8_t use = 0; use < use_count(schedule.workload, op.part); ++use) {
        Value acc = of_part(Kind::acc, op.part, 0);
        acc.use = use;
        acc.micro_batch = static_cast<int16_t>(schedule.workload.micro_batch_count - 1);
        signature.need(Mode::read, acc, Tier::gpu);
    }
    signature.need(Mode::write, of_part(Kind::stash, op.part, 0), Tier::gpu);
    signature.need_control(Mode::write, of_part(Kind::norm, op.part, 0));
    return signature.result(0);
}

Fault check_verdict(const Schedule& schedule, const Op& op) {
    Signature signature(schedule, op);
    signature.need_lane(LaneKind::cpu);
    signature.need_guard({.needs_train = true});
    for (uint32_t part = 0; part < schedule.workload.layout.parts.size(); ++part) {
        signature.need_control(Mode::read, of_part(Kind::norm, part, 0));
    }
    const Value before{.kind = Kind::verdict, .step = -1};
    const Value after{.kind = Kind::verdict, .step = 0};
    if (const auto slot = signature.need_control(Mode::write, after)) {
        signature.need_relabel({*slot, before, after});
    }
    return signature.result(1);
}

// sync: every durable place of every part; record: every path; seal: the record.
Fault check_commit(const Schedule& schedule, const Op& op) {
    Signature signature(schedule, op);
    signature.need_lane(LaneKind::nvme_write);
    signature.need_guard({});
    const Value journal{.kind = Kind::journal, .step = -1};
    if (op.kind == OpKind::sync) {
        for (const Slot& slot : schedule.slots) {
            if (!is_durable(slot.copies)) continue;
            const auto id = static_cast<SlotId>(&slot - schedule.slots.data());
            const auto found =
                signature.need(Mode::read, of_part(slot.kind, slot.of, -1), Tier::nvme);
            if (found && *found != id) signature.say("syncs another place than the part's own");
        }
        const Access* flushed = find_access(op, Kind::flushed, Mode::write);
        if (flushed == nullptr) {
            signature.say("flushes no path");
        } else {
            signature.need_control(Mode::write, flushed->value);
        }
    } else if (op.kind == OpKind::record) {
        for (uint32_t path = 0; path < schedule.path_count; ++path) {
            signature.need_control(Mode::read, {.kind = Kind::flushed, .of = path, .step = -1});
        }
        signature.need_control(Mode::write, journal);
    } else {
        signature.need_control(Mode::read, journal);
        signature.need_control(Mode::write, {.kind = Kind::committed, .step = -1});
    }
    return signature.result(0);
}

bool is_home_of_another(const Schedule& schedule, const Access& access) {
    const Slot& slot = schedule.slots[access.slot];
    const bool has_home_per_part =
        slot.kind == Kind::hi || slot.kind == Kind::opt || slot.kind == Kind::stash;
    if (!slot.is_home || !has_home_per_part) return false;
    return access.value.kind != slot.kind || access.value.of != slot.of;
}

// An output may take the place of an input only where it is the same thing, further on.
bool writes_over_input(const Op& op, const Access& output) {
    return std::ranges::any_of(op.accesses, [&](const Access& input) {
        if (input.mode != Mode::read || input.slot != output.slot) return false;
        return input.value.kind != output.value.kind || input.value.of != output.value.of ||
               input.value.use != output.value.use;
    });
}

// What holds for the places of every kind of op.
Fault check_places(const Schedule& schedule, const Op& op) {
    const auto say = [&](const Access& access, std::string_view text) {
        return fmt::format("{} {} slot {} for {}", describe(schedule, op), text, access.slot,
                           describe(access.value));
    };
    for (const Access& access : op.accesses) {
        CHECK_LT(access.slot, schedule.slots.size());
        if (access.mode == Mode::write && writes_over_input(op, access)) {
            return say(access, "overwrites an input in");
        }
        if (is_control(access.value.kind)) continue;
        const uint64_t size_bytes = bytes_of_value(schedule.workload, access.value);
        if (schedule.slots[access.slot].size_bytes < size_bytes) {
            return say(access, "uses the too small");
        }
        if (is_home_of_another(schedule, access)) return say(access, "uses another value's home,");
    }
    return std::nullopt;
}

Fault check_op(const Schedule& schedule, const Op& op, const std::vector<bool>& layers_that_keep) {
    if (Fault fault = check_places(schedule, op)) return fault;
    switch (op.kind) {
        case OpKind::fetch:
        case OpKind::evict: return check_copy(schedule, op);
        case OpKind::compute:
            return check_compute(schedule, op,
                                 op.layer < layers_that_keep.size() && layers_that_keep[op.layer]);
        case OpKind::reduce: return check_reduce(schedule, op);
        case OpKind::verdict: return check_verdict(schedule, op);
        case OpKind::update: return check_update(schedule, op);
        case OpKind::sync:
        case OpKind::record:
        case OpKind::seal: return check_commit(schedule, op);
    }
    CHECK(false);
}

// What a repetition would count twice and the meaning check cannot miss: each micro-batch's loss;
// in training each part's update and norm, the verdict and the commit.
Fault check_counts(const Schedule& schedule) {
    const auto count = [&](auto matches) { return std::ranges::count_if(schedule.ops, matches); };
    for (uint32_t m = 0; m < schedule.workload.micro_batch_count; ++m) {
        const auto adds_loss = [&](const Op& op) {
            return op.kind == OpKind::compute && op.micro_batch == static_cast<int16_t>(m) &&
                   (op.pass == Pass::head || op.pass == Pass::loss);
        };
        if (count(adds_loss) != 1) return fmt::format("micro-batch {} has not exactly one loss", m);
    }
    if (schedule.workload.purpose != Purpose::train) return std::nullopt;
    for (uint32_t part = 0; part < schedule.workload.layout.parts.size(); ++part) {
        for (const OpKind kind : {OpKind::update, OpKind::reduce}) {
            const auto is_whole = [&](const Op& op) {
                return op.kind == kind && op.part == part && !makes_hi_alone(op);
            };
            if (count(is_whole) != 1) {
                return fmt::format("part {} has not exactly one {}", part, name_of(kind));
            }
        }
        const auto is_first_of_two = [&](const Op& op) {
            return makes_hi_alone(op) && op.part == part;
        };
        if (count(is_first_of_two) > 1) {
            return fmt::format("part {} has more than one update of hi alone", part);
        }
    }
    if (count([](const Op& op) { return op.kind == OpKind::verdict; }) != 1) {
        return "there is not exactly one verdict";
    }
    // A second record could still be on its way when the next period overwrites what it names.
    const std::ptrdiff_t commit_count = schedule.path_count > 0 ? 1 : 0;
    for (const auto& [kind, expected] :
         {std::pair(OpKind::sync, std::ptrdiff_t{schedule.path_count}),
          {OpKind::record, commit_count},
          {OpKind::seal, commit_count}}) {
        const auto found = count([&](const Op& op) { return op.kind == kind; });
        if (found == expected) continue;
        return fmt::format("a list over {} paths has {} {} ops, not {}", schedule.path_count, found,
                           name_of(kind), expected);
    }
    return std::nullopt;
}

}  // namespace

Fault find_signature_fault(const Schedule& schedule) {
    std::vector<bool> keeps = layers_that_keep(schedule);
    if (schedule.workload.purpose != Purpose::train) keeps.clear();
    for (const Op& op : schedule.ops) {
        if (Fault fault = check_op(schedule, op, keeps)) return fault;
    }
    return check_counts(schedule);
}

Fault find_overlap(const Schedule& schedule) {
    std::vector<const Slot*> slots;
    for (const Slot& slot : schedule.slots) {
        if (slot.size_bytes > 0) slots.push_back(&slot);
    }
    std::ranges::sort(slots, [](const Slot* a, const Slot* b) {
        return std::pair(a->tier, a->offset_bytes) < std::pair(b->tier, b->offset_bytes);
    });
    for (size_t i = 0; i < slots.size(); ++i) {
        const Slot& below = *slots[i];
        // On nvme a slot is a numbered place: different numbers do not overlap.
        const uint64_t end = below.offset_bytes + (below.tier == Tier::nvme ? 1 : below.size_bytes);
        if (below.tier == Tier::gpu && end > schedule.workspace_offset_bytes) {
            return fmt::format("a gpu slot ends at byte {}, in the workspace", end);
        }
        if (i + 1 == slots.size() || slots[i + 1]->tier != below.tier) continue;
        if (end > slots[i + 1]->offset_bytes) {
            return fmt::format("two slots of tier {} share what begins at {}", name_of(below.tier),
                               slots[i + 1]->offset_bytes);
        }
    }
    return std::nullopt;
}

Fault find_fault(const Schedule& schedule) {
    if (Fault fault = find_overlap(schedule)) return fault;
    if (Fault fault = find_signature_fault(schedule)) return fault;
    if (Fault fault = find_meaning_fault(schedule)) return fault;
    return find_order_fault(schedule);
}

}  // namespace headrace::offload
