#include "engine/train/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/train/places.h"
#include "nvme/nvme_store.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::ErrorCode;
using offload::excess;
using offload::format_bytes;
using offload::Kind;
using offload::PartHomes;
using offload::Plan;
using offload::Result;
using offload::Tier;
using offload::Workload;

namespace {

constexpr uint64_t default_part_bytes = 4 * offload::mib;

// One way to leave open settings; the search tries them best first.
struct Choice {
    uint64_t part_bytes = 0;
    uint32_t window = 0;
    uint32_t group = 0;
    Tier activations = Tier::gpu;
    Tier stash = Tier::ram;
    Tier accumulator = Tier::ram;
    uint32_t ring_slots = 1;
};

// The tier of item `index` of `count` when the shares are spread evenly: each tier gets its share
// of every prefix, as near as whole items allow.
class Spread {
  public:
    explicit Spread(const TierShares& shares) : shares_(shares) {}

    Tier next() {
        ++item_count_;
        Tier best = Tier::nvme;
        double largest_debt = -std::numeric_limits<double>::infinity();
        for (const Tier tier : offload::all_tiers) {
            const auto i = static_cast<size_t>(tier);
            const double debt = shares_.share(tier) * item_count_ - given_[i];
            if (shares_.share(tier) <= 0 || debt <= largest_debt) continue;
            largest_debt = debt;
            best = tier;
        }
        given_[static_cast<size_t>(best)] += 1;
        return best;
    }

  private:
    const TierShares shares_;
    double item_count_ = 0;
    std::array<double, 3> given_ = {};
};

bool has_paths(const RunConfig& config) {
    return !config.offload.nvme_paths.empty();
}

TierShares parameters_of(const RunConfig& config) {
    return config.offload.parameters.value_or(
        TierShares::all_on(has_paths(config) ? Tier::nvme : Tier::gpu));
}

TierShares optimizer_of(const RunConfig& config) {
    return config.offload.optimizer.value_or(
        TierShares::all_on(has_paths(config) ? Tier::nvme : Tier::ram));
}

// Weights: by part, but a layer that is on the gpu is there as a whole.
void place_parameters(const Workload& workload, const TierShares& shares, Plan& plan) {
    const bool by_layer = shares.share(Tier::gpu) > 0;
    Spread spread(shares);
    for (const offload::LayerLayout& layer : workload.layout.layers) {
        Tier tier = by_layer ? spread.next() : Tier::ram;
        for (uint32_t i = 0; i < layer.part_count; ++i) {
            if (!by_layer) tier = spread.next();
            plan.homes[layer.first_part + i].hi = tier;
        }
    }
}

Plan plan_of(const Workload& workload, const RunConfig& config, const Choice& choice) {
    Plan plan = offload::uniform_plan(
        workload, PartHomes{.stash = choice.stash, .acc = choice.accumulator}, choice.activations);
    place_parameters(workload, parameters_of(config), plan);
    Spread states(optimizer_of(config));
    for (PartHomes& homes : plan.homes) homes.opt = states.next();
    if (config.offload.activations) {
        Spread boundaries(*config.offload.activations);
        for (Tier& home : plan.act_homes) home = boundaries.next();
    }
    plan.twice = offload::spread_twice(workload, plan.homes, config.offload.advanced.update_twice);
    plan.group = choice.group;
    plan.window = choice.window;
    if (const auto commit_at = commit_of(config)) {
        plan.path_count = static_cast<uint32_t>(config.offload.nvme_paths.size());
        plan.commit_at = *commit_at;
    }
    const uint32_t slots = choice.ring_slots;
    plan.rings = {.ram_hi = slots,
                  .ram_opt = slots,
                  .ram_stash = slots,
                  .ram_acc = slots,
                  .ram_act = std::max(2u, slots),
                  .gpu_stash = 2,
                  .gpu_seam = 1};
    return plan;
}

// What the slots take; on nvme with the maps that each path of the store holds beside its places.
Budgets needs_of(const Workload& workload, const Plan& plan, size_t path_count) {
    const offload::SlotTable table = lay_slots(workload, plan);
    Budgets needs = bytes_needed(workload, table);
    const std::vector<offload::PlaceSpec> places = places_of(workload.layout, table.slots);
    if (!places.empty()) {
        needs.nvme_bytes = nvme::store_bytes_of(places, std::max<size_t>(1, path_count));
    }
    return needs;
}

// The host device's card is memory of this machine too, so both tiers come out of what is free,
// however large the budgets are.
uint64_t machine_excess(const Budgets& needs, const FreeMemory& memory) {
    return excess(needs.gpu_bytes + needs.ram_bytes, memory.available_bytes);
}

uint64_t shortfall(const Budgets& needs, const Budgets& budgets, const FreeMemory& memory) {
    return shortfall(needs, budgets) + machine_excess(needs, memory);
}

// How many blocks keep what their backward needs, and where.
struct Keeping {
    uint64_t gpu_block_count = 0;
    uint64_t ram_block_count = 0;

