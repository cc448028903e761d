#include "tests/offload/interleaver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <map>
#include <tuple>
#include <unordered_set>

namespace headrace::offload {

namespace {

constexpr int period_count = 2;
constexpr size_t slot_count_max = 96;
constexpr size_t durable_count_max = 16;

using SlotSet = std::bitset<slot_count_max>;

// Instances: the ops of the first period, then those of the second.
using InstanceSet = std::bitset<period_count * interleaver_op_count_max>;

struct Outcome {
    bool entry_applied = false;
    std::array<bool, period_count> trains = {};
    std::array<bool, period_count> applied = {};  // the verdict given in the period

    // Whether step `step`, counted from the first period, was applied.
    bool is_applied(int step) const {
        if (step < 0) return entry_applied;
        return trains[static_cast<size_t>(step)] && applied[static_cast<size_t>(step)];
    }
};

std::vector<Outcome> all_outcomes(Purpose purpose) {
    if (purpose == Purpose::evaluate) return {Outcome{}};
    std::vector<Outcome> outcomes;
    for (const bool entry : {true, false}) {
        for (const auto& [trains, applied] : {std::pair(true, true), {true, false}, {false, false}})
            for (const bool trains_then : {true, false}) {
                // The exit verdict only adds a demand (the stash), so the stricter one is enough.
                outcomes.push_back({entry, {trains, trains_then}, {applied, trains_then}});
            }
    }
    return outcomes;
}

// --- terms -------------------------------------------------------------------------------------

using Term = uint64_t;

Term mix(Term term, uint64_t word) {
    term = (term ^ word) * 0x9E3779B97F4A7C15u;
    return term ^ (term >> 29);
}

// One input or output of an op: which argument it is, without step and micro-batch.
struct Argument {
    Kind kind = Kind::hi;
    uint32_t of = 0;
    uint8_t use = 0;
    Term term = 0;
    auto operator<=>(const Argument&) const = default;
};

Argument argument_of(const Value& value, Term term) {
    return {value.kind, value.of, value.use, term};
}

// What an op computes, and of what. Layer, part and micro-batch as in Op.
struct Recipe {
    OpKind kind = OpKind::compute;
    Pass pass = Pass::none;
    uint32_t of = 0;  // layer of a compute, part of an update or reduce
    int micro_batch = 0;
    int period = 0;  // which batch is read
    std::vector<Argument> inputs{};

    Term output(const Value& value) const {
        std::vector<Argument> sorted = inputs;
        std::ranges::sort(sorted);
        Term term = mix(mix(1, static_cast<uint64_t>(kind)), static_cast<uint64_t>(pass));
        term = mix(mix(mix(term, of), static_cast<uint64_t>(micro_batch)),
                   static_cast<uint64_t>(period));
        sorted.push_back(argument_of(value, 0));
        for (const Argument& input : sorted) {
            term = mix(mix(term, static_cast<uint64_t>(input.kind)), input.of);
            term = mix(mix(term, input.use), input.term);
        }
        return term;
    }
};

// The two periods as a straight loop: which term each value is. Steps count from the first period.
class Reference {
  public:
    // `kept`: by layer, the homes of what it keeps; none where its backward recomputes.
    Reference(const Workload& workload, const std::vector<std::vector<SlotId>>& kept,
              uint32_t path_count, const Outcome& outcome)
        : workload_(workload), kept_(kept), outcome_(outcome) {
        enter();
        for (int period = 0; period < period_count; ++period) run(period, path_count);
    }

    std::optional<Term> find(const Value& value) const {
        const auto found = terms_.find(key(value));
        if (found == terms_.end()) return std::nullopt;
        return found->second;
    }

    bool evaluates() const { return workload_.purpose == Purpose::evaluate; }

    // From relative to the period to absolute. Evaluation does not move the states on.
    Value absolute(Value value, int period) const {
        const bool is_state = value.kind == Kind::hi || value.kind == Kind::opt;
        if (!evaluates() || !is_state) value.step = add(value.step, period);
        return value;
    }

  private:
    using Key = std::tuple<Kind, uint32_t, uint8_t, int, int>;
    static Key key(const Value& value) {
        return {value.kind, value.of, value.use, value.step, value.micro_batch};
    }
    static int8_t add(int step, int steps) { return static_cast<int8_t>(step + steps); }

