// Shares of a row of items: chosen evenly, of every prefix as many as the share says, as near as
// whole items allow; in stretches, the nearest tier first; or evenly behind a first stretch.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "offload/check.h"
#include "offload/tier.h"

namespace headrace::offload {

class Spread {
  public:
    // 0 to 1 (CHECK).
    explicit Spread(double share) : share_(share) { CHECK(share >= 0 && share <= 1); }

    // Whether the next item is chosen.
    bool next() {
        debt_ += share_;
        const bool is_chosen = debt_ >= 0.5 && share_ > 0;
        if (is_chosen) debt_ -= 1;
        return is_chosen;
    }

  private:
    double share_ = 0;
    double debt_ = 0;  // what the items so far should have had, beyond those that were chosen
};

// Which share of a kind of bytes lives on which tier; the three add up to 1 (within 1e-9).
struct TierShares {
    std::array<double, 3> share_of_tier = {};  // indexed by Tier: gpu, ram, nvme

    double share(Tier tier) const { return share_of_tier[static_cast<size_t>(tier)]; }
    static TierShares all_on(Tier tier) {
        TierShares shares;
        CHECK_LT(static_cast<size_t>(tier), shares.share_of_tier.size());
        shares.share_of_tier[static_cast<size_t>(tier)] = 1;
        return shares;
    }
    bool operator==(const TierShares&) const = default;
};

// The tiers of a row of items, each tier its share of every prefix.
class TierSpread {
  public:
    explicit TierSpread(const TierShares& shares) : shares_(shares) {}

    // Of the next item: the tier that lacks most of what it should have.
    Tier next() {
        ++item_count_;
        Tier best = Tier::nvme;
        double largest_debt = -2;  // below any: no tier is ever more than one item ahead
        for (const Tier tier : all_tiers) {
            const double debt = shares_.share(tier) * item_count_ - given(tier);
            if (shares_.share(tier) <= 0 || debt <= largest_debt) continue;
            largest_debt = debt;
            best = tier;
        }
        given(best) += 1;
        return best;
    }

  private:
    double& given(Tier tier) { return given_[static_cast<size_t>(tier)]; }

    const TierShares shares_;
    double item_count_ = 0;
    std::array<double, 3> given_ = {};
};

// The tiers of a row of items in the order in which they are wanted: the first ones on the gpu,
// then those in ram, the last on nvme. Each border between two tiers is rounded to a whole item.
inline std::vector<Tier> nearest_first(const TierShares& shares, uint32_t item_count) {
    const auto border = [&](double share) {
        return static_cast<uint32_t>(std::lround(share * item_count));
    };
    const uint32_t gpu_end = border(shares.share(Tier::gpu));
    const uint32_t ram_end = border(shares.share(Tier::gpu) + shares.share(Tier::ram));
    std::vector<Tier> tiers;
    for (uint32_t i = 0; i < item_count; ++i) {
        tiers.push_back(i < gpu_end ? Tier::gpu : i < ram_end ? Tier::ram : Tier::nvme);
    }
    return tiers;
}

// The tiers of a row whose first items are wanted all at once, before anything else: those are as
// near as the shares allow, the others have what is left, evenly. As many items on each tier as
// nearest_first says.
inline std::vector<Tier> first_items_nearest(const TierShares& shares, uint32_t item_count,
                                             uint32_t first_count) {
    CHECK_LE(first_count, item_count);
    std::vector<Tier> tiers = nearest_first(shares, item_count);
    if (first_count == item_count) return tiers;
    const double rest_count = item_count - first_count;
    TierShares rest;
    for (uint32_t i = first_count; i < item_count; ++i) {
        rest.share_of_tier[static_cast<size_t>(tiers[i])] += 1 / rest_count;
    }
    TierSpread spread(rest);
    for (uint32_t i = first_count; i < item_count; ++i) tiers[i] = spread.next();
    return tiers;
}

}  // namespace headrace::offload