    uint64_t block_count() const { return gpu_block_count + ram_block_count; }
};

uint64_t block_count(const Workload& workload) {
    return layer_count(workload) - 2;
}

// The most blocks that can keep in what the plan leaves free of `budgets` and of the machine.
Keeping most_keeping(const Workload& workload, const Plan& plan, const Budgets& needs,
                     const Budgets& budgets, const FreeMemory& memory) {
    if (workload.kept_bytes == 0) return {};
    const uint64_t blocks = block_count(workload);
    const uint64_t block_bytes =
        workload.kept_bytes * std::min(plan.group, workload.micro_batch_count_max);
    const uint64_t machine_free = excess(memory.available_bytes, needs.gpu_bytes + needs.ram_bytes);
    const uint64_t gpu_free = std::min(machine_free, excess(budgets.gpu_bytes, needs.gpu_bytes));
    const Keeping on_gpu{.gpu_block_count = std::min(blocks, gpu_free / block_bytes)};
    // Ram is reached through a ring on the gpu.
    const uint64_t ring_bytes = workload.kept_bytes * plan.rings.gpu_kept;
    if (on_gpu.block_count() == blocks || gpu_free < ring_bytes) return on_gpu;
    Keeping on_both{.gpu_block_count = (gpu_free - ring_bytes) / block_bytes};
    const uint64_t ram_free =
        std::min(machine_free - ring_bytes - on_both.gpu_block_count * block_bytes,
                 excess(budgets.ram_bytes, needs.ram_bytes));
    on_both.ram_block_count = std::min(blocks - on_both.gpu_block_count, ram_free / block_bytes);
    return on_both.block_count() > on_gpu.block_count() ? on_both : on_gpu;
}

// The last blocks on the gpu, those before them in ram.
void keep(const Workload& workload, const Keeping& keeping, Plan& plan) {
    CHECK_LE(keeping.block_count(), block_count(workload));
    plan.kept_homes.assign(layer_count(workload), std::nullopt);
    for (uint64_t i = 0; i < keeping.block_count(); ++i) {
        plan.kept_homes[head_layer(workload) - 1 - i] =
            i < keeping.gpu_block_count ? Tier::gpu : Tier::ram;
    }
}

template <typename T>
std::vector<T> fixed_or(const std::optional<T>& fixed, std::vector<T> open) {
    return fixed ? std::vector<T>{*fixed} : std::move(open);
}

std::vector<Tier> tiers_from(Tier nearest, bool with_nvme) {
    std::vector<Tier> tiers;
    for (const Tier tier : offload::all_tiers) {
        if (tier < nearest || (tier == Tier::nvme && !with_nvme)) continue;
        tiers.push_back(tier);
    }
    return tiers;
}

// All ways to leave open what is open, best first. The last loops vary fastest: rings shrink before
// a tier changes, a tier changes before passes multiply. Rings of one slot, without any overlap,
// come last of all.
std::vector<Choice> choices_for(const Job& job, const RunConfig& config) {
    const AdvancedConfig& advanced = config.offload.advanced;
    const bool with_nvme = has_paths(config);
    const auto layers = static_cast<int64_t>(layers_of(job.config).size());
    std::vector<int64_t> groups;
    for (int64_t g = job.micro_batch_count_max; g >= 1; g /= 2) groups.push_back(g);
    std::vector<Choice> choices;
    for (const uint64_t part_bytes :
         fixed_or(advanced.part_bytes, {default_part_bytes, offload::mib, 256 * offload::kib})) {
        for (const int64_t group : fixed_or(advanced.micro_batches_per_pass, groups)) {
            for (const int64_t window : fixed_or(advanced.layers_in_flight, {2, 1})) {
                for (const Tier act : tiers_from(Tier::gpu, with_nvme)) {
                    for (const Tier stash :
                         fixed_or(advanced.stash_tier, tiers_from(Tier::ram, with_nvme))) {
                        for (const Tier accumulator : fixed_or(advanced.accumulator_tier,
                                                               tiers_from(Tier::ram, with_nvme))) {
                            for (const uint32_t slots : {6u, 4u, 3u, 2u}) {
                                choices.push_back(
                                    {.part_bytes = part_bytes,
                                     .window = static_cast<uint32_t>(std::min(window, layers)),
                                     .group = static_cast<uint32_t>(
                                         std::min(group, job.micro_batch_count_max)),
                                     .activations = act,
                                     .stash = stash,
                                     .accumulator = accumulator,
                                     .ring_slots = slots});
                            }
                        }
                    }
                }
            }
        }
    }
    const size_t overlapping_count = choices.size();
    for (size_t i = 0; i < overlapping_count; ++i) {
        choices.push_back(choices[i]);
        choices.back().ring_slots = 1;
    }
    return choices;
}

// A drive without a budget may be filled: its ceiling is no number that anybody gave.
std::string tier_line(std::string_view name, uint64_t needed, uint64_t given) {
    return fmt::format("{} {} of {}{}", name, format_bytes(needed),
                       given > uint64_t{1} << 60 ? "what is free" : format_bytes(given),
                       needed > given ? " (too little)" : "");
}

// Rounded up to whole MiB, so that what the message proposes is enough when typed.
std::string whole_mib(uint64_t size_bytes) {
    return fmt::format("{}MiB", offload::div_ceil(size_bytes, offload::mib));
}

offload::Error does_not_fit(const Job& job, const RunConfig& config, const Budgets& needs,
                            const Budgets& budgets, const FreeMemory& memory) {
    std::string remedy;
    const auto propose = [&](std::string_view key, uint64_t needed, uint64_t given) {
        if (needed <= given) return;
        remedy += fmt::format("{}{}={}", remedy.empty() ? "" : " ", key, whole_mib(needed));
    };
    propose("gpu_budget", needs.gpu_bytes, budgets.gpu_bytes);
    propose("ram_budget", needs.ram_bytes, budgets.ram_bytes);
    propose("nvme_budget", needs.nvme_bytes, budgets.nvme_bytes);
    std::string text = fmt::format("this job does not fit: at least it needs {}, {}, {}",
                                   tier_line("gpu", needs.gpu_bytes, budgets.gpu_bytes),
                                   tier_line("ram", needs.ram_bytes, budgets.ram_bytes),
                                   tier_line("nvme", needs.nvme_bytes, budgets.nvme_bytes));
    if (machine_excess(needs, memory) == 0) {
        text += "; it would fit with " + remedy;
    } else {
        text += fmt::format(
            "; gpu and ram are both memory of this machine, which has {} free of the {} needed: "
            "free {}, or keep parameters, optimizer and activations on nvme",
            format_bytes(memory.available_bytes), format_bytes(needs.gpu_bytes + needs.ram_bytes),
            format_bytes(machine_excess(needs, memory)));
    }
    if (needs.gpu_bytes > budgets.gpu_bytes) {
        text += fmt::format(
            "; or lower max_length or per_device_train_batch_size ({} rows of {} tokens need {} of "
            "workspace and {} per boundary activation)",
            job.row_count_max, job.column_count_max, format_bytes(job.workspace_bytes),
            format_bytes(bytes_of(config.dtype,
                                  static_cast<uint64_t>(job.row_count_max * job.column_count_max *
                                                        job.config.hidden_size))));
    }
    if (config.gradient_checkpointing == false) {
        text +=
            "; or let blocks that find no room be computed again in backward: "
            "gradient_checkpointing=auto";
    }
    if (!has_paths(config)) text += "; or name drives with nvme_paths=[PATH]";
    return {ErrorCode::does_not_fit, std::move(text), ""};
}

}  // namespace