    Value part_value(Kind kind, uint32_t part, int step) const {
        return {.kind = kind, .of = part, .step = add(step, 0)};
    }
    uint32_t part_count() const { return static_cast<uint32_t>(workload_.layout.parts.size()); }

    void give(const Recipe& recipe, const Value& value) {
        terms_[key(value)] = recipe.output(value);
    }
    void take(Recipe& recipe, const Value& value) const {
        recipe.inputs.push_back(argument_of(value, terms_.at(key(value))));
    }
    void given(const Value& value) {
        terms_[key(value)] = mix(mix(mix(7, static_cast<uint64_t>(value.kind)), value.of),
                                 static_cast<uint64_t>(value.step));
    }

    void enter() {
        for (uint32_t part = 0; part < part_count(); ++part) {
            given(part_value(Kind::hi, part, evaluates() ? -1 : -2));
            given(part_value(Kind::opt, part, -2));
            if (outcome_.entry_applied) given(part_value(Kind::stash, part, -1));
        }
        given({.kind = Kind::verdict, .step = -1});
        given({.kind = Kind::committed, .step = -2});
    }

    void run(int period, uint32_t path_count) {
        if (!evaluates()) {
            for (uint32_t part = 0; part < part_count(); ++part) update(part, period);
        }
        if (outcome_.trains[static_cast<size_t>(period)] || evaluates()) {
            for (int m = 0; m < static_cast<int>(workload_.micro_batch_count); ++m) {
                for (uint32_t layer = 0; layer < head_layer(workload_); ++layer) {
                    compute(Pass::forward, layer, period, m);
                }
                compute(evaluates() ? Pass::loss : Pass::head, head_layer(workload_), period, m);
                if (evaluates()) continue;
                for (uint32_t layer = head_layer(workload_); layer-- > 0;) {
                    compute(Pass::backward, layer, period, m);
                }
            }
        }
        if (!evaluates()) finish(period, path_count);
    }

    void update(uint32_t part, int period) {
        Recipe recipe{.kind = OpKind::update, .of = part};
        const bool applies = outcome_.is_applied(period - 1);
        if (applies) {
            take(recipe, part_value(Kind::stash, part, period - 1));
            take(recipe, part_value(Kind::hi, part, period - 2));
            take(recipe, part_value(Kind::opt, part, period - 2));
            take(recipe, {.kind = Kind::verdict, .step = add(period, -1)});
        }
        for (const Kind kind : {Kind::hi, Kind::opt}) {
            const Value after = part_value(kind, part, period - 1);
            if (applies) {
                give(recipe, after);
            } else {
                terms_[key(after)] = terms_.at(key(part_value(kind, part, period - 2)));
            }
        }
    }

    void compute(Pass pass, uint32_t layer, int period, int m) {
        const auto boundary = [&](Kind kind, uint32_t number) {
            return Value{.kind = kind,
                         .of = number,
                         .step = add(period, 0),
                         .micro_batch = static_cast<int16_t>(m)};
        };
        Recipe recipe{.pass = pass, .of = layer, .micro_batch = m, .period = period};
        const std::vector<uint32_t> parts = parts_used(workload_.layout, layer);
        const bool differentiates = pass == Pass::backward || pass == Pass::head;
        if (pass != Pass::backward || layer > 0) {
            for (const uint32_t part : parts) {
                take(recipe, part_value(Kind::hi, part, evaluates() ? -1 : period - 1));
            }
        }
        if (layer > 0) take(recipe, boundary(Kind::act, layer));
        if (pass == Pass::backward) take(recipe, boundary(Kind::dact, layer + 1));
        const bool keeps = !evaluates() && !kept_[layer].empty();
        if (keeps && pass == Pass::backward) take(recipe, boundary(Kind::kept, layer));
        std::vector<Value> accs;
        for (const uint32_t part : parts) {
            if (!differentiates) break;
            Value acc = boundary(Kind::acc, part);
            acc.use = workload_.layout.parts[part].layer == layer ? 0 : 1;
            accs.push_back(acc);
            acc.micro_batch = static_cast<int16_t>(m - 1);
            if (m > 0) take(recipe, acc);
        }
        for (const Value& acc : accs) give(recipe, acc);
        if (pass == Pass::forward) give(recipe, boundary(Kind::act, layer + 1));
        if (keeps && pass == Pass::forward) give(recipe, boundary(Kind::kept, layer));
        if (differentiates && layer > 0) give(recipe, boundary(Kind::dact, layer));
    }

