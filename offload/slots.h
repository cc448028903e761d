// Slots: the fixed places of a schedule. Homes first (where a value lives between periods), then
// one ring per tier and kind, then control. Slots are laid out once from the workload's largest
// number of micro-batches, so every list of the same plan (training, a short last window,
// evaluation) shares them, and the peak bytes of a tier are a sum that holds for every timing.
//
// Where a plan commits, every hi and opt has one durable place, of two copies or of one: its home
// on nvme, or a mirror. Their numbers are the part's (hi), or the part's after all hi (opt),
// wherever the homes are, so that a run can be resumed under another placement.
//
// What a layer computes with must be whole: the parts of one layer always take neighbouring slots
// (gpu homes and the gpu rings of hi and acc), so their bytes lie side by side.
#pragma once

#include <optional>
#include <vector>

#include "offload/schedule.h"

namespace headrace::offload {

// Where each value of a part lives between periods. opt and stash: any tier. hi and acc on the gpu:
// for all parts of a layer or for none. acc: between passes, and for a tied part between its uses.
struct PartHomes {
    Tier hi = Tier::nvme;
    Tier opt = Tier::nvme;
    Tier stash = Tier::nvme;
    Tier acc = Tier::nvme;

    // What an update replaces comes from the drive, and goes there.
    bool is_updated_from_nvme() const { return hi == Tier::nvme && opt == Tier::nvme; }
    bool operator==(const PartHomes&) const = default;
};

// Ring slots, each as large as the largest value of its kind. At least 1 each.
struct RingSizes {
    uint32_t ram_hi = 2;
    uint32_t ram_opt = 2;
    uint32_t ram_stash = 2;
    uint32_t ram_acc = 2;
    uint32_t ram_act = 2;
    uint32_t gpu_stash = 2;  // between reduce and evict
    uint32_t gpu_seam = 1;   // the second accumulator of a tied part, while it is reduced
    uint32_t gpu_kept = 2;   // kept values on their way to and from homes that are not on the gpu
    uint32_t ram_kept = 2;
    // Gradients on their way to nvme, where updates under backward fetch those of the step before:
    // in one ring the next layer's updates would wait for this layer's gradients.
    uint32_t ram_stash_out = 2;
    bool operator==(const RingSizes&) const = default;
};

// When the run becomes durable: with every step, by ops of the list, or at saves, by whoever turns
// the steps, after a drain.
enum class CommitAt : uint8_t { every_step, saves };

// The planner's answer, as far as the schedule needs it. None of it changes a bit of the result.
struct Plan {
    uint32_t group = 1;            // micro-batches per pass over the layers
    uint32_t window = 2;           // layers in flight on the gpu
    std::vector<PartHomes> homes;  // one per part
    std::vector<Tier> act_homes;   // one per boundary, 0 to head_layer (0 and the last unused)
    // One per layer: where it keeps for its backward; nothing: its backward recomputes. Empty: no
    // layer keeps. Only the layers between the first and the last can. Evaluation keeps nothing.
    std::vector<std::optional<Tier>> kept_homes;
    // Parts whose update is computed twice: before forward for hi alone, which is used and thrown
    // away, and in backward from the same old state for all of it, which is written. Reads 12 bytes
    // more per parameter and keeps the drives busy through backward, at any clip rate and with the
    // same bits. Empty: none; else one per part. Only parts with hi and opt on nvme that
    // can_update_twice.
    std::vector<bool> twice;
    RingSizes rings;
    uint32_t path_count = 0;  // of the store that commits go to; 0: nothing is ever committed
    CommitAt commit_at = CommitAt::every_step;
    // Of every durable place. One: only where nothing commits while steps are under way.
    Copies durable_copies = Copies::two;
    bool operator==(const Plan&) const = default;
};

// Every part and boundary on one tier each.
Plan uniform_plan(const Workload& workload, PartHomes homes, Tier act_home);

// First reason why this plan cannot be built for this workload, or null.
const char* find_fault(const Workload& workload, const Plan& plan);

struct SlotTable {
    std::vector<Slot> slots;
    uint64_t workspace_offset_bytes = 0;

    // Homes, by part; acc by part * 2 + use (no_slot where none is needed); act by boundary, then
    // by place in the group; kept by layer, then by place (none where the layer does not keep).
    std::vector<SlotId> hi, opt, stash, acc;
    // Mirrors, by part; no_slot where the home is on nvme, or nothing is ever committed.
    std::vector<SlotId> hi_mirror, opt_mirror;
    std::vector<std::vector<SlotId>> act, kept;
    // Control.
    std::vector<SlotId> norm, flushed;
    SlotId verdict = no_slot, journal = no_slot, committed = no_slot;
    // Rings; empty where no value of the plan passes through.
    std::vector<SlotId> gpu_hi, gpu_acc, gpu_seam, gpu_stash, gpu_act, gpu_dact, gpu_kept;
    std::vector<SlotId> ram_hi, ram_opt, ram_stash, ram_stash_out, ram_acc, ram_act, ram_kept;
};

// CHECKs that find_fault(workload, plan) is null.
SlotTable lay_slots(const Workload& workload, const Plan& plan);

// Whether a use's accumulator needs a home: there are several passes, or the part is used twice and
// this is the use whose gradient is ready first.
bool needs_acc_home(const Workload& workload, const Plan& plan, uint32_t part, uint8_t use);

// Not where two layers use the part (both need its new weight before backward reaches its owner),
// nor in the head, whose forward and backward are one visit.
bool can_update_twice(const Workload& workload, uint32_t part);

inline bool is_updated_twice(const Plan& plan, uint32_t part) {
    return !plan.twice.empty() && plan.twice[part];
}

// Plan::twice for a share, 0 to 1 (CHECK), of the parts that can, spread over the layers.
std::vector<bool> spread_twice(const Workload& workload, const std::vector<PartHomes>& homes,
                               double share);

// Whether any weight or state lives on nvme.
bool uses_nvme(const Plan& plan);

// How many steps of a new run are unlike all that follow: the first updates nothing, and until
// every copy of a place has been written once, drives have less to do (what was only reserved is
// read as zeros, without them).
int64_t warm_up_step_count(const Plan& plan);
inline constexpr int64_t warm_up_step_count_max = 3;

// Which rings a plan has. Weights, states and gradients of parts pass through a tier's ring where
// any of their homes is on another tier (the update is in ram, the rest on the gpu); what layers
// keep does where any keeps on a farther one.
bool passes_through(const Plan& plan, Tier PartHomes::*kind, Tier tier);
bool keeps_beyond(const Plan& plan, Tier tier);
// Whether gradients leave by a ring of their own, however many updates are computed twice; else by
// the one through which they are fetched.
bool has_stash_out(const Plan& plan);

// Micro-batches of the largest pass: how many homes boundaries and layers that keep have.
uint32_t group_max(const Workload& workload, const Plan& plan);
// Whether the largest step takes several passes, between which accumulators have homes.
bool has_several_passes(const Workload& workload, const Plan& plan);

// Whether the list ends with a commit.
inline bool commits_every_step(const Plan& plan) {
    return plan.path_count > 0 && plan.commit_at == CommitAt::every_step;
}

}  // namespace headrace::offload
