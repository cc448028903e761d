#include "engine/plan/fixed_settings.h"

#include <algorithm>
#include <optional>

#include "engine/config/keys.h"

namespace headrace::engine {

using offload::Tier;

namespace {

// Cached parts are in ram, wherever the others are on nvme: the same row of parts that the planner
// chooses (offload/spread.h).
TierShares shares_of(Tier farthest, double cached_share) {
    TierShares shares = TierShares::all_on(farthest);
    if (farthest != Tier::nvme || cached_share <= 0) return shares;
    shares.share_of_tier = {0, cached_share, 1 - cached_share};
    return shares;
}

class Fixer {
  public:
    explicit Fixer(const RunConfig& config) : fixed_{.config = config, .keys = {}} {}

    template <typename T>
    void fix(std::string_view key, std::optional<T>& setting, T value) {
        if (setting) return;
        setting = std::move(value);
        note(key);
    }
    void note(std::string_view key) {
        CHECK(find_key(key) != nullptr);
        fixed_.keys.push_back(key);
    }

    RunConfig& config() { return fixed_.config; }
    FixedSettings take() { return std::move(fixed_); }

  private:
    FixedSettings fixed_;
};

void fix_advanced(const Placement& placement, Fixer& fixer) {
    AdvancedConfig& advanced = fixer.config().offload.advanced;
    const offload::Choice& choice = placement.choice;
    fixer.fix("offload.advanced.micro_batches_per_pass", advanced.micro_batches_per_pass,
              int64_t{choice.group});
    fixer.fix("offload.advanced.layers_in_flight", advanced.layers_in_flight,
              int64_t{choice.window});
    fixer.fix("offload.advanced.part_bytes", advanced.part_bytes, placement.part_bytes);
    fixer.fix("offload.advanced.stash_tier", advanced.stash_tier, stash_shares(placement.plan));
    if (choice.accumulators != Tier::gpu) {  // else it is chosen again: no key names it
        fixer.fix("offload.advanced.accumulator_tier", advanced.accumulator_tier,
                  choice.accumulators);
    }
    if (placement.base == offload::Base::nvme) {
        fixer.fix("offload.advanced.update_twice", advanced.update_twice, choice.twice_share);
    }
    fixer.fix("offload.advanced.ring_slots", advanced.ring_slots, int64_t{choice.ring_slots});
    if (fixer.config().gradient_checkpointing) return;
    if (says_what_is_kept(advanced)) return;
    fixer.fix("offload.advanced.blocks_kept_on_gpu", advanced.blocks_kept_on_gpu,
              int64_t{choice.kept.gpu});
    fixer.fix("offload.advanced.blocks_kept_in_ram", advanced.blocks_kept_in_ram,
              int64_t{choice.kept.ram});
    if (choice.kept.nvme == 0) return;
    fixer.fix("offload.advanced.blocks_kept_on_nvme", advanced.blocks_kept_on_nvme,
              int64_t{choice.kept.nvme});
}

}  // namespace

FixedSettings fixed_settings(const RunConfig& config, const Placement& placement) {
    const offload::Choice& choice = placement.choice;
    CHECK_GE(choice.group, 1u);
    CHECK_GT(placement.part_bytes, 0u);
    CHECK(!placement.plan.homes.empty());
    CHECK_LE(choice.cached_share, 1.0);
    Fixer fixer(config);
    OffloadConfig& offload = fixer.config().offload;
    fixer.fix("offload.gpu_budget", offload.gpu_budget_bytes, placement.budgets.gpu_bytes);
    fixer.fix("offload.ram_budget", offload.ram_budget_bytes, placement.budgets.ram_bytes);
    fixer.fix("offload.parameters", offload.parameters, shares_of(choice.hi, choice.cached_share));
    fixer.fix("offload.optimizer", offload.optimizer, shares_of(choice.opt, choice.cached_share));
    fixer.fix("offload.activations", offload.activations,
              activation_shares(placement.workload, placement.plan));
    // Fixed homes would change when an automatic run commits.
    if (offload.commit == CommitMode::automatic && placement.plan.path_count > 0) {
        offload.commit = placement.plan.commit_at == offload::CommitAt::every_step
                             ? CommitMode::every_step
                             : CommitMode::at_saves;
        fixer.note("offload.commit");
    }
    fix_advanced(placement, fixer);
    FixedSettings fixed = fixer.take();
    CHECK_EQ(fixed.config.dtype, config.dtype);
    CHECK(fixed.config.offload.gradients == config.offload.gradients);
    CHECK(fixed.config.offload.advanced.compute_threads == config.offload.advanced.compute_threads);
    return fixed;
}

}  // namespace headrace::engine