    // Reduce, verdict and commit.
    void finish(int period, uint32_t path_count) {
        const Value verdict{.kind = Kind::verdict, .step = add(period, 0)};
        const Value verdict_before{.kind = Kind::verdict, .step = add(period, -1)};
        if (outcome_.trains[static_cast<size_t>(period)]) {
            Recipe judge{.kind = OpKind::verdict, .period = period};
            for (uint32_t part = 0; part < part_count(); ++part) {
                Recipe reduce{.kind = OpKind::reduce, .of = part};
                for (uint8_t use = 0; use < use_count(workload_, part); ++use) {
                    Value acc = part_value(Kind::acc, part, period);
                    acc.use = use;
                    acc.micro_batch = static_cast<int16_t>(workload_.micro_batch_count - 1);
                    take(reduce, acc);
                }
                give(reduce, part_value(Kind::stash, part, period));
                give(reduce, part_value(Kind::norm, part, period));
                take(judge, part_value(Kind::norm, part, period));
            }
            give(judge, verdict);
        } else {
            terms_[key(verdict)] = terms_.at(key(verdict_before));
        }
        for (uint32_t path = 0; path < path_count; ++path) {
            given({.kind = Kind::flushed, .of = path, .step = add(period, -1)});
        }
        given({.kind = Kind::journal, .step = add(period, -1)});
        given({.kind = Kind::committed, .step = add(period, -1)});
    }

    const Workload& workload_;
    const std::vector<std::vector<SlotId>>& kept_;
    const Outcome& outcome_;
    std::map<Key, Term> terms_;
};

// --- instances ---------------------------------------------------------------------------------

// Terms in a state are small numbers; 0 is garbage.
using SmallTerm = uint16_t;

struct Touch {
    uint8_t slot = 0;  // as numbered by Instances
    SmallTerm term = 0;
};

// An op of one of the two periods, under one outcome.
struct Instance {
    OpKind kind = OpKind::fetch;
    bool is_true = false;
    InstanceSet waits_for{};   // must have finished before it starts
    InstanceSet lane_mates{};  // must have started, where lane order counts
    InstanceSet rivals{};      // share bytes with it that one of the two changes
    std::vector<Touch> reads{};
    std::vector<Touch> writes{};
    SlotSet read_slots{};
    SlotSet written_slots{};
    uint32_t path = 0;                    // sync
    std::vector<SmallTerm> generation{};  // record: what each durable place must hold
};

// Where a slot's bytes can be touched by an op of this kind; a copy's lane joins ram with one of
// the other two.
bool is_in_reach(const Op& op, Tier tier) {
    if (op.kind == OpKind::compute || op.kind == OpKind::reduce) return tier == Tier::gpu;
    if (op.kind == OpKind::update || tier == Tier::ram) return tier == Tier::ram;
    if (op.kind != OpKind::fetch && op.kind != OpKind::evict) return true;
    const bool is_drive =
        op.lane.kind == LaneKind::nvme_read || op.lane.kind == LaneKind::nvme_write;
    return tier == (is_drive ? Tier::nvme : Tier::gpu);
}

// Turns a schedule into instances under one outcome, or finds an op that is wrong by itself.
class Instances {
  public:
    Instances(const Schedule& schedule, const SlotTable& table, const Outcome& outcome)
        : schedule_(schedule),
          table_(table),
          outcome_(outcome),
          reference_(schedule.workload, table.kept, schedule.path_count, outcome) {
        CHECK_LE(schedule.ops.size(), interleaver_op_count_max);
        CHECK_GT(schedule.ops.size(), 0u);
        number_slots();
        for (int period = 0; period < period_count; ++period) {
            for (const Op& op : schedule.ops) list_.push_back(make(op, period));
        }
        for (Instance& instance : list_) {
            for (const Touch& read : instance.reads) instance.read_slots.set(read.slot);
            for (const Touch& write : instance.writes) instance.written_slots.set(write.slot);
        }
        connect();
        find_rivals();
        check_losses();
    }