Result<offload::Layout> layout_of(const LlamaConfig& model, offload::Dtype dtype,
                                  uint64_t part_bytes) {
    const uint64_t block_bytes = bytes_of(dtype, offload::block_elements);
    const uint64_t blocks = std::max<uint64_t>(1, part_bytes / block_bytes);
    return offload::make_layout(layers_of(model), blocks * offload::block_elements);
}

Result<Workload> workload_of(const Job& job, const RunConfig& config, uint64_t part_bytes) {
    auto layout = layout_of(job.config, config.dtype, part_bytes);
    if (!layout) return layout.error();
    Workload workload;
    workload.layout = std::move(*layout);
    workload.dtype = config.dtype;
    workload.gradients = config.offload.gradients;
    workload.states = config.offload.optimizer_states;
    workload.micro_batch_count = static_cast<uint32_t>(job.micro_batch_count_max);
    workload.micro_batch_count_max = workload.micro_batch_count;
    const int64_t act_elements = job.row_count_max * job.column_count_max * job.config.hidden_size;
    workload.act_bytes = offload::align_up(
        bytes_of(config.dtype, static_cast<uint64_t>(act_elements)), offload::page_bytes);
    workload.workspace_bytes = offload::align_up(job.workspace_bytes, offload::page_bytes);
    workload.kept_bytes = job.kept_bytes;
    return workload;
}

