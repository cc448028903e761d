// Goal: every plan at every timing leaves the same bits. Method: the real loop on a backend whose
// slots hold numbers. A copy copies; every other op writes hashes of what it reads, by rules that
// know what training means and nothing of slots, lists or tiers. Ops read at their start or at
// their end and complete in seeded random order. What the homes hold at the end, and every verdict
// on the way, must be what plain loops over the layers give (straight_run below).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "offload/build.h"
#include "offload/run.h"
#include "tests/offload/mixed_cases.h"

namespace headrace::offload {
namespace {

using Number = uint64_t;
constexpr Number garbage = 0xDEADBEEF;

Number mix(std::initializer_list<Number> numbers) {
    Number sum = 0x9E3779B97F4A7C15;
    for (const Number number : numbers) {
        sum = (sum ^ number) * 0xBF58476D1CE4E5B9;
        sum ^= sum >> 29;
    }
    return sum;
}

// --- what training means -----------------------------------------------------------------------

Number initial(Kind kind, uint32_t part) {
    return mix({1, static_cast<Number>(kind), part});
}
Number updated_hi(Number hi, Number opt, Number stash) {
    return mix({2, hi, opt, stash});
}
Number updated_opt(Number hi, Number opt, Number stash) {
    return mix({3, hi, opt, stash});
}
// Of a layer: `input` is the boundary before it, 0 for the embedding.
Number activation(Number weights, Number input, int64_t period, int micro_batch) {
    return mix(
        {4, weights, input, input == 0 ? static_cast<Number>(period * 1000 + micro_batch) : 0});
}
Number kept_of(Number weights, Number input) {
    return mix({5, weights, input});
}
Number gradient_of_input(Number weights, Number input, Number gradient) {
    return mix({6, weights, input, gradient});
}
Number accumulated(Number before, Number weights, Number input, Number gradient, uint32_t part) {
    return mix({7, before, weights, input, gradient, part});
}
Number reduced(Number own, Number other) {
    return mix({8, own, other});
}
Number norm_of(Number stash) {
    return mix({9, stash});
}
Verdict verdict_of(const std::vector<Number>& norms) {
    Number sum = 10;
    for (const Number norm : norms) sum = mix({sum, norm});
    return sum % 4 == 0 ? Verdict::skip : Verdict::apply;
}

// What is left of a run: by part.
struct Bits {
    std::vector<Number> hi, opt;
    std::vector<Verdict> verdicts;
    int stale_mirror_count = 0;  // that do not hold what their homes do
    bool operator==(const Bits&) const = default;
};

// The straight run: whole layers, one micro-batch after another, the update after the verdict.
class StraightRun {
  public:
    explicit StraightRun(const Workload& workload) : workload_(workload) {
        for (uint32_t part = 0; part < part_count(); ++part) {
            result_.hi.push_back(initial(Kind::hi, part));
            result_.opt.push_back(initial(Kind::opt, part));
            stash_.push_back(initial(Kind::stash, part));
        }
    }

    Bits run(int64_t period_count) {
        update();  // an applied step is pending before the first
        for (int64_t period = 0; period < period_count; ++period) {
            accs_.clear();
            for (uint32_t m = 0; m < workload_.micro_batch_count; ++m) train(period, m);
            std::vector<Number> norms;
            for (uint32_t part = 0; part < part_count(); ++part) {
                const auto other = accs_.find({part, 1});
                stash_[part] =
                    reduced(accs_.at({part, 0}), other == accs_.end() ? 0 : other->second);
                norms.push_back(norm_of(stash_[part]));
            }
            result_.verdicts.push_back(verdict_of(norms));
            if (result_.verdicts.back() == Verdict::apply) update();
        }
        return result_;
    }

  private:
    uint32_t part_count() const { return static_cast<uint32_t>(workload_.layout.parts.size()); }

