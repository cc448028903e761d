#include "offload/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "offload/bound.h"
#include "offload/build.h"
#include "offload/units.h"

namespace headrace::offload {

namespace {

// Steps of the search are no finer than this.
constexpr double twice_grid = 0.125;
// A candidate must promise this much to be simulated beside a better one.
constexpr double worth_simulating = 0.995;
// A step this near to its bound is not made shorter by updates computed twice.
constexpr double is_at_bound = 1.01;

struct Homes {
    Tier hi = Tier::gpu;
    Tier opt = Tier::gpu;

    bool on_nvme() const { return hi == Tier::nvme || opt == Tier::nvme; }
};

// Where weights and states can live, the nearest first; what is fixed, by its farthest tier.
std::vector<Homes> homes_to_try(const Fixed& fixed) {
    const auto farthest = [](const TierShares& shares) {
        for (const Tier tier : {Tier::nvme, Tier::ram}) {
            if (shares.share(tier) > 0) return tier;
        }
        return Tier::gpu;
    };
    std::vector<Homes> homes;
    for (const Homes& one : {Homes{Tier::gpu, Tier::gpu}, Homes{Tier::gpu, Tier::ram},
                             Homes{Tier::ram, Tier::ram}, Homes{Tier::gpu, Tier::nvme},
                             Homes{Tier::ram, Tier::nvme}, Homes{Tier::nvme, Tier::nvme}}) {
        Homes meant = one;
        if (fixed.parameters) meant.hi = farthest(*fixed.parameters);
        if (fixed.optimizer) meant.opt = farthest(*fixed.optimizer);
        const bool is_known = std::ranges::any_of(homes, [&](const Homes& known) {
            return known.hi == meant.hi && known.opt == meant.opt;
        });
        if (!is_known) homes.push_back(meant);
    }
    return homes;
}

template <typename T>
std::vector<T> fixed_or(const std::optional<T>& fixed, std::vector<T> open) {
    return fixed ? std::vector<T>{*fixed} : std::move(open);
}

// First only what is near is tried: memory, and all micro-batches in one pass.
enum class Reach : uint8_t { memory, all };

// A choice that fits, and what no schedule of it beats.
struct Promise {
    Choice choice;
    double bound_s = 0;
};

class Search {
  public:
    explicit Search(const Question& question)
        : question_(question),
          sizes_(question.workload),
          twice_share_(question.twice_share_hint),
          best_s_(question.worth_s) {}

    Result<Findings> run() {
        const std::vector<Homes> homes = homes_to_try(question_.fixed);
        reach_ = Reach::memory;
        for (const Homes& one : homes) {
            if (!one.on_nvme()) promise_in_memory(one);
            // What fits a card whole is not offloaded. (On a host both tiers are one memory.)
            if (!promises_.empty() && question_.machine.compute_cores == 0) break;
        }
        if (promises_.empty()) {
            reach_ = Reach::all;
            for (const Homes& one : homes) {
                if (!one.on_nvme()) promise_in_memory(one);
                if (one.on_nvme() && question_.path_count > 0) promise_on_drive(one);
            }
        }
        if (!fault_.empty()) return Error{ErrorCode::usage, "the placement cannot be", fault_};
        simulate_promises();
        return findings();
    }

  private:
    const Workload& workload() const { return question_.workload; }
    Plan plan_of_choice(const Choice& choice) const {
        return plan_of({.workload = workload(),
                        .fixed = question_.fixed,
                        .commits = question_.commits,
                        .path_count = question_.path_count},
                       choice);
    }

    // --- what fits -----------------------------------------------------------------------------

    TierBytes needs_of(const Plan& plan) const {
        TierBytes needs = sizes_.of(plan);
        if (needs.nvme_bytes > 0 && question_.store_bytes) {
            needs.nvme_bytes = question_.store_bytes(lay_slots(workload(), plan));
        }
        return needs;
    }

    // As needs_of, but the store is asked only where its answer matters.
    TierBytes quick_needs_of(const Plan& plan) const {
        const TierBytes needs = sizes_.of(plan);
        return missing_of(needs) == 0 ? needs_of(plan) : needs;
    }

    uint64_t missing_of(const TierBytes& needs) const {
        return shortfall(needs, question_.ceilings) +
               excess(needs.gpu_bytes + needs.ram_bytes, question_.memory_ceiling_bytes);
    }