Budgets budgets_of(const OffloadConfig& config, const FreeMemory& memory) {
    // Both tiers share what is free, with a fifth left over.
    const uint64_t share = memory.available_bytes / 5 * 2;
    return {.gpu_bytes = config.gpu_budget_bytes.value_or(share),
            .ram_bytes = config.ram_budget_bytes.value_or(share),
            .nvme_bytes = config.nvme_budget_bytes.value_or(
                config.nvme_paths.empty() ? 0 : std::numeric_limits<int64_t>::max())};
}

std::optional<offload::CommitAt> commit_of(const RunConfig& config) {
    using offload::CommitAt;
    switch (config.offload.commit) {
        case CommitMode::every_step: return CommitAt::every_step;
        case CommitMode::at_saves: return CommitAt::saves;
        case CommitMode::automatic: break;
    }
    if (!has_paths(config)) return std::nullopt;
    const bool is_all_on_nvme = parameters_of(config) == TierShares::all_on(Tier::nvme) &&
                                optimizer_of(config) == TierShares::all_on(Tier::nvme);
    if (is_all_on_nvme) return CommitAt::every_step;
    if (config.save_steps || config.resume_from_checkpoint) return CommitAt::saves;
    return std::nullopt;
}

std::string describe_commit(const RunConfig& config) {
    const auto commit_at = commit_of(config);
    if (!commit_at) {
        return "commit: never: a crash costs the whole run; with nvme_paths, commit=every_step or "
               "save_steps=N make it resumable";
    }
    if (*commit_at == offload::CommitAt::every_step) {
        return "commit: every step: a crash costs at most two steps";
    }
    if (!config.save_steps) {
        return "commit: at the end, or when asked to stop: a crash costs the whole run; save_steps "
               "or commit=every_step make that less";
    }
    return fmt::format("commit: at saves, every {} steps: a crash costs what came after the last",
                       *config.save_steps);
}

Result<Placement> place(const Job& job, const RunConfig& config, const FreeMemory& memory) {
    CHECK_GT(job.micro_batch_count_max, 0);
    CHECK_EQ(job.kept_bytes % offload::page_bytes, 0u);
    const size_t path_count = config.offload.nvme_paths.size();
    const bool must_keep = config.gradient_checkpointing == false;
    const Budgets budgets = budgets_of(config.offload, memory);
    uint64_t least = std::numeric_limits<uint64_t>::max();
    Budgets nearest;
    uint64_t part_bytes = 0;
    Workload workload;
    for (const Choice& choice : choices_for(job, config)) {
        if (choice.part_bytes != part_bytes) {
            auto made = workload_of(job, config, choice.part_bytes);
            if (!made) return made.error();
            workload = std::move(*made);
            part_bytes = choice.part_bytes;
        }
        Plan plan = plan_of(workload, config, choice);
        if (const char* fault = find_fault(workload, plan)) {
            return offload::Error{ErrorCode::usage, "the placement cannot be", fault};
        }
        Budgets needs = needs_of(workload, plan, path_count);
        Keeping keeping;
        if (shortfall(needs, budgets, memory) == 0 && config.gradient_checkpointing != true) {
            keeping = most_keeping(workload, plan, needs, budgets, memory);
        }
        if (must_keep && keeping.block_count() < block_count(workload)) {
            keeping = {.gpu_block_count = block_count(workload)};  // for the numbers
        }
        if (keeping.block_count() > 0) {
            keep(workload, keeping, plan);
            needs = needs_of(workload, plan, path_count);
        }
        const uint64_t missing = shortfall(needs, budgets, memory);
        if (missing == 0) {
            return Placement{part_bytes, workload, std::move(plan), budgets, needs};
        }
        if (missing >= least) continue;
        least = missing;
        nearest = needs;
    }
    return does_not_fit(job, config, nearest, budgets, memory);
}

