#include "engine/plan/forecast.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <future>
#include <iterator>
#include <tuple>

#include "engine/config/cores.h"
#include "engine/data/batch_plan.h"
#include "engine/models/effort.h"
#include "engine/models/shape.h"
#include "engine/plan/drive_writes.h"
#include "engine/plan/placement.h"
#include "engine/plan/purposes.h"
#include "engine/torch/ops/matmul_sizes.h"
#include "engine/torch/workspace_bytes.h"
#include "offload/bound.h"
#include "offload/build.h"
#include "offload/numbers.h"
#include "offload/sizes.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Forecast;
using offload::format_bytes;
using offload::format_count;
using offload::format_duration;
using offload::format_number;
using offload::format_seconds;
using offload::LaneKind;
using offload::Machine;
using offload::Result;
using offload::Tier;
using offload::TierBytes;
using offload::Workload;

namespace {

// What must be gained for a change to be worth naming.
constexpr double worth_naming = 0.97;
constexpr size_t remedy_simulations_max = 3;
constexpr size_t smaller_states_simulations_max = 1;

// A host is taken to have this one's arithmetic.
Job job_of(const RunConfig& config, const LlamaConfig& model, const Machine& machine) {
    const int64_t rows = config.per_device_train_batch_size;
    const LlamaConfig plain = without_extras(model);
    const AdvancedConfig& advanced = config.offload.advanced;
    // As a run pads its samples (engine/data/batch_plan.h).
    const auto columns = static_cast<int64_t>(
        offload::align_up(static_cast<uint64_t>(config.max_length), column_bucket));
    const BlockShape block = block_shape_of(plain, config.dtype, rows, columns);
    WorkspaceShape shape = shape_on_card(block, advanced.kernels);
    if (machine.compute_cores > 0) {
        shape.work = work_dtype(config.dtype);
        shape.thread_count = advanced.compute_threads.value_or(usable_core_count());
    }
    return {.config = model,
            .micro_batch_count_max = config.gradient_accumulation_steps,
            .row_count_max = rows,
            .column_count_max = columns,
            .workspace_bytes = workspace_bytes_of(plain, shape),
            .kept_bytes = kept_bytes_of(block)};
}

offload::Effort effort_of(const RunForecast& forecast) {
    return effort_of(forecast.model, forecast.job.row_count_max, forecast.job.column_count_max);
}

// Bytes of a step.
uint64_t moved_bytes(const Forecast& forecast, LaneKind lane) {
    return forecast.moved_bytes[static_cast<size_t>(lane)];
}

// The same plan on a changed machine: what it cannot beat there, and what it takes.
double bound_on(const RunForecast& forecast, const offload::Effort& effort,
                void (*change)(Machine&)) {
    Machine machine = forecast.machine.machine;
    change(machine);
    return bound_s(forecast.placement.workload, forecast.placement.plan, machine, effort);
}

double step_on(const RunForecast& forecast, const offload::Schedule& schedule,
               const offload::Effort& effort, void (*change)(Machine&)) {
    Machine machine = forecast.machine.machine;
    change(machine);
    return simulate(schedule, machine, effort).step_s;
}

// The same plan on a machine of which one thing is twice as fast.
std::vector<Remedy> faster_machines(const RunForecast& forecast, const offload::Effort& effort) {
    struct Change {
        std::string_view name;
        void (*apply)(Machine&);
    };
    constexpr std::array changes = {
        Change{"a card twice as fast", [](Machine& m) { m.gpu_flops *= 2; }},
        Change{"drives twice as fast",
               [](Machine& m) {
                   m.drive.read_bytes_per_s *= 2;
                   m.drive.write_bytes_per_s *= 2;
               }},
        Change{"a link twice as fast",
               [](Machine& m) {
                   m.link.h2d_bytes_per_s *= 2;
                   m.link.d2h_bytes_per_s *= 2;
               }},
        Change{"memory and update twice as fast", [](Machine& m) {
                   m.memory_bytes_per_s *= 2;
                   m.update_parameters_per_s *= 2;
               }}};
    const double worth_s = worth_naming * forecast.placement.forecast.step_s;
    std::vector<Remedy> remedies;
    std::optional<offload::Schedule> schedule;
    for (const Change& change : changes) {
        if (bound_on(forecast, effort, change.apply) >= worth_s) continue;
        if (!schedule) {
            schedule = build(forecast.placement.workload, forecast.placement.plan).value();
        }
        const double step_s = step_on(forecast, *schedule, effort, change.apply);
        if (step_s < worth_s) remedies.push_back({std::string(change.name), step_s});
    }
    return remedies;
}

// The best plan of a few simulations for a machine with twice the ram.
std::vector<Remedy> larger_memory(const RunForecast& forecast, const offload::Effort& effort,
                                  const RunConfig& config, Site site) {
    site.ceilings.ram_bytes *= 2;
    const double worth_s = worth_naming * forecast.placement.forecast.step_s;
    offload::Question question = question_of(forecast.placement.workload, effort, config, site);
    question.commits.copies = forecast.placement.plan.durable_copies;
    question.simulation_count_max = remedy_simulations_max;
    question.worth_s = worth_s;
    const auto found = search(question);
    if (!found || !found->answer || found->answer->best.forecast.step_s >= worth_s) return {};
    return {{"twice the ram", found->answer->best.forecast.step_s}};
}

// The same job with smaller states, where they are the largest: a guess of few simulations.
std::vector<SmallerStates> with_states(const RunForecast& forecast, const offload::Effort& effort,
                                       const RunConfig& config, const Site& site,
                                       offload::StateFormat states) {
    if (config.offload.optimizer_states != offload::StateFormat::fp32) return {};
    if (forecast.placement.base == offload::Base::card) return {};
    RunConfig smaller = config;
    smaller.offload.optimizer_states = states;
    const Result<Workload> workload =
        workload_of(forecast.job, smaller, forecast.placement.part_bytes);
    if (!workload) return {};
    offload::Question question = question_of(*workload, effort, smaller, site);
    question.commits.copies = forecast.placement.plan.durable_copies;
    question.simulation_count_max = smaller_states_simulations_max;
    const auto answer = offload::find_plan(question);
    if (!answer) return {};
    return {{.states = states,
             .step_s = answer->best.forecast.step_s,
             .written_bytes = moved_bytes(answer->best.forecast, LaneKind::nvme_write)}};
}

uint64_t nvme_bytes_of(const offload::Question& question, const offload::Plan& plan) {
    if (question.store_bytes) return question.store_bytes(lay_slots(question.workload, plan));
    return bytes_needed(question.workload, plan).nvme_bytes;
}

// The same job committed at saves, where a step commits now.
std::optional<CommitAtSaves> with_commits_at_saves(const RunForecast& forecast,
                                                   const offload::Effort& effort,
                                                   const RunConfig& config, const Site& site) {
    if (commit_of(forecast.placement.plan) != offload::CommitAt::every_step) return std::nullopt;
    CHECK_GT(site.path_count, 0u);
    RunConfig rarer = config;
    rarer.offload.commit = CommitMode::at_saves;
    offload::Question question = question_of(forecast.placement.workload, effort, rarer, site);
    question.simulation_count_max = smaller_states_simulations_max;
    const auto answer = offload::find_plan(question);
    if (!answer) return std::nullopt;
    const offload::Candidate& best = answer->best;
    CommitAtSaves at_saves{.step_s = best.forecast.step_s,
                           .written_bytes = moved_bytes(best.forecast, LaneKind::nvme_write),
                           .nvme_bytes = best.needs.nvme_bytes};
    if (may_keep_one_copy(rarer, site.path_count)) {
        offload::Plan leaner = best.plan;
        leaner.durable_copies = offload::Copies::one;
        at_saves.one_copy_bytes = nvme_bytes_of(question, leaner);
    }
    const bool is_gentler = at_saves.written_bytes < forecast.written_bytes ||
                            at_saves.nvme_bytes < forecast.placement.needs.nvme_bytes * 99 / 100;
    return is_gentler ? std::optional(at_saves) : std::nullopt;
}

template <class T>
void append(std::vector<T>& to, std::vector<T> more) {
    to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// What would move the step: questions that do not wait for one another, each on a thread.
void look_around(const RunConfig& config, const Site& site, RunForecast& forecast) {
    const offload::Effort effort = effort_of(forecast);
    const RunForecast& asked = forecast;
    const auto ask = [](auto question) { return std::async(std::launch::async, question); };
    auto bf16 =
        ask([&] { return with_states(asked, effort, config, site, offload::StateFormat::bf16); });
    auto int8 =
        ask([&] { return with_states(asked, effort, config, site, offload::StateFormat::int8); });
    auto memory = ask([&] { return larger_memory(asked, effort, config, site); });
    auto saves = ask([&] { return with_commits_at_saves(asked, effort, config, site); });
    std::vector<Remedy> remedies = faster_machines(asked, effort);
    append(remedies, memory.get());
    std::ranges::sort(remedies, {}, &Remedy::step_s);
    std::vector<SmallerStates> smaller_states = bf16.get();
    append(smaller_states, int8.get());
    forecast.at_saves = saves.get();
    if (forecast.placement.base != offload::Base::card) {
        forecast.lora = estimate_lora(forecast.job, forecast.placement, forecast.machine);
    }
    forecast.remedies = std::move(remedies);
    forecast.smaller_states = std::move(smaller_states);
}

double busy_share(const Forecast& forecast, LaneKind lane) {
    return forecast.alone_s[static_cast<size_t>(lane)] / forecast.step_s;
}

double alone_s(const Forecast& forecast, LaneKind lane) {
    return forecast.alone_s[static_cast<size_t>(lane)];
}

// The tiers that weights or states are on, the nearest first; where parts are cached, the others'.
std::string where(const Placement& placement, Tier offload::PartHomes::*kind) {
    std::array<bool, offload::all_tiers.size()> is_used = {};
    for (const offload::PartHomes& homes : placement.plan.homes) {
        is_used[static_cast<size_t>(homes.*kind)] = true;
    }
    std::vector<std::string_view> words;
    for (const auto& [tier, word] : {std::pair{Tier::gpu, std::string_view("on the card")},
                                     {Tier::ram, "in ram"},
                                     {Tier::nvme, "on nvme"}}) {
        if (is_used[static_cast<size_t>(tier)]) words.push_back(word);
    }
    if (placement.choice.cached_share > 0) return std::string(words.back());
    return fmt::format("{}", fmt::join(words, " and "));
}

std::string placement_line(const RunForecast& forecast) {
    const Placement& best = forecast.placement;
    const std::string weights = where(best, &offload::PartHomes::hi);
    const std::string states = where(best, &offload::PartHomes::opt);
    std::string text = weights == states ? fmt::format("weights and states {}", weights)
                                         : fmt::format("weights {}, states {}", weights, states);
    if (best.base == offload::Base::card) text = "all on the card: do not offload, it fits";
    if (best.base == offload::Base::ram) text += ", streamed to the card";
    if (best.choice.cached_share > 0) {
        text += fmt::format(", {:.0f}% of the parts cached in ram", 100 * best.choice.cached_share);
    }
    if (!best.plan.twice.empty()) {
        text +=
            fmt::format(", {:.0f}% of the updates computed twice", 100 * best.choice.twice_share);
    }
    return text + fmt::format(", {} of {} blocks keep and are not recomputed",
                              best.choice.kept.count(), forecast.model.block_count);
}

// What the longest lane is, reading and writing in turns counting as one.
std::string bound_line(const RunForecast& forecast) {
    const Forecast& best = forecast.placement.forecast;
    const double read_s = alone_s(best, LaneKind::nvme_read);
    const double write_s = alone_s(best, LaneKind::nvme_write);
    const double drive_s =
        std::max({read_s, write_s, (read_s + write_s) / forecast.machine.machine.drive.both_ways});
    std::string_view name = "the drives";
    double most_s = drive_s;
    for (const auto& [lane, words] : {std::pair{LaneKind::gpu, std::string_view("the card")},
                                      {LaneKind::h2d, "the link to the card"},
                                      {LaneKind::d2h, "the link from the card"},
                                      {LaneKind::cpu, "the update"}}) {
        if (alone_s(best, lane) <= most_s) continue;
        most_s = alone_s(best, lane);
        name = words;
    }
    std::string text =
        fmt::format("{} alone {} {} of {}", name, name == "the drives" ? "need" : "needs",
                    format_seconds(most_s), format_seconds(best.step_s));
    for (size_t i = 0; i < std::min<size_t>(2, forecast.remedies.size()); ++i) {
        text += fmt::format("; with {}: {}", forecast.remedies[i].change,
                            format_seconds(forecast.remedies[i].step_s));
    }
    return text;
}

std::string lanes_line(const Forecast& best) {
    std::string text;
    for (const auto& [lane, name] : {std::pair{LaneKind::gpu, "gpu"},
                                     {LaneKind::h2d, "h2d"},
                                     {LaneKind::d2h, "d2h"},
                                     {LaneKind::cpu, "update"},
                                     {LaneKind::nvme_read, "nvme read"},
                                     {LaneKind::nvme_write, "nvme write"}}) {
        if (alone_s(best, lane) == 0) continue;
        text += fmt::format("{}{} {} ({:.0f}%)", text.empty() ? "" : ", ", name,
                            format_seconds(alone_s(best, lane)), 100 * busy_share(best, lane));
    }
    return text;
}

std::string writes_line(const RunForecast& forecast, int64_t step_count) {
    std::string text = fmt::format("{} read, {} written a step", format_bytes(forecast.read_bytes),
                                   format_bytes(forecast.written_bytes));
    const uint64_t steps = step_count > 0 ? static_cast<uint64_t>(step_count) : 1000;
    const double written = static_cast<double>(forecast.written_bytes) * static_cast<double>(steps);
    text +=
        fmt::format("; {} steps write {} TB", format_count(steps), format_number(written / 1e12));
    if (forecast.machine.written_in_life_bytes > 0) {
        text += fmt::format(", {}% of what the drives are made for",
                            format_number(100 * written / forecast.machine.written_in_life_bytes));
    }
    return text;
}

// Where the card would take as long as the drives do now.
std::string balance_line(const RunForecast& forecast) {
    const Forecast& best = forecast.placement.forecast;
    const double gpu_s = alone_s(best, LaneKind::gpu);
    const double tokens =
        static_cast<double>(forecast.tokens_per_step) * best.step_s / std::max(gpu_s, 1e-12);
    if (best.step_s < 1.05 * gpu_s) {
        return fmt::format("the card binds at {} tokens a step",
                           format_count(forecast.tokens_per_step));
    }
    // Two digits: it is an estimate.
    const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(tokens)) - 1));
    return fmt::format(
        "the card binds from about {} tokens a step; with these, it is busy {}% of the step",
        format_number(unit * std::round(tokens / unit)), format_number(100 * gpu_s / best.step_s));
}

