// The meaning check: walks one period symbolically for every outcome of the verdict it enters with,
// of training or draining, and of the verdict it leaves with. Slots hold the names of values.

#include <fmt/format.h>

#include <map>

#include "offload/find_fault.h"

namespace headrace::offload {

namespace {

struct Case {
    bool entry_applied = false;
    bool trains = false;
    bool exit_applied = false;
};

bool holds(const Guard& guard, const Case& outcome) {
    return (!guard.needs_train || outcome.trains) &&
           (!guard.needs_applied || outcome.entry_applied);
}

using Contents = std::map<SlotId, Value>;

// The entry contract: what a home may be found to hold by a list that reads it before writing it.
// Everything else is garbage. The exit must be the same, one step on.
bool may_enter_with(const Workload& workload, const Value& value, bool entry_applied) {
    if (workload.purpose == Purpose::evaluate) return value.kind == Kind::hi && value.step == -1;
    switch (value.kind) {
        case Kind::hi:
        case Kind::opt:
        case Kind::committed: return value.step == -2;
        case Kind::stash: return value.step == -1 && entry_applied;
        case Kind::verdict: return value.step == -1;
        default: return false;
    }
}

Value shifted(Value value, int step_on) {
    value.step = static_cast<int8_t>(value.step + step_on);
    return value;
}

class Walk {
  public:
    Walk(const Schedule& schedule, const Case& outcome) : schedule_(schedule), outcome_(outcome) {
        CHECK(outcome.trains || !outcome.exit_applied);
    }

    Fault run() {
        for (OpId op = 0; op < schedule_.ops.size(); ++op) {
            if (Fault fault = step(op)) return fault;
        }
        return check_exit();
    }

  private:
    Fault step(OpId id) {
        const Op& op = schedule_.ops[id];
        if (!holds(op.guard, outcome_)) return relabel(id);
        for (const Access& access : op.accesses) {
            if (access.mode != Mode::read) continue;
            if (Fault fault = read(id, access.slot, access.value)) return fault;
        }
        for (const Access& access : op.accesses) {
            if (access.mode != Mode::write) continue;
            if (Fault fault = check_release(id, access)) return fault;
            contents_[access.slot] = access.value;
        }
        return std::nullopt;
    }

    // The first touch of a home takes its value from the entry contract.
    Fault read(OpId id, SlotId slot, const Value& value) {
        CHECK_LT(slot, schedule_.slots.size());
        const auto found = contents_.find(slot);
        if (found == contents_.end()) {
            const Slot& home = schedule_.slots[slot];
            if (!home.is_home || home.kind != value.kind ||
                !may_enter_with(schedule_.workload, value, outcome_.entry_applied)) {
                return say(id, slot, value, "nothing has been written there in this period");
            }
            contents_[slot] = value;
            entry_[slot] = value;
            return std::nullopt;
        }
        if (found->second == value) return std::nullopt;
        return say(id, slot, value, "it holds " + describe(found->second));
    }

    Fault relabel(OpId id) {
        for (const Relabel& relabel : schedule_.ops[id].if_false) {
            if (Fault fault = read(id, relabel.slot, relabel.before)) return fault;
            contents_[relabel.slot] = relabel.after;
        }
        return std::nullopt;
    }

    // A write of step s over a durable place destroys the generation that commit s-2 names, so
    // commit s-1 must be durable, whether or not the op says that it reads it.
    Fault check_release(OpId id, const Access& access) {
        if (schedule_.path_count == 0 || !is_durable(schedule_.slots[access.slot].copies)) {
            return std::nullopt;
        }
        Value released{.kind = Kind::committed};
        released.step = static_cast<int8_t>(access.value.step - 1);
        for (const Access& other : schedule_.ops[id].accesses) {
            if (other.mode == Mode::read && other.value == released) return std::nullopt;
        }
        return say(id, access.slot, access.value,
                   "the commit that releases its old generation is not awaited");
    }

    // Every home the list entered with must be left with the same value, one step on. A gradient
    // need not be there when the next period will not read it.
    Fault check_exit() const {
        const bool evaluates = schedule_.workload.purpose == Purpose::evaluate;
        for (const auto& [slot, value] : entry_) {
            if (value.kind == Kind::stash && !outcome_.exit_applied) continue;
            const Value expected = shifted(value, evaluates ? 0 : 1);
            const Value& found = contents_.at(slot);
            if (found == expected) continue;
            return fmt::format("slot {} is left holding {} instead of {}", slot, describe(found),
                               describe(expected));
        }
        return std::nullopt;
    }

    Fault say(OpId id, SlotId slot, const Value& value, const std::string& why) const {
        return fmt::format("op {} ({}) expects {} in slot {}, but {} (entry {}, {})", id,
                           describe(schedule_, schedule_.ops[id]), describe(value), slot, why,
                           outcome_.entry_applied ? "applied" : "skipped",
                           outcome_.trains ? "training" : "draining");
    }

    const Schedule& schedule_;
    const Case outcome_;
    Contents contents_;
    Contents entry_;  // homes that were read before they were written
};

}  // namespace

Fault find_meaning_fault(const Schedule& schedule) {
    for (const bool entry_applied : {false, true}) {
        for (const bool trains : {false, true}) {
            for (const bool exit_applied : {false, true}) {
                if (!trains && exit_applied) continue;
                const Case outcome{entry_applied, trains, exit_applied};
                if (Fault fault = Walk(schedule, outcome).run()) return fault;
            }
        }
    }
    return std::nullopt;
}

}  // namespace headrace::offload
