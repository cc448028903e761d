#include "offload/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "offload/build.h"
#include "offload/spread.h"
#include "offload/units.h"

namespace headrace::offload {

namespace {

// The knobs of one candidate. Shares are spread evenly over the parts.
struct Knobs {
    Base base = Base::card;
    double cached_share = 0;
    double twice_share = 0;
    uint32_t kept_layer_count = 0;
    Tier activations = Tier::gpu;
    Tier stash = Tier::ram;
    uint32_t window = 2;
    uint32_t ring_slots = 2;
};

PartHomes homes_of(const Knobs& knobs, bool is_cached) {
    PartHomes homes{.stash = knobs.stash, .acc = Tier::ram};
    switch (knobs.base) {
        case Base::card: homes.hi = homes.opt = homes.acc = Tier::gpu; break;
        case Base::states_in_ram:
            homes.hi = Tier::gpu;
            homes.opt = Tier::ram;
            break;
        case Base::ram: homes.hi = homes.opt = Tier::ram; break;
        case Base::weights_in_ram:
            homes.hi = Tier::ram;
            homes.opt = is_cached ? Tier::ram : Tier::nvme;
            break;
        case Base::nvme: homes.hi = homes.opt = is_cached ? Tier::ram : Tier::nvme; break;
    }
    return homes;
}

Plan plan_of(const Question& question, const Knobs& knobs) {
    const Workload& workload = question.workload;
    Plan plan = uniform_plan(workload, {}, knobs.activations);
    plan.group = workload.micro_batch_count_max;
    plan.window = std::min(knobs.window, layer_count(workload));
    Spread cached(knobs.cached_share);
    for (PartHomes& homes : plan.homes) homes = homes_of(knobs, cached.next());
    plan.twice = spread_twice(workload, plan.homes, knobs.twice_share);
    if (knobs.kept_layer_count > 0) {
        plan.kept_homes.assign(layer_count(workload), std::nullopt);
        for (uint32_t i = 0; i < knobs.kept_layer_count; ++i) {
            plan.kept_homes[head_layer(workload) - 1 - i] = Tier::gpu;
        }
    }
    const uint32_t slots = knobs.ring_slots;
    plan.rings.ram_hi = plan.rings.ram_opt = plan.rings.ram_stash = slots;
    plan.rings.ram_acc = plan.rings.ram_act = 2;
    const bool uses_drive = knobs.base == Base::weights_in_ram || knobs.base == Base::nvme;
    plan.path_count = uses_drive ? question.path_count : 0;
    plan.commit_at = question.commit_at;
    return plan;
}

class Search {
  public:
    explicit Search(const Question& question) : question_(question) {}

    Result<Answer> run() {
        if (consider_alone(Base::card)) return answer();
        consider_alone(Base::states_in_ram);
        consider_alone(Base::ram);
        if (!candidates_.empty()) return answer();
        if (question_.path_count > 0) consider_drive();
        if (candidates_.empty()) return does_not_fit();
        return answer();
    }

  private:
    bool fits(const Knobs& knobs) {
        const TierBytes needs = bytes_needed(question_.workload, plan_of(question_, knobs));
        const uint64_t missing = shortfall(needs, question_.ceilings);
        if (missing > 0 && missing < least_missing_) {
            least_missing_ = missing;
            nearest_ = needs;
        }
        return missing == 0;
    }

    // The nearest homes for activations and gradients with which it fits.
    std::optional<Knobs> fit(Knobs knobs) {
        const bool has_drive = knobs.base == Base::weights_in_ram || knobs.base == Base::nvme;
        for (const uint32_t window : {2u, 1u}) {
            for (const Tier activations : all_tiers) {
                for (const Tier stash : all_tiers) {
                    if (stash == Tier::gpu && knobs.base != Base::card) continue;
                    if (!has_drive && (stash == Tier::nvme || activations == Tier::nvme)) continue;
                    knobs.window = window;
                    knobs.activations = activations;
                    knobs.stash = stash;
                    if (fits(knobs)) return knobs;
                }
            }
        }
        return std::nullopt;
    }

    // As many layers as the gpu still has room for.
    void keep_layers(Knobs& knobs) {
        const Workload& workload = question_.workload;
        if (workload.kept_bytes == 0 || head_layer(workload) < 2) return;
        const TierBytes needs = bytes_needed(workload, plan_of(question_, knobs));
        CHECK_LE(needs.gpu_bytes, question_.ceilings.gpu_bytes);
        const uint64_t layer_bytes = workload.kept_bytes * workload.micro_batch_count_max;
        const uint64_t room = question_.ceilings.gpu_bytes - needs.gpu_bytes;
        const uint64_t most = head_layer(workload) - 1;
        knobs.kept_layer_count = static_cast<uint32_t>(std::min(most, room / layer_bytes));
        CHECK(fits(knobs));
    }

    // As many parts as ram has room for.
    void cache_parts(Knobs& knobs) {
        double low = 0;
        double high = 1;
        for (int step = 0; step < 7; ++step) {
            knobs.cached_share = (low + high) / 2;
            (fits(knobs) ? low : high) = knobs.cached_share;
        }
        knobs.cached_share = low;
    }