    // What the choice needs, if it fits.
    std::optional<TierBytes> try_choice(const Choice& choice) {
        const TierBytes needs = quick_needs_of(plan_of_choice(choice));
        const uint64_t missing = missing_of(needs);
        if (missing == 0) return needs;
        if (missing < least_missing_) {
            least_missing_ = missing;
            nearest_ = choice;
        }
        return std::nullopt;
    }
    bool fits(const Choice& choice) { return try_choice(choice).has_value(); }

    uint32_t layers_that_can_keep() const {
        return workload().kept_bytes == 0 ? 0 : layer_count(workload()) - 2;
    }

    // Where everything must be kept, what is tried keeps on the gpu all that it can.
    bool must_keep() const { return question_.fixed.keeps.value_or(false); }

    std::vector<uint32_t> groups() const {
        const uint32_t most = workload().micro_batch_count_max;
        if (question_.fixed.group) return {std::min(*question_.fixed.group, most)};
        if (reach_ == Reach::memory) return {most};
        std::vector<uint32_t> groups;
        for (uint32_t group = most; group >= 1; group /= 2) groups.push_back(group);
        return groups;
    }

    std::vector<Tier> tiers(std::initializer_list<Tier> open) const {
        std::vector<Tier> usable;
        for (const Tier tier : open) {
            if (tier == Tier::nvme && (question_.path_count == 0 || reach_ == Reach::memory)) {
                continue;
            }
            usable.push_back(tier);
        }
        return usable;
    }

    // The first way to leave open what the choice leaves open that fits, best first: rings shrink
    // before a tier changes, a tier changes before passes multiply. Rings of one slot, without any
    // overlap, come last of all.
    std::optional<Choice> fit(Choice choice, const std::vector<uint32_t>& ring_slots,
                              const std::vector<Tier>& stashes) {
        const Fixed& fixed = question_.fixed;
        // What is tried differs in nothing that can be a fault of a plan.
        choice.group = groups().front();
        choice.window = fixed.window.value_or(1);
        if (const char* fault = find_fault(workload(), plan_of_choice(choice))) {
            fault_ = fault;
            return std::nullopt;
        }
        const bool on_card = choice.hi == Tier::gpu && choice.opt == Tier::gpu;
        const std::vector<Tier> accumulators =
            fixed_or(fixed.accumulators, on_card ? tiers({Tier::gpu, Tier::ram, Tier::nvme})
                                                 : tiers({Tier::ram, Tier::nvme}));
        const std::vector<Tier> activations =
            fixed.activations ? std::vector{Tier::gpu} : tiers({Tier::gpu, Tier::ram, Tier::nvme});
        for (const std::vector<uint32_t>& open : {ring_slots, std::vector<uint32_t>{1}}) {
            const std::vector<uint32_t> slots = fixed_or(fixed.ring_slots, open);
            for (const uint32_t group : groups()) {
                for (const uint32_t window : fixed_or(fixed.window, {2u, 1u})) {
                    for (const Tier activation : activations) {
                        for (const Tier stash : fixed.stash ? std::vector{Tier::ram} : stashes) {
                            for (const Tier accumulator : accumulators) {
                                for (const uint32_t slot_count : slots) {
                                    choice.group = group;
                                    choice.window = window;
                                    choice.activations = activation;
                                    choice.stash = stash;
                                    choice.accumulators = accumulator;
                                    choice.ring_slots = slot_count;
                                    if (keep_all_if_asked(choice)) return choice;
                                }
                            }
                        }
                    }
                }
            }
        }
        return std::nullopt;
    }

    // Whether it fits, with as many layers keeping as are fixed.
    bool keep_all_if_asked(Choice& choice) {
        keep_nothing(choice);
        if (question_.fixed.kept) keep_fixed(choice, *question_.fixed.kept);
        if (!must_keep()) return fits(choice);
        const TierBytes bare = quick_needs_of(plan_of_choice(choice));
        if (missing_of(bare) == 0) keep_most(choice, bare, tiers({Tier::ram, Tier::nvme}).back());
        if (choice.kept_count() == layers_that_can_keep()) return fits(choice);
        keep_nothing(choice);
        choice.gpu_kept_count = layers_that_can_keep();  // for the numbers
        return fits(choice);
    }