    void update() {
        for (uint32_t part = 0; part < part_count(); ++part) {
            const Number hi = result_.hi[part];
            const Number opt = result_.opt[part];
            result_.hi[part] = updated_hi(hi, opt, stash_[part]);
            result_.opt[part] = updated_opt(hi, opt, stash_[part]);
        }
    }

    Number weights(uint32_t layer) const {
        Number sum = 0;
        for (const uint32_t part : parts_used(workload_.layout, layer)) {
            sum = mix({sum, result_.hi[part]});
        }
        return sum;
    }

    void train(int64_t period, uint32_t micro_batch) {
        const uint32_t head = head_layer(workload_);
        std::vector<Number> inputs = {0};
        for (uint32_t layer = 0; layer < head; ++layer) {
            inputs.push_back(
                activation(weights(layer), inputs[layer], period, static_cast<int>(micro_batch)));
        }
        Number gradient = 0;
        for (uint32_t layer = head + 1; layer-- > 0;) {
            // The embedding's gradient needs no weights.
            const Number own = layer == 0 ? 0 : weights(layer);
            for (const uint32_t part : parts_used(workload_.layout, layer)) {
                Number& acc = accs_[{part, use_in(workload_, part, layer)}];
                acc = accumulated(acc, own, inputs[layer], gradient, part);
            }
            gradient = gradient_of_input(own, inputs[layer], gradient);
        }
    }

    const Workload& workload_;
    Bits result_;
    std::vector<Number> stash_;
    std::map<std::pair<uint32_t, uint8_t>, Number> accs_;  // by part and use
};

// --- the same by ops on slots ------------------------------------------------------------------

class NumberBackend final : public Backend {
  public:
    NumberBackend(const Schedule& schedule, uint64_t seed)
        : schedule_(schedule), random_(seed), contents_(schedule.slots.size(), garbage) {
        for (size_t slot = 0; slot < schedule.slots.size(); ++slot) {
            const Slot& home = schedule.slots[slot];
            const bool is_known =
                home.kind == Kind::hi || home.kind == Kind::opt || home.kind == Kind::stash;
            if ((home.is_home || home.is_mirror) && is_known) {
                contents_[slot] = initial(home.kind, home.of);
            }
        }
    }

    Status open(const Period&) override { return {}; }
    Status close(const Period&) override { return {}; }
    bool can_start(LaneKind) const override { return flying_.size() < 8; }

    // What is written is garbage from the start of the op to its end.
    void start(const Ticket& ticket) override {
        Flight flight{.ticket = ticket};
        const Op& op = schedule_.ops[ticket.op];
        flight.reads_at_start = random_() % 2 == 0 || writes_what_it_reads(op);
        if (flight.reads_at_start) flight.read = read(op);
        for (const Access& access : op.accesses) {
            if (access.mode == Mode::write) contents_[access.slot] = garbage;
        }
        flying_.push_back(std::move(flight));
    }

    Completion wait() override {
        std::swap(flying_[random_() % flying_.size()], flying_.back());
        Flight flight = std::move(flying_.back());
        flying_.pop_back();
        const Op& op = schedule_.ops[flight.ticket.op];
        if (!flight.reads_at_start) flight.read = read(op);
        Completion completion{.ticket = flight.ticket, .status = {}};
        if (op.kind == OpKind::verdict) {
            completion.verdict = verdict_of(flight.read);
            verdicts.push_back(completion.verdict);
        }
        write(op, flight);
        return completion;
    }