std::string written_text(uint64_t written_bytes) {
    return written_bytes == 0 ? "nothing" : format_bytes(written_bytes);
}

// "bf16 states 45 s a step, 104 GiB written; int8 states 12 s, nothing written; ...".
std::string gentler_line(const RunForecast& forecast) {
    std::string text;
    for (const SmallerStates& one : forecast.smaller_states) {
        text += fmt::format("{}{} states: {} a step, {} written", text.empty() ? "" : "; ",
                            name_of(one.states), format_seconds(one.step_s),
                            written_text(one.written_bytes));
    }
    if (!forecast.at_saves) return text;
    const CommitAtSaves& at_saves = *forecast.at_saves;
    text += fmt::format("{}commit=at_saves: {} a step, {} written, {} on nvme",
                        text.empty() ? "" : "; ", format_seconds(at_saves.step_s),
                        written_text(at_saves.written_bytes), format_bytes(at_saves.nvme_bytes));
    if (at_saves.one_copy_bytes == 0) return text;
    return text + fmt::format(", {} with one copy", format_bytes(at_saves.one_copy_bytes));
}

// "rank 16 on all products of the blocks trains 0.4% of the parameters: 12 s a step ...".
std::string lora_line(const RunForecast& forecast) {
    const LoraEstimate& lora = *forecast.lora;
    const double share =
        static_cast<double>(lora.trained_count) / static_cast<double>(forecast.parameter_count);
    return fmt::format(
        "estimate: not built yet; rank {} on all linear layers of the blocks trains {:.2f}% as "
        "many parameters: {} a step, bound by {}, base in {}, {} read, nothing written",
        lora.rank, 100 * share, format_seconds(lora.step_s), lora.longest_lane,
        name_of(lora.base_tier), written_text(lora.read_bytes));
}