    void keep_fixed(Choice& choice, const KeptCounts& kept) const {
        uint32_t left = layers_that_can_keep();
        const auto take = [&left](uint32_t count) {
            const uint32_t taken = std::min(count, left);
            left -= taken;
            return taken;
        };
        choice.gpu_kept_count = take(kept.gpu);
        choice.ram_kept_count = take(kept.ram);
        if (question_.path_count > 0) choice.nvme_kept_count = take(kept.nvme);
    }

    static void keep_nothing(Choice& choice) {
        choice.gpu_kept_count = choice.ram_kept_count = choice.nvme_kept_count = 0;
    }

    // As many layers as there is room for beside `needs` on the gpu and, where it is full, in ram,
    // and all others on nvme, as far as `farthest` allows. Ram is reached through a ring on the
    // gpu, nvme through one in ram too; whether nvme has room is left to fits().
    void keep_most(Choice& choice, const TierBytes& needs, Tier farthest) const {
        const uint32_t most = layers_that_can_keep();
        if (most == 0) return;
        const uint64_t layer_bytes =
            workload().kept_bytes * std::min(choice.group, workload().micro_batch_count_max);
        const uint64_t memory_free =
            excess(question_.memory_ceiling_bytes, needs.gpu_bytes + needs.ram_bytes);
        const uint64_t gpu_free =
            std::min(memory_free, excess(question_.ceilings.gpu_bytes, needs.gpu_bytes));
        choice.gpu_kept_count =
            static_cast<uint32_t>(std::min<uint64_t>(most, gpu_free / layer_bytes));
        const uint64_t gpu_ring_bytes = workload().kept_bytes * RingSizes{}.gpu_kept;
        const uint64_t ram_ring_bytes =
            farthest == Tier::nvme ? workload().kept_bytes * RingSizes{}.ram_kept : 0;
        if (farthest == Tier::gpu || choice.gpu_kept_count == most) return;
        if (gpu_free < gpu_ring_bytes) return;
        const auto on_gpu = static_cast<uint32_t>((gpu_free - gpu_ring_bytes) / layer_bytes);
        const uint64_t ram_free = std::min(memory_free - gpu_ring_bytes - on_gpu * layer_bytes,
                                           excess(question_.ceilings.ram_bytes, needs.ram_bytes));
        if (ram_free < ram_ring_bytes) return;
        const auto in_ram = static_cast<uint32_t>(
            std::min<uint64_t>(most - on_gpu, (ram_free - ram_ring_bytes) / layer_bytes));
        const bool keeps_all = farthest == Tier::nvme;
        if (!keeps_all && on_gpu + in_ram <= choice.gpu_kept_count) return;
        choice.gpu_kept_count = on_gpu;
        choice.ram_kept_count = in_ram;
        if (keeps_all) choice.nvme_kept_count = most - on_gpu - in_ram;
    }

    // As many parts as ram has room for.
    void cache_parts(Choice& choice) {
        if (question_.fixed.parameters && question_.fixed.optimizer) return;
        double low = 0;
        double high = 1;
        for (int step = 0; step < 7; ++step) {
            choice.cached_share = (low + high) / 2;
            (has_room(choice) ? low : high) = choice.cached_share;
        }
        choice.cached_share = low;
    }

    // As fits(), for what is tried beyond what is needed: no miss if it does not.
    bool has_room(const Choice& choice) const {
        return missing_of(quick_needs_of(plan_of_choice(choice))) == 0;
    }

    // Makes the count of a choice that fits as large as there is room for.
    void raise(Choice& choice, uint32_t Choice::*count, uint32_t most) const {
        uint32_t low = choice.*count;
        uint32_t high = most + 1;
        CHECK_LT(low, high);
        while (high - low > 1) {
            choice.*count = low + (high - low) / 2;
            (has_room(choice) ? low : high) = choice.*count;
        }
        choice.*count = low;
    }

    // No more boundary activations than must be are far away: those that backward wants first are
    // as near as there is room for, on the gpu too if `nearest` is the gpu.
    void spill_activations(Choice& choice, Tier nearest) const {
        if (question_.fixed.activations) return;
        const uint32_t count = head_layer(workload()) - 1;
        if (nearest == Tier::gpu && choice.activations != Tier::gpu) {
            raise(choice, &Choice::gpu_act_count, count);
        }
        if (choice.activations != Tier::nvme) return;
        raise(choice, &Choice::ram_act_count, count - choice.gpu_act_count);
    }

    // The same of gradients, in ram.
    void spill_gradients(Choice& choice) const {
        if (question_.fixed.stash || choice.stash != Tier::nvme) return;
        raise(choice, &Choice::ram_stash_count,
              static_cast<uint32_t>(workload().layout.parts.size()));
    }

