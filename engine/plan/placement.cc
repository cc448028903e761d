#include "engine/plan/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "engine/models/effort.h"
#include "engine/plan/places.h"
#include "engine/plan/purposes.h"
#include "nvme/nvme_store.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::ErrorCode;
using offload::excess;
using offload::format_bytes;
using offload::Kind;
using offload::Plan;
using offload::Result;
using offload::Tier;
using offload::Workload;

namespace {

// Parts are so large that a model has about this many: finer ones only cost time.
constexpr uint64_t usual_part_count = 192;
constexpr uint64_t part_bytes_least = 4 * offload::mib;
constexpr uint64_t part_bytes_most = 64 * offload::mib;
// Smaller parts save no more than what passes through one slot of every ring: weight, state,
// gradient and accumulator in ram, gradients on the gpu, 11 bytes for each byte of a bf16 weight.
constexpr uint64_t ring_bytes_per_part_byte = 16;

bool has_paths(const RunConfig& config) {
    return !config.offload.nvme_paths.empty();
}

// Largest first: smaller parts need smaller rings, where there is little room.
std::vector<uint64_t> part_sizes(const RunConfig& config, uint64_t parameter_count) {
    if (config.offload.advanced.part_bytes) return {*config.offload.advanced.part_bytes};
    std::vector<uint64_t> sizes = {automatic_part_bytes(config.dtype, parameter_count)};
    for (const uint64_t smaller : {4 * offload::mib, offload::mib, 256 * offload::kib}) {
        if (smaller < sizes.back()) sizes.push_back(smaller);
    }
    return sizes;
}

std::optional<uint32_t> count_of(const std::optional<int64_t>& fixed) {
    if (!fixed) return std::nullopt;
    CHECK_GE(*fixed, 0);
    return static_cast<uint32_t>(std::min<int64_t>(*fixed, std::numeric_limits<uint32_t>::max()));
}

std::optional<offload::KeptCounts> kept_by(const AdvancedConfig& advanced) {
    const auto gpu = count_of(advanced.blocks_kept_on_gpu);
    const auto ram = count_of(advanced.blocks_kept_in_ram);
    const auto nvme = count_of(advanced.blocks_kept_on_nvme);
    if (!gpu && !ram && !nvme) return std::nullopt;
    return offload::KeptCounts{
        .gpu = gpu.value_or(0), .ram = ram.value_or(0), .nvme = nvme.value_or(0)};
}

offload::Fixed fixed_by(const RunConfig& config) {
    const AdvancedConfig& advanced = config.offload.advanced;
    offload::Fixed fixed{.parameters = config.offload.parameters,
                         .optimizer = config.offload.optimizer,
                         .activations = config.offload.activations,
                         .stash = advanced.stash_tier,
                         .accumulators = advanced.accumulator_tier,
                         .group = count_of(advanced.micro_batches_per_pass),
                         .window = count_of(advanced.layers_in_flight),
                         .twice_share = advanced.update_twice,
                         .ring_slots = count_of(advanced.ring_slots),
                         .kept = kept_by(advanced),
                         .keeps = std::nullopt};
    if (config.gradient_checkpointing) fixed.keeps = !*config.gradient_checkpointing;
    return fixed;
}

// On nvme with the maps that each path of the store holds beside its places.
uint64_t store_bytes_of(const Workload& workload, const offload::SlotTable& table,
                        uint32_t path_count) {
    const std::vector<offload::PlaceSpec> places = places_of(workload.layout, table.slots);
    return places.empty() ? 0 : nvme::store_bytes_of(places, std::max(1u, path_count));
}

uint64_t missing_of(const Budgets& needs, const Site& site) {
    return shortfall(needs, site.ceilings) +
           excess(needs.gpu_bytes + needs.ram_bytes, site.memory_bytes);
}

uint64_t block_count(const Workload& workload) {
    return layer_count(workload) - 2;
}

// A drive without a budget may be filled: its ceiling is no number that anybody gave.
std::string tier_line(std::string_view name, uint64_t needed, uint64_t given) {
    return fmt::format("{} {} of {}{}", name, format_bytes(needed),
                       given == unlimited_bytes ? "what is free" : format_bytes(given),
                       needed > given ? " (too little)" : "");
}

// Rounded up to whole MiB, so that what the message proposes is enough when typed.
std::string whole_mib(uint64_t size_bytes) {
    return fmt::format("{}MiB", offload::div_ceil(size_bytes, offload::mib));
}

offload::Error does_not_fit(const Job& job, const RunConfig& config, const Budgets& needs,
                            const Site& site) {
    const Budgets& budgets = site.ceilings;
    // The host device's card is memory of this machine too, so both tiers come out of what is free,
    // however large the budgets are.
    const uint64_t lacking_bytes = excess(needs.gpu_bytes + needs.ram_bytes, site.memory_bytes);
    std::string remedy;
    std::string beyond;  // what no budget can give
    // What is free on the drives cannot be raised by a setting.
    const bool is_free_space = has_paths(config) && !config.offload.nvme_budget_bytes;
    for (const Tier tier : offload::all_tiers) {
        const uint64_t needed = needs.on(tier);
        if (needed <= budgets.on(tier) || (tier == Tier::nvme && is_free_space)) continue;
        remedy += fmt::format("{}{}_budget={}", remedy.empty() ? "" : " ", name_of(tier),
                              whole_mib(needed));
        if (needed <= site.capacity.on(tier)) continue;
        beyond += fmt::format("{}{} for {}", beyond.empty() ? "" : " and ",
                              format_bytes(site.capacity.on(tier)), name_of(tier));
    }
    CHECK(beyond.empty() || !remedy.empty());
    std::string text = fmt::format("this job does not fit: at least it needs {}, {}, {}",
                                   tier_line("gpu", needs.gpu_bytes, budgets.gpu_bytes),
                                   tier_line("ram", needs.ram_bytes, budgets.ram_bytes),
                                   tier_line("nvme", needs.nvme_bytes, budgets.nvme_bytes));
    if (is_free_space && needs.nvme_bytes > budgets.nvme_bytes) {
        text += fmt::format(
            "; on nvme_paths ({}) the store needs {} ({} bytes) and may take {} ({} bytes) of what "
            "is free: free {} more there, or name another drive",
            fmt::join(config.offload.nvme_paths, ", "), format_bytes(needs.nvme_bytes),
            needs.nvme_bytes, format_bytes(budgets.nvme_bytes), budgets.nvme_bytes,
            format_bytes(needs.nvme_bytes - budgets.nvme_bytes));
    }
    if (!beyond.empty()) {
        text += fmt::format("; no budget makes it fit: {} has {}", site.machine.name, beyond);
    } else if (lacking_bytes == 0) {
        if (!remedy.empty()) text += "; it would fit with " + remedy;
    } else {
        text += fmt::format(
            "; gpu and ram are both memory of this machine, which has {} free of the {} needed: "
            "free {}, or keep parameters, optimizer and activations on nvme",
            format_bytes(site.memory_bytes), format_bytes(needs.gpu_bytes + needs.ram_bytes),
            format_bytes(lacking_bytes));
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
    if (site.path_count == 0 && site.capacity.nvme_bytes > 0) {
        text += "; or name drives: --nvme PATH, or nvme_paths=[PATH]";
    } else if (site.path_count == 0) {
        text += fmt::format("; {} has no drive: its file names none", site.machine.name);
    }
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

LlamaConfig one_block_of(const LlamaConfig& model) {
    LlamaConfig one = model;
    one.block_count = 1;
    return one;
}

uint64_t ceiling_of_free(uint64_t free_bytes) {
    return free_bytes / 5 * 4;
}

uint64_t free_of_ceiling(uint64_t ceiling_bytes) {
    CHECK_LE(ceiling_bytes, unlimited_bytes);
    return ceiling_bytes / 4 * 5;
}

Budgets budgets_of(const OffloadConfig& config, const FreeMemory& memory) {
    const uint64_t share = ceiling_of_free(memory.available_bytes) / 2;  // of both tiers
    return {.gpu_bytes = config.gpu_budget_bytes.value_or(share),
            .ram_bytes = config.ram_budget_bytes.value_or(share),
            .nvme_bytes = config.nvme_budget_bytes.value_or(
                config.nvme_paths.empty() ? 0 : memory.drive_bytes)};
}

offload::CommitRule commits_of(const RunConfig& config, uint32_t path_count) {
    using offload::CommitAt;
    if (path_count == 0) return {.on_nvme = std::nullopt, .in_memory = std::nullopt};
    switch (config.offload.commit) {
        case CommitMode::every_step: return {CommitAt::every_step, CommitAt::every_step};
        case CommitMode::at_saves: return {CommitAt::saves, CommitAt::saves};
        case CommitMode::automatic: break;
    }
    const auto& parameters = config.offload.parameters;
    const auto& optimizer = config.offload.optimizer;
    if (!parameters || !optimizer) return {CommitAt::every_step, CommitAt::saves};
    const TierShares on_nvme = TierShares::all_on(Tier::nvme);
    if (*parameters == on_nvme && *optimizer == on_nvme) {
        return {CommitAt::every_step, CommitAt::every_step};
    }
    if (config.save_steps || config.resume_from_checkpoint) {
        return {CommitAt::saves, CommitAt::saves};
    }
    return {.on_nvme = std::nullopt, .in_memory = std::nullopt};
}

bool may_keep_one_copy(const RunConfig& config, uint32_t path_count) {
    const offload::CommitRule rule = commits_of(config, path_count);
    const auto saves = offload::CommitAt::saves;
    return !config.save_steps && (rule.on_nvme == saves || rule.in_memory == saves);
}

std::optional<offload::CommitAt> commit_of(const Plan& plan) {
    if (plan.path_count == 0) return std::nullopt;
    return plan.commit_at;
}

std::string describe_commit(const RunConfig& config, const Plan& plan) {
    const auto commit_at = commit_of(plan);
    if (!commit_at) {
        return "never: a crash costs the whole run; with nvme_paths, commit=every_step or "
               "save_steps=N make it resumable";
    }
    if (*commit_at == offload::CommitAt::every_step) {
        return "every step: a crash costs at most two steps";
    }
    if (plan.durable_copies == offload::Copies::one) {
        return "at the end, or when asked to stop; there is room for one copy of it all, "
               "so a crash costs the whole run, also one that was resumed";
    }
    if (!config.save_steps) {
        return "at the end, or when asked to stop: a crash costs the whole run; save_steps "
               "or commit=every_step make that less";
    }
    return fmt::format("at saves, every {} steps: a crash costs what came after the last",
                       *config.save_steps);
}

Site site_of(const RunConfig& config, const FreeMemory& memory, const offload::Machine& machine) {
    return {.machine = machine,
            .ceilings = budgets_of(config.offload, memory),
            .memory_bytes = memory.available_bytes,
            .path_count = static_cast<uint32_t>(config.offload.nvme_paths.size())};
}

Site site_of(const RunConfig& config, const MachineFile& file) {
    const OffloadConfig& offload = config.offload;
    Site site{
        .machine = file.machine,
        .ceilings = {.gpu_bytes = offload.gpu_budget_bytes.value_or(file.ceilings.gpu_bytes),
                     .ram_bytes = offload.ram_budget_bytes.value_or(file.ceilings.ram_bytes),
                     .nvme_bytes = offload.nvme_budget_bytes.value_or(file.ceilings.nvme_bytes)},
        .path_count = has_paths(config) ? static_cast<uint32_t>(offload.nvme_paths.size())
                                        : file.drive_count};
    if (file.machine.compute_cores > 0) {
        site.memory_bytes = free_of_ceiling(file.ceilings.gpu_bytes + file.ceilings.ram_bytes);
        site.capacity.nvme_bytes = file.ceilings.nvme_bytes;
    } else {
        site.capacity = file.ceilings;
    }
    for (const Tier tier : offload::all_tiers) {
        site.ceilings.on(tier) = std::min(site.ceilings.on(tier), site.capacity.on(tier));
    }
    return site;
}

uint64_t automatic_part_bytes(offload::Dtype dtype, uint64_t parameter_count) {
    const uint64_t model_bytes = bytes_of(dtype, parameter_count);
    return std::clamp(std::bit_ceil(model_bytes / usual_part_count + 1), part_bytes_least,
                      part_bytes_most);
}

offload::Question question_of(const Workload& workload, const offload::Effort& effort,
                              const RunConfig& config, const Site& site) {
    offload::Question question{.workload = workload,
                               .machine = site.machine,
                               .effort = effort,
                               .ceilings = site.ceilings,
                               .memory_ceiling_bytes = site.memory_bytes,
                               .path_count = site.path_count,
                               .fixed = fixed_by(config),
                               .commits = commits_of(config, site.path_count)};
    const bool is_room_known = has_paths(config) && site.ceilings.nvme_bytes < unlimited_bytes;
    if (config.offload.nvme_budget_bytes || is_room_known) {
        question.store_bytes = [&workload, &site](const offload::SlotTable& table) {
            return store_bytes_of(workload, table, site.path_count);
        };
    }
    return question;
}

namespace {

Placement placement_of(Workload workload, offload::Answer answer, uint64_t part_bytes,
                       const Site& site) {
    offload::Candidate& best = answer.best;
    Placement placement{.part_bytes = part_bytes,
                        .workload = std::move(workload),
                        .plan = std::move(best.plan),
                        .budgets = site.ceilings,
                        .needs = best.needs,
                        .base = best.base,
                        .choice = best.choice,
                        .forecast = best.forecast,
                        .simulated_count = 1 + answer.others.size()};
    if (best.needs.nvme_bytes > 0) {
        placement.needs.nvme_bytes = store_bytes_of(
            placement.workload, lay_slots(placement.workload, placement.plan), site.path_count);
    }
    return placement;
}

// A placement, or what the nearest one would need.
struct Found {
    std::optional<Placement> placement{};
    Budgets nearest{};
};

// With so many copies of what is durable, if nothing commits while steps are under way.
Result<Found> look_for(offload::Copies copies, const Job& job, const RunConfig& config,
                       const Site& site) {
    const offload::Effort effort = effort_of(job.config, job.row_count_max, job.column_count_max);
    uint64_t least = std::numeric_limits<uint64_t>::max();
    Budgets nearest;
    for (const uint64_t part_bytes : part_sizes(config, parameter_count(job.config))) {
        Result<Workload> workload = workload_of(job, config, part_bytes);
        if (!workload) return workload.error();
        offload::Question question = question_of(*workload, effort, config, site);
        question.commits.copies = copies;
        Result<offload::Findings> found = search(question);
        if (!found) return found.error();
        if (found->answer) {
            return Found{.placement = placement_of(std::move(*workload), std::move(*found->answer),
                                                   part_bytes, site)};
        }
        const uint64_t missing = missing_of(found->nearest, site);
        if (missing < least) {
            least = missing;
            nearest = found->nearest;
        }
        if (missing > ring_bytes_per_part_byte * part_bytes) break;
    }
    return Found{.nearest = nearest};
}

// Needs that were found with more on nvme than they take. With just so much the search may begin
// elsewhere, and find nothing: then a little more is needed.
Budgets enough_nvme(offload::Copies copies, const Job& job, const RunConfig& config, Site site,
                    Budgets needs) {
    constexpr int attempts_max = 3;
    for (int attempt = 0; attempt < attempts_max; ++attempt) {
        site.ceilings.nvme_bytes = offload::align_up(needs.nvme_bytes, offload::mib);
        const Result<Found> again = look_for(copies, job, config, site);
        if (!again || again->placement) break;
        needs.nvme_bytes = std::max(needs.nvme_bytes + 1, again->nearest.nvme_bytes);
    }
    return needs;
}

// The nearest to the budgets may want what the machine does not have. The job may fit where it is
// farther from them: with a larger store, or with all that there is. Else `nearest`.
Budgets needs_with_more(offload::Copies copies, const Job& job, const RunConfig& config,
                        const Site& site, const Budgets& nearest) {
    if (site.path_count == 0 || shortfall(nearest, site.capacity) == 0) return nearest;
    for (const uint64_t nvme_bytes : {site.capacity.nvme_bytes, unlimited_bytes}) {
        for (const bool has_all : {false, true}) {
            Site more = site;
            if (has_all) more.ceilings = site.capacity;
            more.ceilings.nvme_bytes = nvme_bytes;
            if (more.ceilings == site.ceilings) continue;  // it was looked for there
            const Result<Found> found = look_for(copies, job, config, more);
            if (!found || !found->placement) continue;
            return enough_nvme(copies, job, config, more, found->placement->needs);
        }
    }
    return nearest;
}

Result<Placement> place_with(offload::Copies copies, const Job& job, const RunConfig& config,
                             const Site& site) {
    Result<Found> found = look_for(copies, job, config, site);
    if (!found) return found.error();
    if (found->placement) return std::move(*found->placement);
    const Budgets needs = needs_with_more(copies, job, config, site, found->nearest);
    return does_not_fit(job, config, needs, site);
}

bool fits_with(offload::Copies copies, const Job& job, const RunConfig& config, const Site& site) {
    const Result<Found> found = look_for(copies, job, config, site);
    return found && found->placement;
}

// Where two copies of everything do not fit, one may.
offload::Error with_one_copy(offload::Error refusal, const Job& job, const RunConfig& config,
                             const Site& site) {
    if (config.offload.commit == CommitMode::at_saves && !config.save_steps) return refusal;
    RunConfig changed = config;
    changed.offload.commit = CommitMode::at_saves;
    changed.save_steps.reset();
    if (!fits_with(offload::Copies::one, job, changed, site)) return refusal;
    refusal.what += fmt::format(
        "; or with commit=at_saves{}: the store then keeps one copy of everything, and a run can "
        "be resumed where it was stopped, but not after a crash",
        config.save_steps ? " and without save_steps" : "");
    return refusal;
}

// And what else would: smaller states, and tiers that the planner chooses.
offload::Error with_other_settings(offload::Error refusal, const Job& job, const RunConfig& config,
                                   const Site& site) {
    const auto fits = [&](const RunConfig& changed) {
        return fits_with(offload::Copies::two, job, changed, site);
    };
    RunConfig smaller = config;
    smaller.offload.optimizer_states = offload::StateFormat::int8;
    if (config.offload.optimizer_states != offload::StateFormat::int8 && fits(smaller)) {
        refusal.what += "; or with optimizer_states=int8";
    }
    RunConfig open = config;
    open.offload.parameters = open.offload.optimizer = open.offload.activations = std::nullopt;
    if (open != config && fits(open)) {
        refusal.what += "; or with parameters, optimizer and activations left to the planner";
    }
    return refusal;
}

}  // namespace

Result<Placement> place(const Job& job, const RunConfig& config, const Site& site) {
    CHECK_GT(job.micro_batch_count_max, 0);
    CHECK_EQ(job.kept_bytes % offload::page_bytes, 0u);
    using offload::Copies;
    const bool may_keep_one = may_keep_one_copy(config, site.path_count);
    if (may_keep_one && site.has_one_copy) return place_with(Copies::one, job, config, site);
    Result<Placement> placed = place_with(Copies::two, job, config, site);
    if (placed || placed.error().code != ErrorCode::does_not_fit) return placed;
    if (may_keep_one) {
        placed = place_with(Copies::one, job, config, site);
        if (placed || placed.error().code != ErrorCode::does_not_fit) return placed;
    }
    offload::Error refusal = placed.error();
    if (site.path_count > 0) refusal = with_one_copy(std::move(refusal), job, config, site);
    return with_other_settings(std::move(refusal), job, config, site);
}

namespace {

// "gpu 12 MiB, ram 3 MiB": where the homes of one kind are; empty: there are none.
std::string tiers_of(const HomeBytes& homes, Kind kind) {
    std::string where;
    for (const Tier tier : offload::all_tiers) {
        const uint64_t size_bytes = homes.of(kind, tier);
        if (size_bytes == 0) continue;
        where += fmt::format("{}{} {}", where.empty() ? "" : ", ", name_of(tier),
                             format_bytes(size_bytes));
    }
    return where;
}

std::string describe_keeping(const Placement& placement, const HomeBytes& homes) {
    const uint64_t blocks = block_count(placement.workload);
    const auto keeping = static_cast<uint64_t>(
        std::ranges::count_if(placement.plan.kept_homes, &std::optional<Tier>::has_value));
    if (keeping == 0) {
        return fmt::format("kept for backward: nothing, {} blocks are recomputed", blocks);
    }
    return fmt::format("kept for backward: {}, {} of {} blocks; {}", tiers_of(homes, Kind::kept),
                       keeping, blocks,
                       keeping == blocks ? "nothing is recomputed" : "the others are recomputed");
}

}  // namespace

std::vector<std::string> describe(const Placement& placement) {
    std::vector<std::string> lines;
    const HomeBytes homes(placement);
    for (const auto& [kind, name, in_full] : kind_names) {
        const std::string where = tiers_of(homes, kind);
        if (where.empty() || kind == Kind::kept) continue;
        const std::string format =
            kind == Kind::opt ? fmt::format(" in {}", name_of(placement.workload.states)) : "";
        lines.push_back(fmt::format("{}{}: {}", in_full, format, where));
    }
    lines.push_back(describe_keeping(placement, homes));
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