// The most steps, of so many that are too many, after which a run has written no more.
int64_t steps_within(uint64_t limit_bytes, const DriveWrites& writes, int64_t too_many,
                     std::optional<int64_t> save_steps) {
    int64_t possible = 1;
    while (too_many - possible > 1) {
        const int64_t middle = possible + (too_many - possible) / 2;
        (bytes_of_run(writes, middle, save_steps) <= limit_bytes ? possible : too_many) = middle;
    }
    return possible;
}

// What a run would write, one step or as many as are known, may be more than it is allowed to.
offload::Status check_write_limit(const RunConfig& config, const RunForecast& forecast) {
    const auto limit = config.offload.nvme_write_limit_bytes;
    if (!limit) return {};
    // As of a checkpoint in the run's dtype; beside weights of fp16 a master is written.
    const DriveWrites writes = drive_writes_of(
        forecast.placement,
        config.dtype == offload::Dtype::fp16 ? LoadedStates::written : LoadedStates::zero, 0);
    if (const offload::Status one = check_one_step_within(*limit, writes); !one) return one;
    if (!config.max_steps) return {};
    const int64_t steps = *config.max_steps;
    const uint64_t run_bytes = bytes_of_run(writes, steps, config.save_steps);
    if (run_bytes <= *limit) return {};
    const auto terabytes = [](uint64_t size_bytes) {
        return format_number(static_cast<double>(size_bytes) * 1e-12);
    };
    std::string each = format_bytes(writes.step_bytes) + " each";
    if (writes.save_bytes > 0) each += fmt::format(", {} a save", format_bytes(writes.save_bytes));
    return offload::Error{
        offload::ErrorCode::does_not_fit,
        fmt::format("{} steps write {} TB to the drives ({}), and nvme_write_limit allows {} TB: "
                    "{} steps",
                    steps, terabytes(run_bytes), each, terabytes(*limit),
                    steps_within(*limit, writes, steps, config.save_steps)),
        "raise it, lower max_steps, take more micro-batches a step, or optimizer_states=bf16"};
}

