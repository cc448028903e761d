#include "engine/cli/plan_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/plan/placement.h"
#include "offload/check.h"
#include "offload/state_format.h"
#include "offload/units.h"
#include "offload/zero.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Result;
using offload::Tier;

namespace {

constexpr uint64_t sample_elements = 1 << 20;

Tier tier_of(const std::optional<TierShares>& shares) {
    for (const Tier tier : offload::all_tiers) {
        if (shares && shares->share(tier) == 1) return tier;
    }
    return Tier::gpu;
}

double bytes_each(uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(sample_elements);
}

}  // namespace

Result<std::string> judge_ranks(const PlanCommand& command, const RunConfig& config,
                                const LlamaConfig& model, const MachineFile& machine) {
    CHECK_GE(command.rank_count, 1u);
    const offload::ShardedStates states{
        .parameter_count = static_cast<double>(parameter_count(model)),
        .rank_count = command.rank_count,
        .ranks_per_node = std::min(command.ranks_per_node, command.rank_count),
        .stage = command.stage,
        .weight_bytes = bytes_each(bytes_of(config.dtype, sample_elements)),
        .gradient_bytes = bytes_each(bytes_of(config.offload.gradients, sample_elements)),
        .states_bytes =
            bytes_each(opt_bytes(config.dtype, config.offload.optimizer_states, sample_elements)),
        .weights = tier_of(config.offload.parameters),
        .gradients = Tier::gpu,
        .states = tier_of(config.offload.optimizer)};
    if (states.weights != Tier::gpu && states.stage != 3) {
        return Error{ErrorCode::usage,
                     fmt::format("offload.parameters: {} needs --stage 3: below it every card "
                                 "holds all weights",
                                 name_of(states.weights)),
                     ""};
    }
    const offload::TierBytes ceilings = site_of(config, machine).ceilings;
    const offload::Judgement judgement = judge(states, ceilings);
    const std::string better = judgement.better ? describe(*judgement.better) : "";
    const std::string asked = fmt::format("{} ranks, {}", command.rank_count, describe(states));
    switch (judgement.fit) {
        case offload::Fit::fits: return asked + ": fits, before activations\n";
        case offload::Fit::needlessly_slow:
            return fmt::format("{}: fits, and moves more than it must\nbetter     {}\n", asked,
                               better);
        case offload::Fit::does_not_fit: break;
    }
    return Error{ErrorCode::does_not_fit,
                 fmt::format("{}; a card of {} has {}, a node {} of ram and {} of drives", asked,
                             machine.machine.name, format_bytes(ceilings.gpu_bytes),
                             format_bytes(ceilings.ram_bytes), format_bytes(ceilings.nvme_bytes)),
                 better.empty() ? "nothing makes it fit but more cards, memory or drives"
                                : "the nearest that fits: " + better};
}

}  // namespace headrace::engine
