// A choice: one way to fill in a plan with a few numbers, as the planner tries them; and what a run
// fixes of its plan, which no choice can change.
#pragma once

#include <optional>

#include "offload/slots.h"
#include "offload/spread.h"

namespace headrace::offload {

// Layers that keep, the last ones first: those on the gpu, those before them in ram, and those
// before these on nvme.
struct KeptCounts {
    uint32_t gpu = 0;
    uint32_t ram = 0;
    uint32_t nvme = 0;

    uint32_t count() const { return gpu + ram + nvme; }
    bool operator==(const KeptCounts&) const = default;
};

// What a run fixes; what is empty is the planner's to choose.
struct Fixed {
    // Homes of hi, by part, those of the first layer first; if some are on gpu, by layer, of which
    // the first may be the largest.
    std::optional<TierShares> parameters;
    std::optional<TierShares> optimizer;  // homes of opt, by part; the first layer's in ram first
    // Homes of act, by boundary: the last ones, which backward wants first, are the nearest.
    std::optional<TierShares> activations;
    // Homes of stash, by part: the first ones, which the next forward wants first, are the nearest.
    std::optional<TierShares> stash;
    std::optional<Tier> accumulators;
    std::optional<uint32_t> group;   // micro-batches per pass; more than there are: all
    std::optional<uint32_t> window;  // layers in flight; the same
    std::optional<double> twice_share;
    std::optional<uint32_t> ring_slots{};  // of the rings in ram
    std::optional<KeptCounts> kept{};      // more than can keep: all of them, the gpu's first
    std::optional<bool> keeps;  // true: every layer that can keeps what backward needs; false: none
    bool operator==(const Fixed&) const = default;
};

// When a run commits; nothing: never. It depends on where weights and states live.
struct CommitRule {
    std::optional<CommitAt> on_nvme = CommitAt::every_step;  // some of them on nvme
    std::optional<CommitAt> in_memory;                       // none
    Copies copies = Copies::two;  // of durable places, where nothing commits with every step
    bool operator==(const CommitRule&) const = default;
};

struct Choice {
    // Of every part; where Fixed says the homes, these tell the farthest tier that it uses.
    Tier hi = Tier::gpu;
    Tier opt = Tier::gpu;
    // Of the parts, those of the first layer first, then spread over the layers: whole in ram,
    // where hi or opt would be on nvme.
    double cached_share = 0;
    double twice_share = 0;  // of the parts that can: their update is computed twice
    KeptCounts kept{};
    // Boundaries, the last ones first: so many on the gpu, so many in ram, the others here.
    uint32_t gpu_act_count = 0;
    uint32_t ram_act_count = 0;
    Tier activations = Tier::gpu;
    // Gradients, of the first parts first: so many in ram, the others here.
    uint32_t ram_stash_count = 0;
    Tier stash = Tier::ram;
    Tier accumulators = Tier::ram;
    uint32_t group = 1;
    uint32_t window = 2;
    uint32_t ring_slots = 2;  // of the rings in ram

    bool operator==(const Choice&) const = default;
};

// The plan of a choice. path_count: of the store, which is used if the rule says so.
struct PlanContext {
    const Workload& workload;
    const Fixed& fixed;
    const CommitRule& commits;
    uint32_t path_count = 0;
};
Plan plan_of(const PlanContext& context, const Choice& choice);

// What Fixed would have to say for the plan's homes of act and stash, if they are nearest first as
// those of a choice are.
TierShares activation_shares(const Workload& workload, const Plan& plan);
TierShares stash_shares(const Plan& plan);

}  // namespace headrace::offload