// "gpu_budget is 200 GiB and rtx4090 has 22.0 GiB".
std::vector<std::string> large_budgets(const OffloadConfig& config, const Site& site) {
    std::vector<std::string> lines;
    const std::tuple<std::string_view, std::optional<uint64_t>, Tier> budgets[] = {
        {"gpu_budget", config.gpu_budget_bytes, Tier::gpu},
        {"ram_budget", config.ram_budget_bytes, Tier::ram},
        {"nvme_budget", config.nvme_budget_bytes, Tier::nvme}};
    for (const auto& [key, budget_bytes, tier] : budgets) {
        const uint64_t capacity_bytes = site.capacity.on(tier);
        CHECK_GE(capacity_bytes, site.ceilings.on(tier));
        if (budget_bytes.value_or(0) <= capacity_bytes) continue;
        lines.push_back(fmt::format("{} is {} and {} has {}", key, format_bytes(*budget_bytes),
                                    site.machine.name, format_bytes(capacity_bytes)));
    }
    const uint64_t both_bytes = site.ceilings.gpu_bytes + site.ceilings.ram_bytes;
    if (both_bytes > site.memory_bytes) {
        lines.push_back(fmt::format(
            "gpu_budget and ram_budget are {} together and {} has {}, of "
            "which the card is a part",
            format_bytes(both_bytes), site.machine.name, format_bytes(site.memory_bytes)));
    }
    CHECK_LE(lines.size(), offload::all_tiers.size() + 1);
    return lines;
}