    Bits bits() const {
        Bits bits{.hi = {}, .opt = {}, .verdicts = verdicts};
        for (size_t slot = 0; slot < schedule_.slots.size(); ++slot) {
            const Slot& home = schedule_.slots[slot];
            if (!home.is_home) continue;
            if (home.kind != Kind::hi && home.kind != Kind::opt) continue;
            std::vector<Number>& of = home.kind == Kind::hi ? bits.hi : bits.opt;
            of.resize(std::max<size_t>(of.size(), home.of + 1), garbage);
            of[home.of] = contents_[slot];
        }
        for (size_t slot = 0; slot < schedule_.slots.size(); ++slot) {
            const Slot& mirror = schedule_.slots[slot];
            if (!mirror.is_mirror) continue;
            const auto& of = mirror.kind == Kind::hi ? bits.hi : bits.opt;
            if (contents_[slot] != of[mirror.of]) ++bits.stale_mirror_count;
        }
        return bits;
    }

    std::vector<Verdict> verdicts;

  private:
    struct Flight {
        Ticket ticket;
        bool reads_at_start = false;
        std::vector<Number> read = {};  // in the order of accesses
    };

    static bool writes_what_it_reads(const Op& op) {
        return std::ranges::any_of(op.accesses, [&](const Access& write) {
            return write.mode == Mode::write &&
                   std::ranges::any_of(op.accesses, [&](const Access& read) {
                       return read.mode == Mode::read && read.slot == write.slot;
                   });
        });
    }

    std::vector<Number> read(const Op& op) const {
        std::vector<Number> numbers;
        for (const Access& access : op.accesses) {
            if (access.mode == Mode::read) numbers.push_back(contents_[access.slot]);
        }
        return numbers;
    }

    // The number that was read for the first access of this kind (and part), or 0.
    Number find(const Op& op, const Flight& flight, Kind kind, uint32_t of = no_slot) const {
        size_t next = 0;
        for (const Access& access : op.accesses) {
            if (access.mode != Mode::read) continue;
            const Number number = flight.read[next++];
            if (access.value.kind == kind && (of == no_slot || access.value.of == of)) {
                return number;
            }
        }
        return 0;
    }

    Number weights(const Op& op, const Flight& flight) const {
        Number sum = 0;
        size_t next = 0;
        for (const Access& access : op.accesses) {
            if (access.mode != Mode::read) continue;
            const Number number = flight.read[next++];
            if (access.value.kind == Kind::hi) sum = mix({sum, number});
        }
        return sum;
    }

    void write(const Op& op, const Flight& flight) {
        for (const Access& access : op.accesses) {
            if (access.mode == Mode::write) contents_[access.slot] = made(op, flight, access.value);
        }
    }

    Number made(const Op& op, const Flight& flight, const Value& value) const {
        switch (op.kind) {
            case OpKind::fetch:
            case OpKind::evict: return flight.read.at(0);
            case OpKind::update: {
                const Number hi = find(op, flight, Kind::hi);
                const Number opt = find(op, flight, Kind::opt);
                const Number stash = find(op, flight, Kind::stash);
                return value.kind == Kind::hi ? updated_hi(hi, opt, stash)
                                              : updated_opt(hi, opt, stash);
            }
            case OpKind::compute: return computed(op, flight, value);
            case OpKind::reduce: {
                const Number own = flight.read.at(0);
                const Number stash = reduced(own, flight.read.size() > 1 ? flight.read[1] : 0);
                return value.kind == Kind::stash ? stash : norm_of(stash);
            }
            case OpKind::verdict:
            case OpKind::sync:
            case OpKind::record:
            case OpKind::seal: return 0;
        }
        CHECK(false);
    }

    Number computed(const Op& op, const Flight& flight, const Value& value) const {
        const Number own = weights(op, flight);
        const Number input = find(op, flight, Kind::act);
        const Number gradient = find(op, flight, Kind::dact);
        switch (value.kind) {
            case Kind::act: return activation(own, input, flight.ticket.period, op.micro_batch);
            case Kind::kept: return kept_of(own, input);
            case Kind::dact:
            case Kind::acc: {
                const bool keeps = find_access(op, Kind::kept, Mode::read) != nullptr;
                const bool is_right = !keeps || find(op, flight, Kind::kept) == kept_of(own, input);
                if (!is_right) return garbage;
                if (value.kind == Kind::dact) return gradient_of_input(own, input, gradient);
                const Number before = find(op, flight, Kind::acc, value.of);
                return accumulated(before, own, input, gradient, value.of);
            }
            default: CHECK(false);
        }
    }