    const std::vector<Instance>& list() const { return list_; }
    const std::optional<std::string>& violation() const { return violation_; }
    size_t slot_count() const { return numbers_.size(); }
    // Durable places by their slot numbers.
    const std::vector<uint8_t>& durable() const { return durable_; }
    const Op& op_of(size_t instance) const {
        return schedule_.ops[instance % schedule_.ops.size()];
    }
    uint32_t path_count() const { return schedule_.path_count; }

    // What the homes hold before the first period (`after` false) or must hold after the last.
    std::vector<Touch> homes(bool after) {
        std::vector<Touch> homes;
        const int period = after ? period_count : 0;
        const auto add = [&](SlotId slot, Value value) {
            if (slot == no_slot) return;
            value = reference_.absolute(value, period);
            const auto term = reference_.find(value);
            if (term) homes.push_back({number_of(slot), small(*term)});
        };
        const int8_t state_step = reference_.evaluates() ? -1 : -2;
        for (uint32_t part = 0; part < schedule_.workload.layout.parts.size(); ++part) {
            add(table_.hi[part], {.kind = Kind::hi, .of = part, .step = state_step});
            add(table_.opt[part], {.kind = Kind::opt, .of = part, .step = -2});
            if (schedule_.path_count > 0) {
                add(table_.hi_mirror[part], {.kind = Kind::hi, .of = part, .step = -2});
                add(table_.opt_mirror[part], {.kind = Kind::opt, .of = part, .step = -2});
            }
            if (reference_.evaluates()) continue;
            if (after && !outcome_.is_applied(period_count - 1)) continue;
            add(table_.stash[part], {.kind = Kind::stash, .of = part, .step = -1});
        }
        if (reference_.evaluates()) return homes;
        add(table_.verdict, {.kind = Kind::verdict, .step = -1});
        if (schedule_.path_count > 0) add(table_.committed, {.kind = Kind::committed, .step = -2});
        return homes;
    }

  private:
    void number_slots() {
        numbers_.assign(schedule_.slots.size(), 0);
        CHECK_LE(schedule_.slots.size(), slot_count_max);
        for (SlotId slot = 0; slot < schedule_.slots.size(); ++slot) {
            numbers_[slot] = static_cast<uint8_t>(slot);
            const bool has_generations =
                schedule_.path_count > 0 && is_durable(schedule_.slots[slot].copies);
            if (has_generations) durable_.push_back(numbers_[slot]);
        }
        CHECK_LE(durable_.size(), durable_count_max);
    }

    uint8_t number_of(SlotId slot) const { return numbers_.at(slot); }

    SmallTerm small(Term term) {
        const auto [entry, is_new] =
            small_.try_emplace(term, static_cast<SmallTerm>(small_.size() + 1));
        CHECK(!is_new || small_.size() < 65535);
        return entry->second;
    }

    void say(const Op& op, const std::string& text) {
        if (!violation_) violation_ = fmt::format("{} {}", describe(schedule_, op), text);
    }

    bool holds(const Guard& guard, int period) const {
        return (!guard.needs_train || outcome_.trains[static_cast<size_t>(period)]) &&
               (!guard.needs_applied || outcome_.is_applied(period - 1));
    }

    Instance make(const Op& op, int period) {
        Instance instance{.kind = op.kind, .is_true = holds(op.guard, period)};
        if (op.guard.needs_applied) read_verdict(instance, op, period);
        if (!instance.is_true) return instance;
        Recipe recipe{.kind = op.kind};
        std::optional<Term> copied;
        for (const Access& access : op.accesses) {
            check_reach(op, access);
            if (access.mode == Mode::write) continue;
            const auto term = reference_.find(reference_.absolute(access.value, period));
            if (!term) {
                say(op, "names a value that does not exist: " + describe(access.value));
                continue;
            }
            instance.reads.push_back({number_of(access.slot), small(*term)});
            if (is_control(access.value.kind) && access.value.kind != Kind::norm &&
                op.kind != OpKind::update) {
                continue;  // read for its order only
            }
            recipe.inputs.push_back(argument_of(access.value, *term));
            if (!copied) copied = term;
        }
        fill_recipe(recipe, op, period);
        for (const Access& access : op.accesses) {
            if (access.mode == Mode::write) write(instance, op, access, recipe, copied, period);
        }
        if (op.kind == OpKind::record) name_generation(instance, period);
        return instance;
    }

