// Goal: budgets are ceilings. What fits is placed inside them; what does not is refused before a
// byte is taken, with settings that are enough when they are typed; what is predicted is what is
// taken, to the byte.
// Method: a model of 33 M parameters under tables of budgets (placing costs no memory), and a tiny
// one that is really made and run with exactly what it needs, and with a page less.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <regex>
#include <set>

#include "engine/plan/nominal_host.h"
#include "engine/plan/placement.h"
#include "engine/plan/places.h"
#include "engine/plan/purposes.h"
#include "engine/resume/identity.h"
#include "engine/torch/workspace.h"
#include "engine/train/engine.h"
#include "kernels/host/slab.h"
#include "nvme/nvme_store.h"
#include "offload/memory_store.h"
#include "offload/units.h"
#include "tests/engine/train/tiny_run.h"

namespace headrace::engine::tests {
namespace {

using offload::ErrorCode;
using offload::kib;
using offload::mib;
using offload::Tier;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr FreeMemory plenty{.available_bytes = uint64_t{1} << 40};

// On a host of nominal rates.
offload::Result<Placement> place(const Job& job, const RunConfig& config,
                                 const FreeMemory& memory) {
    const offload::Machine machine = nominal_host(
        {.compute_threads = 2, .update_threads = 1, .core_count = 2}, offload::Dtype::bf16);
    return engine::place(job, config, site_of(config, memory, machine));
}

LlamaConfig middling_model() {
    LlamaConfig config = tiny_config(true, 8);
    config.hidden_size = 512;
    config.intermediate_size = 1536;
    config.head_count = 8;
    config.kv_head_count = 4;
    config.head_dim = 64;
    config.vocabulary_size = 16384;
    return config;
}

Job job_of(const LlamaConfig& config) {
    const LlamaCompute compute(config, offload::Dtype::bf16);
    return {.config = config,
            .micro_batch_count_max = 4,
            .row_count_max = 2,
            .column_count_max = 64,
            .workspace_bytes = compute.workspace_bytes(2, 64),
            .kept_bytes = compute.kept_bytes(2, 64)};
}

RunConfig config_of(uint64_t gpu_bytes, uint64_t ram_bytes, uint64_t nvme_bytes) {
    RunConfig config;
    config.offload.gpu_budget_bytes = gpu_bytes;
    config.offload.ram_budget_bytes = ram_bytes;
    config.offload.nvme_budget_bytes = nvme_bytes;
    config.offload.nvme_paths = {"/drive"};
    return config;
}

void expect_inside(const Placement& placement) {
    EXPECT_LE(placement.needs.gpu_bytes, placement.budgets.gpu_bytes);
    EXPECT_LE(placement.needs.ram_bytes, placement.budgets.ram_bytes);
    EXPECT_LE(placement.needs.nvme_bytes, placement.budgets.nvme_bytes);
    const offload::Schedule list = build(placement.workload, placement.plan).value();
    EXPECT_EQ(offload::tier_bytes(list, Tier::gpu), placement.needs.gpu_bytes);
    EXPECT_EQ(offload::tier_bytes(list, Tier::ram), placement.needs.ram_bytes);
    const std::vector<offload::PlaceSpec> places = places_of(list.workload.layout, list.slots);
    const uint64_t store_bytes = places.empty() ? 0 : nvme::store_bytes_of(places, 1);
    EXPECT_EQ(store_bytes, placement.needs.nvme_bytes);
}

// "... gpu_budget=12MiB ..." -> 12 MiB; what is not proposed stays.
void apply_proposal(const std::string& text, std::string_view key,
                    std::optional<uint64_t>& budget_bytes) {
    std::smatch match;
    if (!std::regex_search(text, match, std::regex(fmt::format("{}=([0-9]+MiB)", key)))) return;
    budget_bytes = offload::parse_bytes(match[1].str()).value();
}

class Budgets : public testing::Test {
  protected:
    void SetUp() override { start_torch(1); }
};

TEST_F(Budgets, WhatIsProposedFits) {
    const Job job = job_of(middling_model());
    int refused = 0;
    int placed = 0;
    for (const uint64_t gpu : {uint64_t{0}, 20 * mib, 100 * mib, 220 * mib, 1000 * mib}) {
        for (const uint64_t ram : {uint64_t{0}, 9 * mib, 80 * mib, 1000 * mib}) {
            for (const uint64_t nvme : {uint64_t{0}, 300 * mib, 2000 * mib}) {
                RunConfig config = config_of(gpu, ram, nvme);
                const auto first = place(job, config, plenty);
                if (first) {
                    expect_inside(*first);
                    ++placed;
                    continue;
                }
                ++refused;
                const std::string text = first.error().text();
                EXPECT_EQ(first.error().code, ErrorCode::does_not_fit);
                EXPECT_THAT(text, HasSubstr("it would fit with"));
                apply_proposal(text, "gpu_budget", config.offload.gpu_budget_bytes);
                apply_proposal(text, "ram_budget", config.offload.ram_budget_bytes);
                apply_proposal(text, "nvme_budget", config.offload.nvme_budget_bytes);
                const auto again = place(job, config, plenty);
                ASSERT_TRUE(again.ok()) << text << " and then " << again.error().text();
                expect_inside(*again);
            }
        }
    }
    EXPECT_GT(refused, 10);
    EXPECT_GT(placed, 5);
}

// With everything fixed the need is one number: it is enough, and a page less is not.
TEST_F(Budgets, ThePlacementFitsToThePage) {
    const Job job = job_of(middling_model());
    RunConfig config = config_of(0, 0, 4000 * mib);
    config.offload.parameters = TierShares::all_on(Tier::nvme);
    config.offload.optimizer = TierShares::all_on(Tier::nvme);
    config.offload.activations = TierShares::all_on(Tier::ram);
    config.offload.advanced = {.micro_batches_per_pass = 2,
                               .layers_in_flight = 1,
                               .part_bytes = 1 * mib,
                               .stash_tier = TierShares::all_on(Tier::nvme),
                               .accumulator_tier = Tier::nvme,
                               .update_twice = 0,
                               .update_threads = {},
                               .compute_threads = {}};
    config.gradient_checkpointing = true;
    config.offload.gpu_budget_bytes = 4000 * mib;
    config.offload.ram_budget_bytes = 4000 * mib;
    const auto roomy = place(job, config, plenty);
    ASSERT_TRUE(roomy.ok()) << roomy.error().text();
    config.offload.gpu_budget_bytes = roomy->needs.gpu_bytes;
    ASSERT_TRUE(place(job, config, plenty).ok());
    config.offload.gpu_budget_bytes = roomy->needs.gpu_bytes - offload::page_bytes;
    const auto refused = place(job, config, plenty);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().text(), HasSubstr("gpu_budget="));
    EXPECT_THAT(refused.error().text(), HasSubstr("(too little)"));
    EXPECT_THAT(refused.error().text(), Not(HasSubstr("ram_budget=")));
}

std::vector<std::optional<Tier>> none_of(const Placement& placement) {
    return std::vector<std::optional<Tier>>(layer_count(placement.workload), std::nullopt);
}

size_t keeping_count(const Placement& placement, std::optional<Tier> tier = std::nullopt) {
    return static_cast<size_t>(std::ranges::count_if(
        placement.plan.kept_homes,
        [&](const std::optional<Tier>& home) { return home && (!tier || *home == *tier); }));
}

// The room that is left takes what blocks keep, the last block first, the gpu before ram, and the
// drive for all others or for none; never more than there is, never less than would fit; and no
// step is predicted to be longer for it.
TEST_F(Budgets, WhatIsFreeIsKeptFor) {
    const Job job = job_of(middling_model());
    const uint64_t blocks = static_cast<uint64_t>(job.config.block_count);
    RunConfig config = config_of(0, 100 * mib, 2000 * mib);
    std::set<std::pair<size_t, size_t>> seen;
    for (uint64_t gpu = 60 * mib; gpu < 180 * mib; gpu += 4 * mib) {
        for (const uint64_t ram : {80 * mib, 90 * mib, 400 * mib}) {
            config.offload.gpu_budget_bytes = gpu;
            config.offload.ram_budget_bytes = ram;
            config.gradient_checkpointing = std::nullopt;
            const auto keeping = place(job, config, plenty);
            config.gradient_checkpointing = true;
            const auto again = place(job, config, plenty);
            ASSERT_EQ(keeping.ok(), again.ok());
            if (!keeping) continue;
            expect_inside(*keeping);
            EXPECT_EQ(keeping_count(*again), 0u);
            EXPECT_LE(keeping->forecast.step_s, 1.02 * again->forecast.step_s);
            const size_t on_gpu = keeping_count(*keeping, Tier::gpu);
            const size_t in_ram = keeping_count(*keeping, Tier::ram);
            const size_t count = keeping_count(*keeping);
            if (count > on_gpu + in_ram) {
                EXPECT_EQ(count, blocks);
            }
            seen.insert({on_gpu, count});
            std::vector<std::optional<Tier>> expected = none_of(*keeping);
            for (size_t i = 0; i < count; ++i) {
                expected[expected.size() - 2 - i] = i < on_gpu            ? Tier::gpu
                                                    : i < on_gpu + in_ram ? Tier::ram
                                                                          : Tier::nvme;
            }
            if (count > 0) {
                EXPECT_EQ(keeping->plan.kept_homes, expected);
            }
            const uint64_t block_bytes = job.kept_bytes * keeping->plan.group;
            if (count < blocks) {
                EXPECT_LT(gpu - keeping->needs.gpu_bytes, block_bytes + 2 * job.kept_bytes);
            }
            if (on_gpu < count && count < blocks) {
                EXPECT_LT(ram - keeping->needs.ram_bytes, block_bytes);
            }
        }
    }
    EXPECT_GT(seen.size(), 8u);
    EXPECT_TRUE(seen.contains({blocks, blocks}));
}

// Gpu and ram are one memory here: what is kept leaves the rest of the machine what it had.
TEST_F(Budgets, WhatIsKeptStaysInsideTheMachine) {
    const Job job = job_of(middling_model());
    const RunConfig config = config_of(4000 * mib, 4000 * mib, 4000 * mib);
    std::set<size_t> counts;
    for (uint64_t available = 20 * mib; available < 400 * mib; available += 10 * mib) {
        const auto placed = place(job, config, {.available_bytes = available});
        if (!placed) continue;
        EXPECT_LE(placed->needs.gpu_bytes + placed->needs.ram_bytes, available);
        counts.insert(keeping_count(*placed));
    }
    EXPECT_GT(counts.size(), 1u);
}

// gradient_checkpointing=false: every block keeps, or the job is refused with what would make it
// fit.
TEST_F(Budgets, KeepingAllFitsOrIsRefused) {
    const Job job = job_of(middling_model());
    const auto blocks = static_cast<size_t>(job.config.block_count);
    RunConfig config = config_of(4000 * mib, 4000 * mib, 4000 * mib);
    config.gradient_checkpointing = false;
    config.offload.advanced.micro_batches_per_pass = 1;
    config.offload.advanced.part_bytes = 1 * mib;
    config.offload.ram_budget_bytes = 20 * mib;
    config.offload.gpu_budget_bytes = 30 * mib;
    const auto refused = place(job, config, plenty);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
    EXPECT_THAT(refused.error().text(), HasSubstr("gradient_checkpointing=auto"));
    apply_proposal(refused.error().text(), "gpu_budget", config.offload.gpu_budget_bytes);
    apply_proposal(refused.error().text(), "ram_budget", config.offload.ram_budget_bytes);
    const auto placed = place(job, config, plenty);
    ASSERT_TRUE(placed.ok()) << refused.error().text() << " and then " << placed.error().text();
    expect_inside(*placed);
    EXPECT_EQ(keeping_count(*placed), blocks);
    // What finds no room on the gpu goes to ram, if there is some.
    config.offload.gpu_budget_bytes = 4000 * mib;
    const uint64_t all_on_gpu = place(job, config, plenty).value().needs.gpu_bytes;
    config.offload.gpu_budget_bytes = all_on_gpu - offload::page_bytes;
    config.offload.ram_budget_bytes = 4000 * mib;
    const auto on_both = place(job, config, plenty);
    ASSERT_TRUE(on_both.ok()) << on_both.error().text();
    expect_inside(*on_both);
    EXPECT_EQ(keeping_count(*on_both), blocks);
    EXPECT_GT(keeping_count(*on_both, Tier::ram), 0u);
    EXPECT_LT(keeping_count(*on_both, Tier::ram), blocks);
}

// LOAD-5: budgets larger than what the machine has free do not help: refused with what is needed,
// what there is, and where the bytes could go instead.
TEST_F(Budgets, load_5_MoreThanTheMachineHasIsRefused) {
    const Job job = job_of(middling_model());
    RunConfig config = config_of(64'000 * mib, 64'000 * mib, 64'000 * mib);
    config.offload.parameters = TierShares::all_on(Tier::gpu);
    config.offload.optimizer = TierShares::all_on(Tier::ram);
    const FreeMemory little{.available_bytes = 256 * mib};
    const auto refused = place(job, config, little);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
    EXPECT_THAT(refused.error().text(), HasSubstr("256 MiB free of the "));
    EXPECT_THAT(refused.error().text(), HasSubstr("on nvme"));
    config.offload.parameters = TierShares::all_on(Tier::nvme);
    config.offload.optimizer = TierShares::all_on(Tier::nvme);
    const auto placed = place(job, config, little);
    ASSERT_TRUE(placed.ok()) << placed.error().text();
    EXPECT_LE(placed->needs.gpu_bytes + placed->needs.ram_bytes, little.available_bytes);
}

// Without a drive there is none to place on, and the refusal says that one would help.
TEST_F(Budgets, NoPathsNoNvme) {
    RunConfig config = config_of(100 * mib, 100 * mib, 0);
    config.offload.nvme_paths.clear();
    const auto refused = place(job_of(middling_model()), config, plenty);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().text(), HasSubstr("nvme_paths"));
    config.offload.gpu_budget_bytes = 1000 * mib;
    config.offload.ram_budget_bytes = 1000 * mib;
    const auto placed = place(job_of(middling_model()), config, plenty);
    ASSERT_TRUE(placed.ok()) << placed.error().text();
    EXPECT_EQ(placed->needs.nvme_bytes, 0u);
}

// Homes of states, on any tier, take what their format says to the byte: 10, 6 or 4.125 bytes a
// bf16 parameter, twice in the places of a store.
TEST_F(Budgets, StatesTakeWhatTheirFormatSays) {
    const Job job = job_of(middling_model());
    for (const offload::Dtype dtype :
         {offload::Dtype::bf16, offload::Dtype::fp16, offload::Dtype::fp32}) {
        for (const auto states :
             {offload::StateFormat::fp32, offload::StateFormat::bf16, offload::StateFormat::int8}) {
            for (const Tier tier : {Tier::ram, Tier::nvme}) {
                RunConfig config = config_of(2000 * mib, 2000 * mib, 4000 * mib);
                config.dtype = dtype;
                config.offload.optimizer = TierShares::all_on(tier);
                config.offload.optimizer_states = states;
                const auto placement = place(job, config, plenty);
                ASSERT_TRUE(placement.ok()) << placement.error().text();
                expect_inside(*placement);
                uint64_t formula_bytes = 0;
                uint64_t element_count = 0;
                const std::vector<offload::Part>& parts = placement->workload.layout.parts;
                for (const offload::Part& part : parts) {
                    formula_bytes += opt_bytes(dtype, states, part.element_count);
                    element_count += part.element_count;
                }
                const bool is_twice = tier == Tier::nvme && commit_of(placement->plan).has_value();
                EXPECT_EQ(HomeBytes(*placement).of(offload::Kind::opt, tier),
                          formula_bytes * (is_twice ? 2 : 1));
                constexpr double bytes_of_moments[] = {8, 4, 2.125};
                const double exact = bytes_of_moments[static_cast<size_t>(states)] +
                                     (dtype == offload::Dtype::bf16   ? 2
                                      : dtype == offload::Dtype::fp16 ? 4
                                                                      : 0);
                const auto padding = static_cast<double>(
                    states == offload::StateFormat::int8 ? 3 * offload::page_bytes * parts.size()
                                                         : 0);
                EXPECT_NEAR(static_cast<double>(formula_bytes),
                            exact * static_cast<double>(element_count) + padding / 2,
                            padding / 2 + 1);
            }
        }
    }
}

// The engine takes what was predicted, from memories that hold that and nothing more.
TEST_F(Budgets, TheEngineTakesWhatWasPredicted) {
    const LlamaConfig model = tiny_config(true);
    RunConfig config = config_of(4 * mib, 4 * mib, 64 * mib);
    for (uint32_t start = 0; start < 9; ++start) {
        config.offload.optimizer_states = static_cast<offload::StateFormat>(start / 3);
        const uint32_t gpu_lack = start % 3 == 1 ? 1 : 0;
        const uint32_t ram_lack = start % 3 == 2 ? 1 : 0;
        const Placement placement = place(job_of(model), config, plenty).value();
        EXPECT_EQ(keeping_count(placement), static_cast<size_t>(model.block_count));
        uint64_t places_bytes = 0;
        EngineOptions options;
        options.config = model;
        options.workload = placement.workload;
        options.plan = placement.plan;
        options.adam_step_of = [](int64_t) { return cpu_adam::AdamStep{}; };
        options.record_of = [](const Progress& progress) { return record_of({}, progress); };
        options.update_row = &cpu_adam::best();
        options.reduce_row = &kernels::best_reduce_row();
        options.open_store =
            [&](std::vector<offload::PlaceSpec> places,
                std::span<std::byte>) -> offload::Result<std::unique_ptr<offload::Store>> {
            places_bytes = nvme::store_bytes_of(places, 1);
            return std::unique_ptr<offload::Store>(
                std::make_unique<offload::MemoryStore>(std::move(places)));
        };
        auto memory = std::make_unique<kernels::HostMemory>(kernels::HostMemory::Options{
            .gpu_capacity_bytes = placement.needs.gpu_bytes - gpu_lack * offload::page_bytes,
            .ram_capacity_bytes = placement.needs.ram_bytes - ram_lack * offload::page_bytes});
        auto engine = Engine::create(std::move(options), std::move(memory));
        const bool lacks = gpu_lack + ram_lack > 0;
        ASSERT_EQ(engine.ok(), !lacks);
        if (lacks) {
            EXPECT_EQ(engine.error().code, ErrorCode::does_not_fit);
            continue;
        }
        EXPECT_EQ((*engine)->tier_bytes(Tier::gpu), placement.needs.gpu_bytes);
        EXPECT_EQ((*engine)->tier_bytes(Tier::ram), placement.needs.ram_bytes);
        EXPECT_EQ(places_bytes, placement.needs.nvme_bytes);
    }
}

// Torch's memory comes from the workspace slot: what it used at most is enough, to the page; with a
// page less the step is an Error that names the numbers, not a crash.
TEST_F(Budgets, TorchKeepsToItsWorkspace) {
    const TinyJob job{.model = tiny_model(tiny_config(false), offload::Dtype::bf16),
                      .steps = tiny_steps(1, 2)};
    const TinyPlan plan{.name = "on nvme"};
    reset_workspace_peak();
    engine_bits(job, plan);
    const uint64_t extent_bytes = workspace_peak().extent_bytes;
    ASSERT_GT(extent_bytes, offload::page_bytes);
    const uint64_t enough = offload::align_up(extent_bytes, offload::page_bytes);
    EXPECT_TRUE(TinyRun(job, plan, enough).train(0, 1).ok());
    const auto status = TinyRun(job, plan, enough - offload::page_bytes).train(0, 1);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::does_not_fit);
    EXPECT_THAT(status.error().text(), HasSubstr("layer"));
}

}  // namespace
}  // namespace headrace::engine::tests