    // --- what it promises ----------------------------------------------------------------------

    void promise(Choice choice) {
        choice.twice_share = question_.fixed.twice_share.value_or(0);
        const bool is_known =
            std::ranges::find(promises_, choice, &Promise::choice) != promises_.end();
        if (is_known || !fits(choice)) return;
        promises_.push_back({choice, bound_of(choice)});
        CHECK_GT(promises_.back().bound_s, 0.0);
    }

    double bound_of(const Choice& choice) const {
        return bound_s(workload(), plan_of_choice(choice), question_.machine, question_.effort);
    }

    // The choice as it is, with what the gpu still has room to keep, with ram's room too, and with
    // all that ram has no room for on nvme: what is kept there is written and read once, which may
    // cost less than to compute it again.
    void promise_keeping(const Choice& bare) {
        const bool is_fixed = question_.fixed.keeps.has_value() || question_.fixed.kept.has_value();
        if (is_fixed || layers_that_can_keep() == 0) {
            return promise(bare);
        }
        CHECK(fits(bare));
        for (const Tier farthest : tiers({Tier::gpu, Tier::ram, Tier::nvme})) {
            Choice choice = bare;
            // Gradients that filled ram would leave no room for the ring of what is kept on nvme.
            if (farthest == Tier::nvme) choice.ram_stash_count = 0;
            keep_most(choice, quick_needs_of(plan_of_choice(choice)), farthest);
            if (farthest == Tier::nvme) spill_gradients(choice);
            promise(choice);
        }
    }

    void promise_in_memory(const Homes& homes) {
        const bool on_card = homes.hi == Tier::gpu && homes.opt == Tier::gpu;
        const std::optional<Choice> choice = fit(
            {.hi = homes.hi, .opt = homes.opt}, {6, 4, 3, 2},
            on_card ? tiers({Tier::gpu, Tier::ram, Tier::nvme}) : tiers({Tier::ram, Tier::nvme}));
        if (!choice) return;
        for (const Tier nearest : {Tier::ram, Tier::gpu}) {
            Choice near = *choice;
            spill_activations(near, nearest);
            spill_gradients(near);
            promise_keeping(near);
        }
    }

    void promise_on_drive(const Homes& homes) {
        using Slots = std::vector<uint32_t>;
        for (const Slots& slots : {Slots{8, 6, 4, 3, 2}, Slots{2}}) {
            for (const auto& stashes : {tiers({Tier::ram, Tier::nvme}), tiers({Tier::nvme})}) {
                const std::optional<Choice> fitting =
                    fit({.hi = homes.hi, .opt = homes.opt}, slots, stashes);
                if (!fitting && stashes.size() > 1) return;  // nor does what is left to try
                if (!fitting) continue;
                for (const Tier nearest : {Tier::ram, Tier::gpu}) {
                    promise_near(*fitting, nearest, stashes.size() == 1);
                }
            }
        }
    }

    // Activations as near as they can be, then parts cached, beside gradients or instead of them.
    void promise_near(Choice choice, Tier nearest, bool caches_first) {
        spill_activations(choice, nearest);
        if (!caches_first) spill_gradients(choice);
        Choice cached = choice;
        cache_parts(cached);
        spill_gradients(cached);
        promise_keeping(cached);
        // What is computed again may cost more than what the cache saves.
        if (cached.cached_share > 0) promise_keeping(choice);
    }

    // --- which is the fastest ------------------------------------------------------------------