    // A guard is evaluated from the verdict's slot, whether or not the op says so.
    void read_verdict(Instance& instance, const Op& op, int period) {
        const auto term =
            reference_.find(reference_.absolute({.kind = Kind::verdict, .step = -1}, period));
        if (!term) return say(op, "waits for a verdict that does not exist");
        instance.reads.push_back({number_of(table_.verdict), small(*term)});
    }

    static void fill_recipe(Recipe& recipe, const Op& op, int period) {
        recipe.pass = op.kind == OpKind::compute ? op.pass : Pass::none;
        if (op.kind == OpKind::compute) {
            recipe.of = op.layer;
            recipe.micro_batch = op.micro_batch;
        }
        if (op.kind == OpKind::update || op.kind == OpKind::reduce) recipe.of = op.part;
        if (op.kind == OpKind::compute || op.kind == OpKind::verdict) recipe.period = period;
    }

    void write(Instance& instance, const Op& op, const Access& access, const Recipe& recipe,
               const std::optional<Term>& copied, int period) {
        const auto named = reference_.find(reference_.absolute(access.value, period));
        if (!named) return say(op, "writes a value that does not exist");
        const bool copies = op.kind == OpKind::fetch || op.kind == OpKind::evict;
        const bool commits =
            op.kind == OpKind::sync || op.kind == OpKind::record || op.kind == OpKind::seal;
        if (copies && !copied) return say(op, "has nothing to copy");
        Term term = commits ? *named : recipe.output(access.value);
        if (copies) term = *copied;
        if (term != *named)
            return say(op, "computes something else than " + describe(access.value));
        for (const Touch& other : instance.writes) {
            if (other.slot == number_of(access.slot)) say(op, "writes one slot twice");
        }
        instance.writes.push_back({number_of(access.slot), small(term)});
        if (op.kind == OpKind::sync) instance.path = access.value.of;
    }

    // What no interleaving can mend: bytes out of reach or too few of them, and an output over an
    // input, which only an accumulator and an update bear.
    void check_reach(const Op& op, const Access& access) {
        const Slot& slot = schedule_.slots[access.slot];
        if (is_control(access.value.kind)) return;
        if (!is_in_reach(op, slot.tier)) say(op, "touches a tier that it cannot reach");
        if (slot.size_bytes < bytes_of_value(schedule_.workload, access.value)) {
            say(op, "touches bytes outside its slot");
        }
        if (access.mode == Mode::read) return;
        for (const Access& other : op.accesses) {
            if (other.mode == Mode::write || other.slot != access.slot) continue;
            const bool in_place = access.value.kind == other.value.kind &&
                                  access.value.of == other.value.of &&
                                  (op.kind == OpKind::update || access.value.kind == Kind::acc);
            if (!in_place) say(op, "writes over what it reads");
        }
    }

    void name_generation(Instance& instance, int period) {
        for (const uint8_t slot : durable_) {
            for (uint32_t part = 0; part < schedule_.workload.layout.parts.size(); ++part) {
                for (const Kind kind : {Kind::hi, Kind::opt}) {
                    const bool is_hi = kind == Kind::hi;
                    const SlotId home = is_hi ? table_.hi[part] : table_.opt[part];
                    const SlotId mirror = is_hi ? table_.hi_mirror[part] : table_.opt_mirror[part];
                    if (number_of(mirror == no_slot ? home : mirror) != slot) continue;
                    const Value value{.kind = kind, .of = part, .step = -1};
                    instance.generation.push_back(
                        small(*reference_.find(reference_.absolute(value, period))));
                }
            }
        }
        CHECK_EQ(instance.generation.size(), durable_.size());
    }