    bool consider_alone(Base base) {
        std::optional<Knobs> knobs = fit({.base = base});
        if (!knobs) return false;
        keep_layers(*knobs);
        simulate_it(*knobs);
        return true;
    }

    void consider_drive() {
        for (const Base base : {Base::weights_in_ram, Base::nvme}) {
            for (const uint32_t ring_slots : {2u, 8u}) {
                std::optional<Knobs> knobs = fit({.base = base, .ring_slots = ring_slots});
                if (!knobs) continue;
                keep_layers(*knobs);
                cache_parts(*knobs);
                const double gated_s = simulate_it(*knobs);
                if (base == Base::nvme) share_twice(*knobs, gated_s);
            }
        }
    }

    // The step over the share has one valley: from none, in quarters, as long as it gets shorter;
    // then the eighth on either side.
    void share_twice(Knobs knobs, double best_s) {
        double best = 0;
        const auto is_better = [&](double share) {
            knobs.twice_share = share;
            const double step_s = simulate_it(knobs);
            if (step_s >= best_s) return false;
            best_s = step_s;
            best = share;
            return true;
        };
        for (const double share : {0.5, 0.75, 1.0}) {
            if (!is_better(share)) break;
        }
        for (const double share : {best - 0.125, best + 0.125}) {
            if (share > 0 && share < 1) is_better(share);
        }
    }

    double simulate_it(const Knobs& knobs) {
        CHECK(knobs.cached_share >= 0 && knobs.cached_share <= 1);
        CHECK(knobs.twice_share >= 0 && knobs.twice_share <= 1);
        Candidate candidate{.base = knobs.base,
                            .cached_share = knobs.cached_share,
                            .twice_share = knobs.twice_share,
                            .kept_layer_count = knobs.kept_layer_count,
                            .plan = plan_of(question_, knobs),
                            .needs = {},
                            .forecast = {}};
        candidate.needs = bytes_needed(question_.workload, candidate.plan);
        const Result<Schedule> schedule = build(question_.workload, candidate.plan);
        CHECK(schedule.ok());
        candidate.forecast = simulate(*schedule, question_.machine, question_.effort);
        candidates_.push_back(std::move(candidate));
        return candidates_.back().forecast.step_s;
    }

    Answer answer() {
        std::ranges::stable_sort(
            candidates_, {}, [](const Candidate& candidate) { return candidate.forecast.step_s; });
        Answer answer{.best = std::move(candidates_.front()), .others = {}};
        candidates_.erase(candidates_.begin());
        answer.others = std::move(candidates_);
        return answer;
    }

    Error does_not_fit() const {
        const auto tier = [](std::string_view name, uint64_t needed, uint64_t given) {
            return fmt::format("{} {} of {}{}", name, format_bytes(needed), format_bytes(given),
                               needed > given ? " (too little)" : "");
        };
        const TierBytes& given = question_.ceilings;
        return {ErrorCode::does_not_fit,
                fmt::format("no placement fits; the nearest needs {}, {}, {}",
                            tier("gpu", nearest_.gpu_bytes, given.gpu_bytes),
                            tier("ram", nearest_.ram_bytes, given.ram_bytes),
                            tier("nvme", nearest_.nvme_bytes, given.nvme_bytes)),
                question_.path_count == 0 ? "a drive would take what ram cannot" : ""};
    }

    const Question& question_;
    std::vector<Candidate> candidates_;
    uint64_t least_missing_ = std::numeric_limits<uint64_t>::max();
    TierBytes nearest_;
};

}  // namespace

std::string_view name_of(Base base) {
    switch (base) {
        case Base::card: return "card";
        case Base::states_in_ram: return "states in ram";
        case Base::ram: return "ram";
        case Base::weights_in_ram: return "weights in ram";
        case Base::nvme: return "nvme";
    }
    CHECK(false);
}

uint64_t shortfall(const TierBytes& needs, const TierBytes& ceilings) {
    return excess(needs.gpu_bytes, ceilings.gpu_bytes) +
           excess(needs.ram_bytes, ceilings.ram_bytes) +
           excess(needs.nvme_bytes, ceilings.nvme_bytes);
}

TierBytes bytes_needed(const Workload& workload, const Plan& plan) {
    return bytes_needed(workload, lay_slots(workload, plan));
}

TierBytes bytes_needed(const Workload& workload, const SlotTable& table) {
    TierBytes needs{.gpu_bytes = table.workspace_offset_bytes + workload.workspace_bytes};
    for (const Slot& slot : table.slots) {
        if (slot.tier == Tier::ram) {
            needs.ram_bytes = std::max(needs.ram_bytes, slot.offset_bytes + slot.size_bytes);
        } else if (slot.tier == Tier::nvme) {
            needs.nvme_bytes += slot.size_bytes * slot.copy_count;
        }
    }
    return needs;
}

Result<Answer> find_plan(const Question& question) {
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

}  // namespace headrace::offload