uint64_t home_bytes(const Placement& placement, Kind kind, Tier tier) {
    uint64_t size_bytes = 0;
    for (const offload::Slot& slot : lay_slots(placement.workload, placement.plan).slots) {
        if (slot.is_home && slot.kind == kind && slot.tier == tier) {
            size_bytes += slot.size_bytes * slot.copy_count;
        }
    }
    return size_bytes;
}

namespace {

// "gpu 12 MiB, ram 3 MiB": where the homes of one kind are; empty: there are none.
std::string tiers_of(const Placement& placement, Kind kind) {
    std::string where;
    for (const Tier tier : offload::all_tiers) {
        const uint64_t size_bytes = home_bytes(placement, kind, tier);
        if (size_bytes == 0) continue;
        where += fmt::format("{}{} {}", where.empty() ? "" : ", ", name_of(tier),
                             format_bytes(size_bytes));
    }
    return where;
}

std::string describe_keeping(const Placement& placement) {
    const uint64_t blocks = block_count(placement.workload);
    const auto keeping = static_cast<uint64_t>(
        std::ranges::count_if(placement.plan.kept_homes, &std::optional<Tier>::has_value));
    if (keeping == 0) {
        return fmt::format("kept for backward: nothing, {} blocks are recomputed", blocks);
    }
    return fmt::format("kept for backward: {}, {} of {} blocks; {}",
                       tiers_of(placement, Kind::kept), keeping, blocks,
                       keeping == blocks ? "nothing is recomputed" : "the others are recomputed");
}

}  // namespace

std::vector<std::string> describe(const Placement& placement) {
    std::vector<std::string> lines;
    const std::array<std::pair<Kind, std::string_view>, 5> kinds = {
        {{Kind::hi, "weights"},
         {Kind::opt, "optimizer states"},
         {Kind::stash, "gradients, waiting for the verdict"},
         {Kind::acc, "accumulators, between uses"},
         {Kind::act, "boundary activations"}}};
    for (const auto& [kind, name] : kinds) {
        const std::string where = tiers_of(placement, kind);
        if (where.empty()) continue;
        const std::string format =
            kind == Kind::opt ? fmt::format(" in {}", name_of(placement.workload.states)) : "";
        lines.push_back(fmt::format("{}{}: {}", name, format, where));
    }
    lines.push_back(describe_keeping(placement));
    const Budgets& needs = placement.needs;
    const Budgets& budgets = placement.budgets;
    lines.push_back(fmt::format(
        "in all: {}, {}{}", tier_line("gpu", needs.gpu_bytes, budgets.gpu_bytes),
        tier_line("ram", needs.ram_bytes, budgets.ram_bytes),
        needs.nvme_bytes == 0 ? ""
                              : ", " + tier_line("nvme", needs.nvme_bytes, budgets.nvme_bytes)));
    lines.push_back(fmt::format(
        "{} parts of at most {}, {} layers in flight, {} of {} micro-batches per pass",
        placement.workload.layout.parts.size(),
        format_bytes(bytes_of(
            placement.workload.dtype,
            std::ranges::max(placement.workload.layout.parts, {}, &offload::Part::element_count)
                .element_count)),
        placement.plan.window, placement.plan.group, placement.workload.micro_batch_count_max));
    const auto twice = std::ranges::count(placement.plan.twice, true);
    if (twice > 0) {
        lines.push_back(
            fmt::format("{} of {} parts are updated twice: before forward for the "
                        "weight alone, in backward to be written",
                        twice, placement.plan.twice.size()));
    }
    return lines;
}

}  // namespace headrace::engine