    const Schedule& schedule_;
    std::mt19937_64 random_;
    std::vector<Number> contents_;
    std::vector<Flight> flying_;
};

constexpr int64_t training_periods = 5;

Bits run_bits(const Schedule& schedule, uint64_t seed) {
    NumberBackend backend(schedule, seed);
    int64_t next = 0;
    const RunOptions options{.next_period = [&]() -> std::optional<Period> {
                                 const int64_t index = next++;  // the last one is a drain
                                 if (index > training_periods) return std::nullopt;
                                 return Period{.index = index, .trains = index < training_periods};
                             },
                             .verdict_before = Verdict::apply};
    EXPECT_TRUE(run(schedule, backend, options).ok());
    return backend.bits();
}

// A quarter of all runs each, so that they share a machine's cores.
class AnyTiming : public testing::TestWithParam<uint64_t> {};

constexpr int plans_per_test = 500;
constexpr int timings_per_plan = 5;

// HEADRACE_SEED=... replays a failure or widens the sample.
TEST_P(AnyTiming, EveryPlanLeavesTheSameBits) {
    const char* chosen = std::getenv("HEADRACE_SEED");
    const uint64_t seed = chosen == nullptr ? GetParam() : std::strtoull(chosen, nullptr, 10);
    Dice dice(seed);
    int skipped = 0;
    int applied = 0;
    for (int number = 0; number < plans_per_test; ++number) {
        SCOPED_TRACE("HEADRACE_SEED=" + std::to_string(seed) + ", plan " + std::to_string(number));
        auto [workload, plan] = mixed_case(dice);
        workload.purpose = Purpose::train;
        const Schedule schedule = *build(workload, plan);
        const Bits expected = StraightRun(workload).run(training_periods);
        for (const Verdict verdict : expected.verdicts) {
            ++(verdict == Verdict::skip ? skipped : applied);
        }
        for (int timing = 0; timing < timings_per_plan; ++timing) {
            const auto timing_seed = static_cast<uint64_t>(number * timings_per_plan + timing);
            const Bits bits = run_bits(schedule, seed * 1'000'003 + timing_seed);
            ASSERT_EQ(bits.verdicts, expected.verdicts);
            ASSERT_EQ(bits.hi, expected.hi);
            ASSERT_EQ(bits.opt, expected.opt);
            ASSERT_EQ(bits.stale_mirror_count, 0);
        }
    }
    EXPECT_GT(skipped, plans_per_test / 2);
    EXPECT_GT(applied, plans_per_test);
}

// The judge itself can fail: edges of a plan are taken away, one at a time, and many are missed.
TEST(AnyTimingJudge, SeesMissingEdges) {
    Dice dice(5);
    int seen = 0;
    int missing = 0;
    for (int number = 0; number < 20; ++number) {
        auto [workload, plan] = mixed_case(dice);
        workload.purpose = Purpose::train;
        const Schedule whole = *build(workload, plan);
        const Bits expected = StraightRun(workload).run(training_periods);
        for (size_t edge = 0; edge < whole.edges.size(); edge += 7) {
            Schedule schedule = whole;
            schedule.edges.erase(schedule.edges.begin() + static_cast<std::ptrdiff_t>(edge));
            bool is_seen = false;
            for (uint64_t timing = 0; timing < 10 && !is_seen; ++timing) {
                is_seen = run_bits(schedule, timing) != expected;
            }
            seen += is_seen ? 1 : 0;
            ++missing;
        }
    }
    EXPECT_GT(missing, 100);
    EXPECT_GT(seen, missing / 5);
    EXPECT_LT(seen, missing);  // some edges are implied by others
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyTiming, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace headrace::offload