    void connect() {
        const size_t op_count = schedule_.ops.size();
        for (const Edge& edge : schedule_.edges) {
            for (size_t period = edge.distance; period < period_count; ++period) {
                list_[edge.target + period * op_count].waits_for.set(
                    edge.source + (period - edge.distance) * op_count);
            }
        }
        for (size_t later = 0; later < list_.size(); ++later) {
            for (size_t earlier = 0; earlier < later; ++earlier) {
                if (!is_in_order(op_of(later).lane.kind)) break;
                if (op_of(later).lane == op_of(earlier).lane) list_[later].lane_mates.set(earlier);
            }
        }
    }

    void find_rivals() {
        for (size_t one = 0; one < list_.size(); ++one) {
            for (size_t other = 0; other < one; ++other) {
                if (!are_rivals(list_[one], list_[other])) continue;
                list_[one].rivals.set(other);
                list_[other].rivals.set(one);
            }
        }
    }

    bool are_rivals(const Instance& one, const Instance& other) const {
        if ((one.written_slots & (other.read_slots | other.written_slots)).any()) return true;
        if ((one.read_slots & other.written_slots).any()) return true;
        // A commit looks at all durable places; syncs of two paths do not see each other.
        if (one.kind == OpKind::sync && other.kind == OpKind::sync) return false;
        return (commits(one) && touches_commits(other)) || (commits(other) && touches_commits(one));
    }

    static bool commits(const Instance& instance) {
        return instance.kind == OpKind::sync || instance.kind == OpKind::record ||
               instance.kind == OpKind::seal;
    }

    bool touches_commits(const Instance& instance) const {
        return commits(instance) || std::ranges::any_of(instance.writes, [&](const Touch& write) {
                   return std::ranges::find(durable_, write.slot) != durable_.end();
               });
    }

    // Each micro-batch's loss is added exactly once.
    void check_losses() {
        std::vector<int> counts(schedule_.workload.micro_batch_count, 0);
        for (const Op& op : schedule_.ops) {
            if (op.kind != OpKind::compute || (op.pass != Pass::head && op.pass != Pass::loss)) {
                continue;
            }
            if (op.micro_batch >= 0 && static_cast<size_t>(op.micro_batch) < counts.size()) {
                ++counts[static_cast<size_t>(op.micro_batch)];
            }
        }
        const bool once = std::ranges::all_of(counts, [](int count) { return count == 1; });
        if (!once && !violation_) violation_ = "a micro-batch's loss is not added exactly once";
    }

    const Schedule& schedule_;
    const SlotTable& table_;
    const Outcome& outcome_;
    Reference reference_;
    std::vector<uint8_t> numbers_;
    std::vector<uint8_t> durable_;
    std::map<Term, SmallTerm> small_;
    std::vector<Instance> list_;
    std::optional<std::string> violation_;
};

// --- search ------------------------------------------------------------------------------------

// A durable place: which of its copies must survive a loss of power, and which paths may lose it.
struct Durable {
    uint8_t committed_in_spare = 0;  // the last durable commit names the spare
    uint8_t recorded_in_spare = 0;   // so does a record under way
    uint8_t dirty_paths = 0;         // bit set: not flushed since the last write
    uint8_t flushing_paths = 0;      // bit set: their sync began after that write
    bool operator==(const Durable&) const = default;
};

struct State {
    InstanceSet started{};
    InstanceSet finished{};
    std::array<SmallTerm, slot_count_max> content = {};
    std::array<Durable, durable_count_max> durable = {};
    bool operator==(const State&) const = default;
};

struct StateHash {
    size_t operator()(const State& state) const {
        const std::hash<InstanceSet> hash_of_set;
        uint64_t hash = mix(hash_of_set(state.started), hash_of_set(state.finished));
        for (const SmallTerm term : state.content) hash = mix(hash, term);
        for (const Durable& place : state.durable) {
            hash = mix(hash, place.committed_in_spare * 2u + place.recorded_in_spare);
            hash = mix(hash, place.dirty_paths * 256u + place.flushing_paths);
        }
        return hash;
    }
};

class Search {
  public:
    Search(Instances& instances, const InterleaverOptions& options)
        : instances_(instances), list_(instances.list()), options_(options) {}

