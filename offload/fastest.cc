#include "offload/fastest.h"

#include <algorithm>

#include "offload/build.h"

namespace headrace::offload {

namespace {

// Steps of the search for the share of updates computed twice are no finer than this.
constexpr double twice_grid = 0.125;
// A candidate must promise this much to be simulated beside a better one.
constexpr double worth_simulating = 0.995;
// A step this near to its bound is not made shorter by updates computed twice.
constexpr double is_at_bound = 1.01;

class Race {
  public:
    explicit Race(Room& room)
        : room_(room),
          question_(room.question()),
          twice_share_(question_.twice_share_hint),
          best_s_(question_.worth_s) {}

    std::vector<Candidate> run(std::vector<Promise> promises) {
        std::ranges::stable_sort(promises, {}, &Promise::bound_s);
        for (const Promise& one : promises) {
            if (is_over()) break;
            if (!is_worth_simulating(one.bound_s)) break;  // nor are those that follow
            enter(one);
        }
        CHECK_LE(candidates_.size(), question_.simulation_count_max);
        std::ranges::stable_sort(
            candidates_, {}, [](const Candidate& candidate) { return candidate.forecast.step_s; });
        return std::move(candidates_);
    }

  private:
    bool is_over() const { return candidates_.size() >= question_.simulation_count_max; }
    bool is_worth_simulating(double bound_s) const { return bound_s < worth_simulating * best_s_; }

    void enter(const Promise& one) {
        if (!can_update_twice(one.choice)) {
            simulate_it(one.choice);
            return;
        }
        Choice choice = one.choice;
        choice.twice_share = twice_share_;
        while (choice.twice_share > 0 && !is_worth_simulating(bound_of(room_, choice))) {
            choice.twice_share -= twice_grid;
        }
        const double before_s = best_s_;
        const double step_s = simulate_it(choice);
        if (step_s < before_s) find_twice_share(choice, step_s, one.bound_s);
    }

    bool can_update_twice(const Choice& choice) const {
        return !question_.fixed.twice_share && choice.hi == Tier::nvme && choice.opt == Tier::nvme;
    }

    // The step over the share has one valley, near where the bound, which rises with it, meets the
    // step, which falls. From a first guess it is followed downwards on a grid.
    void find_twice_share(Choice choice, double step_s, double bound_s) {
        if (step_s <= is_at_bound * bound_s) return;
        if (choice.twice_share == 0) {
            const double meeting_s = (step_s + bound_s) / 2;
            while (choice.twice_share < 1 && bound_of(room_, choice) < meeting_s) {
                choice.twice_share += twice_grid;
            }
            improves(choice);
        }
        for (const double direction : {-twice_grid, twice_grid}) {
            choice.twice_share = twice_share_ + direction;
            while (choice.twice_share >= 0 && choice.twice_share <= 1 && improves(choice)) {
                choice.twice_share += direction;
            }
        }
    }

    // Simulates, unless the bound says that it is not worth it.
    bool improves(const Choice& choice) {
        if (is_over() || !room_.fits(choice)) return false;
        if (!is_worth_simulating(bound_of(room_, choice))) return false;
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
        if (step_s < best_s_) {
            best_s_ = step_s;
            twice_share_ = choice.twice_share;
        }
        candidates_.push_back(std::move(candidate));
        return step_s;
    }

    Room& room_;
    const Question& question_;
    std::vector<Candidate> candidates_;
    double twice_share_ = 0;  // of the best so far
    double best_s_ = 0;
};

}  // namespace

std::vector<Candidate> find_fastest(Room& room, std::vector<Promise> promises) {
    return Race(room).run(std::move(promises));
}

}  // namespace headrace::offload
