#include "offload/promise.h"

#include <algorithm>

#include "offload/bound.h"
#include "offload/fill.h"
#include "offload/fit.h"

namespace headrace::offload {

namespace {

// A larger share of updates computed twice must lower the bound by this much.
constexpr double worth_sharing = 0.999;

struct Homes {
    Tier hi = Tier::gpu;
    Tier opt = Tier::gpu;

    bool on_nvme() const { return hi == Tier::nvme || opt == Tier::nvme; }
    bool on_card() const { return hi == Tier::gpu && opt == Tier::gpu; }
    bool operator==(const Homes&) const = default;
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
        if (std::ranges::find(homes, meant) == homes.end()) homes.push_back(meant);
    }
    return homes;
}

class Promises {
  public:
    explicit Promises(Room& room) : room_(room) {}

    Result<std::vector<Promise>> find() {
        const std::vector<Homes> homes = homes_to_try(question().fixed);
        CHECK(!homes.empty());
        reach_ = Reach::memory;
        for (const Homes& one : homes) {
            if (one.on_nvme()) continue;
            if (Status status = promise_in_memory(one); !status) return status.error();
            // What fits a card whole is not offloaded. (On a host both tiers are one memory.)
            if (!promises_.empty() && question().machine.compute_cores == 0) break;
        }
        if (!promises_.empty()) return std::move(promises_);
        reach_ = Reach::all;
        for (const Homes& one : homes) {
            if (one.on_nvme() && question().path_count == 0) continue;
            const Status status = one.on_nvme() ? promise_on_drive(one) : promise_in_memory(one);
            if (!status) return status.error();
        }
        return std::move(promises_);
    }

  private:
    const Question& question() const { return room_.question(); }
    std::vector<Tier> tiers(std::initializer_list<Tier> some) const {
        return usable_tiers(question(), reach_, some);
    }

    Status promise_in_memory(const Homes& homes) {
        const auto fitting =
            fit(room_, reach_, {.hi = homes.hi, .opt = homes.opt},
                {.ring_slots = {6, 4, 3, 2},
                 .stashes = homes.on_card() ? tiers({Tier::gpu, Tier::ram, Tier::nvme})
                                            : tiers({Tier::ram, Tier::nvme})});
        if (!fitting) return fitting.error();
        if (!*fitting) return {};
        for (const Tier nearest : {Tier::ram, Tier::gpu}) {
            Choice choice = **fitting;
            bring_activations_near(room_, nearest, choice);
            bring_gradients_near(room_, WhoseGradients::all, choice);
            promise_keeping(choice);
        }
        return {};
    }

    // With a long read-ahead, a shorter one and a short one (none, where that left no layer room to
    // keep), with gradients where there is room and on the drive.
    Status promise_on_drive(const Homes& homes) {
        const std::vector<uint32_t> long_rings = {8, 6, 4, 3, 2};
        const std::vector<uint32_t> middle_rings = {4};
        const std::vector<uint32_t> short_rings = {2};
        const std::vector<uint32_t> no_rings = {1};
        keeps_nothing_ = false;
        for (const std::vector<uint32_t>& ring_slots :
             {long_rings, middle_rings, short_rings, no_rings}) {
            if (ring_slots == no_rings && !keeps_nothing_) break;
            for (const auto& stashes : {tiers({Tier::ram, Tier::nvme}), tiers({Tier::nvme})}) {
                const auto fitting = fit(room_, reach_, {.hi = homes.hi, .opt = homes.opt},
                                         {.ring_slots = ring_slots, .stashes = stashes});
                if (!fitting) return fitting.error();
                if (!*fitting && stashes.size() > 1) return {};  // nor does what is left to try
                if (!*fitting) continue;
                for (const Tier nearest : {Tier::ram, Tier::gpu}) {
                    promise_caching(**fitting, nearest, stashes.size() == 1);
                }
            }
        }
        return {};
    }

    // Activations as near as they can be, then parts cached, beside gradients or instead of them.
    void promise_caching(Choice choice, Tier nearest, bool caches_first) {
        bring_activations_near(room_, nearest, choice);
        bring_gradients_near(
            room_, caches_first ? WhoseGradients::first_layer : WhoseGradients::all, choice);
        Choice cached = choice;
        cache_parts(room_, cached);
        bring_gradients_near(room_, WhoseGradients::all, cached);
        promise_keeping(cached);
        // What is computed again may cost more than what the cache saves.
        if (cached.cached_share > 0) promise_keeping(choice);
    }

    // The choice as it is, with what the gpu still has room to keep, with ram's room too, and with
    // all that ram has no room for on nvme: what is kept there is written and read once, which may
    // cost less than to compute it again.
    void promise_keeping(const Choice& bare) {
        const Fixed& fixed = question().fixed;
        const bool is_fixed = fixed.keeps.has_value() || fixed.kept.has_value();
        if (is_fixed || can_keep_count(room_.workload()) == 0) return promise(bare);
        CHECK(room_.fits(bare));
        for (const Tier farthest : tiers({Tier::gpu, Tier::ram, Tier::nvme})) {
            Choice choice = bare;
            if (farthest == Tier::nvme) {
                keep_all(choice);
            } else {
                keep_most(room_, farthest, choice);
            }
            promise(choice);
            keeps_nothing_ |= farthest == Tier::nvme && choice.kept.count() == 0;
        }
    }

    // Gradients that filled ram would leave no room for the ring of what is kept on nvme. Those of
    // the first layer come before what is kept: with the verdict they are wanted at once, and
    // nothing computes until they are there.
    void keep_all(Choice& choice) const {
        const uint32_t first_layer = room_.workload().layout.layers.front().part_count;
        const uint32_t near_before = std::min(choice.ram_stash_count, first_layer);
        for (const uint32_t near : {near_before, 0u}) {
            choice.kept = {};
            choice.ram_stash_count = near;
            keep_most(room_, Tier::nvme, choice);
            if (choice.kept.count() == can_keep_count(room_.workload())) break;
        }
        bring_gradients_near(room_, WhoseGradients::all, choice);
    }

    // With the share of updates computed twice that the bound likes best.
    Promise with_best_share(const Choice& choice) const {
        Promise best{choice, bound_of(room_, choice)};
        if (!has_open_share(question(), choice)) return best;
        for (Choice more = choice; more.twice_share < 1;) {
            more.twice_share += twice_grid;
            const double more_s = bound_of(room_, more);
            if (more_s < worth_sharing * best.bound_s) best = {more, more_s};
        }
        return best;
    }

    void promise(Choice choice) {
        choice.twice_share = question().fixed.twice_share.value_or(0);
        if (std::ranges::find(tried_, choice) != tried_.end()) return;
        tried_.push_back(choice);
        if (!room_.fits(choice)) return;  // at any share: no slot depends on it
        promises_.push_back(with_best_share(choice));
        CHECK_GT(promises_.back().bound_s, 0.0);
    }

    Room& room_;
    Reach reach_ = Reach::memory;
    bool keeps_nothing_ = false;  // some choice that could keep on the drive
    std::vector<Choice> tried_;   // each before its share
    std::vector<Promise> promises_;
};

}  // namespace

bool has_open_share(const Question& question, const Choice& choice) {
    return !question.fixed.twice_share && choice.hi == Tier::nvme && choice.opt == Tier::nvme;
}

double bound_of(const Room& room, const Choice& choice) {
    const Question& question = room.question();
    return bound_s(room.workload(), room.plan_of(choice), question.machine, question.effort);
}

Result<std::vector<Promise>> find_promises(Room& room) {
    return Promises(room).find();
}

}  // namespace headrace::offload