    void simulate_promises() {
        std::ranges::stable_sort(promises_, {}, &Promise::bound_s);
        for (const Promise& one : promises_) {
            if (candidates_.size() >= question_.simulation_count_max) return;
            if (one.bound_s >= worth_simulating * best_s_) return;  // nor are those that follow
            Choice choice = one.choice;
            const double before_s = best_s_;
            if (can_update_twice(choice)) {
                choice.twice_share = twice_share_;
                while (choice.twice_share > 0 && bound_of(choice) >= worth_simulating * best_s_) {
                    choice.twice_share -= twice_grid;
                }
            }
            const double step_s = simulate_it(choice);
            if (step_s < before_s && can_update_twice(choice)) {
                find_twice_share(choice, step_s, one.bound_s);
            }
        }
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
            while (choice.twice_share < 1 && bound_of(choice) < meeting_s) {
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
        if (candidates_.size() >= question_.simulation_count_max || !fits(choice)) return false;
        if (bound_of(choice) >= worth_simulating * best_s_) return false;
        const bool is_known = std::ranges::any_of(
            candidates_, [&](const Candidate& known) { return known.choice == choice; });
        if (is_known) return false;
        const double before_s = best_s_;
        return simulate_it(choice) < before_s;
    }

    double simulate_it(const Choice& choice) {
        Candidate candidate{.base = Base::card,
                            .choice = choice,
                            .plan = plan_of_choice(choice),
                            .needs = {},
                            .forecast = {}};
        candidate.base = base_of(candidate.plan);
        candidate.needs = needs_of(candidate.plan);
        CHECK_EQ(missing_of(candidate.needs), 0u);
        const Result<Schedule> schedule = build(workload(), candidate.plan);
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

    Findings findings() {
        CHECK_LE(candidates_.size(), question_.simulation_count_max);
        Findings findings;
        if (nearest_) findings.nearest = needs_of(plan_of_choice(*nearest_));
        if (candidates_.empty()) return findings;
        std::ranges::stable_sort(
            candidates_, {}, [](const Candidate& candidate) { return candidate.forecast.step_s; });
        findings.answer = Answer{.best = std::move(candidates_.front()), .others = {}};
        candidates_.erase(candidates_.begin());
        findings.answer->others = std::move(candidates_);
        return findings;
    }

    const Question& question_;
    const Sizes sizes_;
    Reach reach_ = Reach::memory;
    std::vector<Promise> promises_;
    std::vector<Candidate> candidates_;
    double twice_share_ = 0;  // of the best so far
    double best_s_ = 0;
    uint64_t least_missing_ = std::numeric_limits<uint64_t>::max();
    std::optional<Choice> nearest_;  // of those that do not fit
    std::string fault_;
};

}  // namespace

std::string_view name_of(Base base) {
    switch (base) {
        case Base::card: return "card";
        case Base::states_in_ram: return "states in ram";
        case Base::ram: return "ram";
        case Base::states_on_nvme: return "states on nvme";
        case Base::weights_in_ram: return "weights in ram";
        case Base::nvme: return "nvme";
    }
    CHECK(false);
}

Base base_of(const Plan& plan) {
    Tier hi = Tier::gpu;
    Tier opt = Tier::gpu;
    for (const PartHomes& homes : plan.homes) {
        hi = std::max(hi, homes.hi);
        opt = std::max(opt, homes.opt);
    }
    if (hi == Tier::nvme) return Base::nvme;
    if (opt == Tier::nvme) return hi == Tier::gpu ? Base::states_on_nvme : Base::weights_in_ram;
    if (hi == Tier::ram) return Base::ram;
    return opt == Tier::gpu ? Base::card : Base::states_in_ram;
}

Result<Findings> search(const Question& question) {
    CHECK_EQ(question.workload.purpose, Purpose::train);
    CHECK_EQ(question.effort.layers.size(), question.workload.layout.layers.size());
    if (std::string fault = find_fault(question.machine); !fault.empty()) {
        return Error{ErrorCode::usage, "the machine's rates cannot be", std::move(fault)};
    }
    if (question.path_count > 0 && question.machine.drive.read_bytes_per_s == 0) {
        return Error{ErrorCode::usage,
                     "the machine has no rates of a drive, and the run has a path",
                     "measure it with headrace bench nvme"};
    }
    return Search(question).run();
}

Result<Answer> find_plan(const Question& question) {
    Result<Findings> findings = search(question);
    if (!findings) return findings.error();
    if (findings->answer) return std::move(*findings->answer);
    const auto tier = [](std::string_view name, uint64_t needed, uint64_t given) {
        return fmt::format("{} {} of {}{}", name, format_bytes(needed), format_bytes(given),
                           needed > given ? " (too little)" : "");
    };
    const TierBytes& given = question.ceilings;
    const TierBytes& needs = findings->nearest;
    return Error{ErrorCode::does_not_fit,
                 fmt::format("no placement fits; the nearest needs {}, {}, {}",
                             tier("gpu", needs.gpu_bytes, given.gpu_bytes),
                             tier("ram", needs.ram_bytes, given.ram_bytes),
                             tier("nvme", needs.nvme_bytes, given.nvme_bytes)),
                 question.path_count == 0 ? "a drive would take what ram cannot" : ""};
}

}  // namespace headrace::offload