std::string run_line(const RunForecast& forecast, const Prices& prices) {
    const uint64_t steps = prices.step_count > 0 ? static_cast<uint64_t>(prices.step_count) : 1000;
    const double seconds = static_cast<double>(steps) * forecast.placement.forecast.step_s;
    std::string text =
        fmt::format("{} steps take {}", format_count(steps), format_duration(seconds));
    if (prices.per_hour > 0) {
        text += fmt::format(" and cost {:.2f}", seconds / 3600 * prices.per_hour);
    }
    return text;
}

}  // namespace

Result<RunForecast> forecast_run(const RunConfig& config, const LlamaConfig& model,
                                 const MachineFile& file) {
    const MachineFile machine = in_dtype(file, config.dtype);
    const Job job = job_of(config, model, machine.machine);
    const Site site = site_of(config, machine);
    Result<Placement> placement = place(job, config, site);
    if (!placement) return placement.error();
    RunForecast forecast{.model = model,
                         .machine = machine,
                         .parameter_count = parameter_count(model),
                         .tokens_per_step = static_cast<uint64_t>(
                             job.micro_batch_count_max * job.row_count_max * config.max_length),
                         .job = job,
                         .placement = std::move(*placement),
                         .commit = {},
                         .large_budgets = large_budgets(config.offload, site),
                         .untrained = {},
                         .unseen_paths = {},
                         .remedies = {},
                         .smaller_states = {},
                         .at_saves = std::nullopt,
                         .lora = std::nullopt};
    forecast.commit = describe_commit(config, forecast.placement.plan);
    forecast.machine.ceilings = site.ceilings;
    forecast.read_bytes = moved_bytes(forecast.placement.forecast, LaneKind::nvme_read);
    forecast.written_bytes = moved_bytes(forecast.placement.forecast, LaneKind::nvme_write);
    if (const offload::Status allowed = check_write_limit(config, forecast); !allowed) {
        return allowed.error();
    }
    look_around(config, site, forecast);
    return forecast;
}

