#include "offload/fastest.h"

#include <algorithm>

#include "offload/build.h"

namespace headrace::offload {

namespace {

// A candidate must promise this much to be simulated beside a better one.
constexpr double worth_simulating = 0.995;
// And this much, if it is the same choice with a neighbouring share of updates computed twice.
constexpr double worth_following = 0.999;
// Ripples of the step over that share are this wide, in steps of twice_grid.
constexpr int misses_max = 2;
// The bound counts bytes and rates, not how far ahead a ring reads. With one slot the step is above
// it by about this share, and by less with more.
constexpr double wait_of_one_slot = 0.04;
// A step this near to its bound is not made shorter by another share of updates computed twice.
constexpr double is_at_bound = 1.003;

class Race {
  public:
    explicit Race(Room& room)
        : room_(room), question_(room.question()), best_s_(question_.worth_s) {}

    std::vector<Candidate> run(std::vector<Promise> promises) {
        std::ranges::stable_sort(promises, {}, expected_s);
        for (const Promise& one : promises) {
            if (is_over()) break;
            if (is_worth_simulating(one.bound_s)) enter(one);
        }
        CHECK_LE(candidates_.size(), question_.simulation_count_max);
        std::ranges::stable_sort(
            candidates_, {}, [](const Candidate& candidate) { return candidate.forecast.step_s; });
        return std::move(candidates_);
    }

  private:
    static double expected_s(const Promise& one) {
        return one.bound_s * (1 + wait_of_one_slot / one.choice.ring_slots);
    }
    bool is_over() const { return candidates_.size() >= question_.simulation_count_max; }
    bool is_worth_simulating(double bound_s) const { return bound_s < worth_simulating * best_s_; }

    // The step over the share of updates computed twice has one valley, with ripples: from where
    // the bound is the least it is followed both ways: a promise that is no better there can be so
    // at another share.
    void enter(const Promise& one) {
        const double step_s = simulate_it(one.choice);
        if (!has_open_share(question_, one.choice)) return;
        if (step_s <= is_at_bound * one.bound_s) return;
        for (const double direction : {twice_grid, -twice_grid}) follow(one.choice, direction);
    }

    void follow(Choice choice, double direction) {
        choice.twice_share += direction;
        for (int misses = 0;
             misses < misses_max && choice.twice_share >= 0 && choice.twice_share <= 1;
             choice.twice_share += direction) {
            if (!improves(choice)) misses++;
        }
    }

    // Simulates, unless the bound says that it is not worth it.
    bool improves(const Choice& choice) {
        if (is_over() || !room_.fits(choice)) return false;
        if (bound_of(room_, choice) >= worth_following * best_s_) return false;
        if (std::ranges::find(candidates_, choice, &Candidate::choice) != candidates_.end()) {
            return false;
        }
        const double before_s = best_s_;
        return simulate_it(choice) < before_s;
    }

    double simulate_it(const Choice& choice) {
        Candidate candidate{.choice = choice, .plan = room_.plan_of(choice)};
        candidate.base = base_of(candidate.plan);
        candidate.needs = room_.needs_of(candidate.plan);
        CHECK_EQ(room_.missing_of(candidate.needs), 0u);
        const Result<Schedule> schedule = build(room_.workload(), candidate.plan);
        CHECK(schedule.ok());
        candidate.forecast =
            simulate(*schedule, question_.machine, question_.effort, {.worth_s = best_s_});
        const double step_s = candidate.forecast.step_s;
        best_s_ = std::min(best_s_, step_s);
        candidates_.push_back(std::move(candidate));
        return step_s;
    }

    Room& room_;
    const Question& question_;
    std::vector<Candidate> candidates_;
    double best_s_ = 0;
};

}  // namespace

std::vector<Candidate> find_fastest(Room& room, std::vector<Promise> promises) {
    return Race(room).run(std::move(promises));
}

}  // namespace headrace::offload