    Finding run() {
        Finding finding;
        if (instances_.violation()) return {.violation = instances_.violation()};
        State first;
        for (const Touch& home : instances_.homes(false)) first.content[home.slot] = home.term;
        const std::vector<Touch> exit = instances_.homes(true);
        std::vector<State> open = {first};
        std::unordered_set<State, StateHash> seen = {first};
        while (!open.empty() && !violation_) {
            if (seen.size() > options_.state_count_max) {
                finding.is_complete = false;
                break;
            }
            const State state = open.back();
            open.pop_back();
            if (state.finished.count() == list_.size()) {
                check_exit(state, exit);
                continue;
            }
            const std::vector<State> successors = successors_of(state);
            if (successors.empty() && !violation_) violation_ = "nothing can start any more";
            for (const State& next : successors) {
                if (seen.insert(next).second) open.push_back(next);
            }
        }
        finding.violation = violation_;
        finding.state_count = seen.size();
        return finding;
    }

  private:
    // Finishes first, then starts in list order: the search pops the last, so it tries the boldest
    // overtaking first and finds most violations at once.
    std::vector<State> successors_of(const State& state) {
        const InstanceSet moves = moves_of(state);
        std::vector<State> successors;
        for (const bool starts : {false, true}) {
            for (size_t i = 0; i < list_.size() && !violation_; ++i) {
                if (!moves.test(i) || state.started.test(i) == starts) continue;
                successors.push_back(starts ? start(state, i) : finish(state, i));
            }
        }
        return successors;
    }

    bool can_move(const State& state, size_t id) const {
        if (state.finished.test(id)) return false;
        return state.started.test(id) || hindrance(state, id).none();
    }

    // What must move before the instance can start.
    InstanceSet hindrance(const State& state, size_t id) const {
        InstanceSet hindrance = list_[id].waits_for & ~state.finished;
        if (options_.lane_order == LaneOrder::in_list) {
            hindrance |= list_[id].lane_mates & ~state.started;
        }
        return hindrance;
    }

    // The instances to move next: all that can, or the fewest that stand for all (see the header).
    InstanceSet moves_of(const State& state) const {
        InstanceSet able;
        for (size_t i = 0; i < list_.size(); ++i) able.set(i, can_move(state, i));
        if (options_.reduction == Reduction::none) return able;
        InstanceSet fewest = able;
        for (size_t i = able._Find_first(); i < able.size() && fewest.count() > 1;
             i = able._Find_next(i)) {
            const InstanceSet moves = stubborn_set(state, able, i) & able;
            if (moves.count() < fewest.count()) fewest = moves;
        }
        return fewest;
    }

    // Grown from one instance that can move: with each that can, all its unfinished rivals; with
    // each that cannot, one that it needs first.
    InstanceSet stubborn_set(const State& state, const InstanceSet& able, size_t seed) const {
        InstanceSet set;
        std::vector<size_t> open = {seed};
        set.set(seed);
        const auto add = [&](size_t id) {
            open.push_back(id);
            set.set(id);
        };
        while (!open.empty()) {
            const size_t id = open.back();
            open.pop_back();
            if (able.test(id)) {
                const InstanceSet rivals = list_[id].rivals & ~state.finished & ~set;
                for (size_t i = rivals._Find_first(); i < rivals.size(); i = rivals._Find_next(i)) {
                    add(i);
                }
                continue;
            }
            const InstanceSet needed = hindrance(state, id);
            if ((needed & set).any()) continue;
            add(needed._Find_first());
        }
        return set;
    }

    State start(State state, size_t id) {
        const Instance& instance = list_[id];
        for (const Touch& read : instance.reads) {
            if (state.content[read.slot] != read.term)
                say(id, "starts to read another value", read);
        }
        if (!instance.is_true) {
            state.started.set(id);
            state.finished.set(id);
            return state;
        }
        const InstanceSet running_rivals = instance.rivals & state.started & ~state.finished;
        for (size_t other = 0; other < list_.size() && running_rivals.any(); ++other) {
            if (!running_rivals.test(other)) continue;
            const SlotSet shared = instance.written_slots & list_[other].written_slots;
            if (shared.any()) say(id, "writes where another op does", instance.writes.front());
        }
        for (const Touch& write : instance.writes) {
            state.content[write.slot] = 0;
            if (Durable* place = durable_at(state, write.slot)) {
                if (place->committed_in_spare || place->recorded_in_spare) {
                    say(id, "destroys what a commit names", write);
                }
            }
        }
        if (instance.kind == OpKind::sync) begin_sync(state, instance.path);
        if (instance.kind == OpKind::record) begin_record(state, id);
        state.started.set(id);
        return state;
    }