std::vector<std::string> describe(const RunForecast& forecast, const Prices& prices) {
    const Placement& best = forecast.placement;
    const TierBytes& ceilings = forecast.machine.ceilings;
    const auto row = [](std::string_view name, const std::string& text) {
        return fmt::format("{:<10} {}", name, text);
    };
    std::string memory =
        fmt::format("gpu {} of {}, ram {} of {}", format_bytes(best.needs.gpu_bytes),
                    format_bytes(ceilings.gpu_bytes), format_bytes(best.needs.ram_bytes),
                    format_bytes(ceilings.ram_bytes));
    if (best.needs.nvme_bytes > 0) {
        memory +=
            fmt::format(", nvme {} of {}", format_bytes(best.needs.nvme_bytes),
                        ceilings.nvme_bytes == unlimited_bytes ? "what the drives have"
                                                               : format_bytes(ceilings.nvme_bytes));
        if (!forecast.unseen_paths.empty()) {
            memory += fmt::format(" of the machine's own drives: {} not looked at",
                                  fmt::join(forecast.unseen_paths, ", "));
        }
    }
    const double step_s = best.forecast.step_s;
    const auto tokens = static_cast<double>(forecast.tokens_per_step);
    const auto purposes = bytes_by_purpose(best);
    const auto on_tier = [&](offload::Tier tier) {
        std::string text;
        for (const PurposeBytes& one : purposes[static_cast<size_t>(tier)]) {
            text += fmt::format("{}{} {}", text.empty() ? "" : ", ", one.purpose,
                                format_bytes(one.size_bytes));
        }
        return row(fmt::format("  on {}", name_of(tier)), text);
    };
    std::vector<std::string> lines = {
        row("model", fmt::format("{} parameters in {} blocks",
                                 offload::format_parameters(forecast.parameter_count),
                                 forecast.model.block_count)),
        row("machine", forecast.machine.machine.name),
        row("placement", placement_line(forecast)),
        row("memory", memory),
        on_tier(offload::Tier::gpu),
        on_tier(offload::Tier::ram)};
    std::vector<std::string> budgets;
    for (const std::string& line : forecast.large_budgets) budgets.push_back(row("budgets", line));
    lines.insert(lines.begin() + 3, budgets.begin(), budgets.end());
    if (best.needs.nvme_bytes > 0) lines.push_back(on_tier(offload::Tier::nvme));
    append(lines, {row("step", fmt::format("{} for {} tokens: {} tokens/s", format_seconds(step_s),
                                           format_count(forecast.tokens_per_step),
                                           format_number(tokens / step_s))),
                   row("lanes", lanes_line(best.forecast)), row("bound", bound_line(forecast)),
                   row("balance", balance_line(forecast))});
    if (forecast.written_bytes > 0) {
        lines.push_back(row("drives", writes_line(forecast, prices.step_count)));
    }
    lines.push_back(row("commit", forecast.commit));
    const std::string gentler = gentler_line(forecast);
    if (!gentler.empty()) lines.push_back(row("or", gentler));
    if (forecast.lora) lines.push_back(row("or LoRA", lora_line(forecast)));
    lines.push_back(row("run", run_line(forecast, prices)));
    for (const std::string& sentence : forecast.untrained) lines.push_back(row("train", sentence));
    return lines;
}

}  // namespace headrace::engine