    State finish(State state, size_t id) {
        const Instance& instance = list_[id];
        for (const Touch& read : instance.reads) {
            const bool in_place = std::ranges::any_of(
                instance.writes, [&](const Touch& write) { return write.slot == read.slot; });
            if (!in_place && state.content[read.slot] != read.term) {
                say(id, "has its input changed under it", read);
            }
        }
        for (const Touch& write : instance.writes) {
            state.content[write.slot] = write.term;
            if (Durable* place = durable_at(state, write.slot)) flip(*place);
        }
        if (instance.kind == OpKind::sync) end_sync(state, instance.path);
        if (instance.kind == OpKind::seal) end_seal(state);
        state.finished.set(id);
        return state;
    }

    Durable* durable_at(State& state, uint8_t slot) const {
        const auto found = std::ranges::find(instances_.durable(), slot);
        if (found == instances_.durable().end()) return nullptr;
        return &state.durable[static_cast<size_t>(found - instances_.durable().begin())];
    }

    // The write went to the spare; it is the truth now, and what was the truth is the spare.
    void flip(Durable& place) const {
        place.committed_in_spare = 1;
        place.recorded_in_spare = 1;
        place.dirty_paths = static_cast<uint8_t>((1u << instances_.path_count()) - 1);
        place.flushing_paths = 0;
    }

    static uint8_t path_bit(uint32_t path) {
        CHECK_LT(path, 8u);
        return static_cast<uint8_t>(1u << path);
    }

    void begin_sync(State& state, uint32_t path) const {
        for (size_t i = 0; i < instances_.durable().size(); ++i) {
            state.durable[i].flushing_paths |= path_bit(path);
        }
    }

    void end_sync(State& state, uint32_t path) const {
        for (size_t i = 0; i < instances_.durable().size(); ++i) {
            Durable& place = state.durable[i];
            const int flushed = place.flushing_paths & path_bit(path);
            place.dirty_paths = static_cast<uint8_t>(place.dirty_paths & ~flushed);
            place.flushing_paths = static_cast<uint8_t>(place.flushing_paths & ~flushed);
        }
    }

    // From here on a loss of power may find this record.
    void begin_record(State& state, size_t id) {
        for (size_t i = 0; i < instances_.durable().size(); ++i) {
            const uint8_t slot = instances_.durable()[i];
            const Touch place{slot, list_[id].generation[i]};
            if (state.content[slot] != place.term) say(id, "names another generation", place);
            if (state.durable[i].dirty_paths != 0)
                say(id, "names bytes that are not flushed", place);
            state.durable[i].recorded_in_spare = 0;
        }
    }

    void end_seal(State& state) const {
        for (size_t i = 0; i < instances_.durable().size(); ++i) {
            state.durable[i].committed_in_spare = state.durable[i].recorded_in_spare;
        }
    }

    void check_exit(const State& state, const std::vector<Touch>& exit) {
        for (const Touch& home : exit) {
            if (state.content[home.slot] == home.term || violation_) continue;
            violation_ = fmt::format("slot {} is left with another value", home.slot);
        }
    }

    void say(size_t id, const std::string& text, const Touch& touch) {
        if (violation_) return;
        violation_ = fmt::format(
            "op {} of period {} (kind {}) {} in slot {}", id % (list_.size() / period_count),
            id / (list_.size() / period_count), name_of(list_[id].kind), text, touch.slot);
    }

    Instances& instances_;
    const std::vector<Instance>& list_;
    const InterleaverOptions options_;
    std::optional<std::string> violation_;
};

}  // namespace

Finding interleave(const Schedule& schedule, const SlotTable& table,
                   const InterleaverOptions& options) {
    Finding total;
    for (const Outcome& outcome : all_outcomes(schedule.workload.purpose)) {
        Instances instances(schedule, table, outcome);
        Finding finding = Search(instances, options).run();
        finding.state_count += total.state_count;
        finding.is_complete = finding.is_complete && total.is_complete;
        total = finding;
        if (total.violation) break;
    }
    return total;
}

}  // namespace headrace::offload
