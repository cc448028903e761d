// Goal: `plan --ranks` says what a card and a node must hold for a real model under ZeRO, refuses
// what does not fit with the nearest that does, and names what moves more than it must.
// Method: Llama 2 7B, whose sizes are known, on machines made by hand.
#include "engine/cli/plan_ranks.h"

#include <gmock/gmock.h>

namespace headrace::engine {
namespace {

using ::testing::HasSubstr;

const LlamaConfig llama_7b{.hidden_size = 4096,
                           .intermediate_size = 11008,
                           .block_count = 32,
                           .head_count = 32,
                           .kv_head_count = 32,
                           .head_dim = 128,
                           .vocabulary_size = 32000,
                           .rope = {}};

MachineFile node(uint64_t card_gb, uint64_t ram_gb) {
    MachineFile machine;
    machine.machine.name = "a node";
    machine.ceilings = {
        .gpu_bytes = card_gb * 1'000'000'000, .ram_bytes = ram_gb * 1'000'000'000, .nvme_bytes = 0};
    return machine;
}

PlanCommand ranks(uint32_t count, int stage) {
    PlanCommand command;
    command.rank_count = count;
    command.stage = stage;
    return command;
}

// 6.738e9 x (2 + (2 + 10) / 4): bf16 weights and gradients, fp32 states with the lower half.
TEST(PlanRanksTest, what_fits_not_is_refused_with_the_nearest_that_fits) {
    const auto refused = judge_ranks(ranks(4, 2), RunConfig(), llama_7b, node(24, 256));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, offload::ErrorCode::does_not_fit);
    EXPECT_THAT(refused.error().text(), HasSubstr("4 ranks, stage 2: 31.4 GiB a card"));
    EXPECT_THAT(refused.error().text(),
                HasSubstr("stage 2, states on ram: 15.7 GiB a card, 62.8 GiB of ram a node"));
    const auto hopeless = judge_ranks(ranks(1, 2), RunConfig(), llama_7b, node(8, 8));
    ASSERT_FALSE(hopeless.ok());
    EXPECT_THAT(hopeless.error().text(), HasSubstr("nothing makes it fit"));
}

TEST(PlanRanksTest, where_the_run_file_puts_states_they_are_counted) {
    RunConfig config;
    config.offload.optimizer = TierShares::all_on(offload::Tier::ram);
    const auto fits = judge_ranks(ranks(4, 2), config, llama_7b, node(24, 256));
    ASSERT_TRUE(fits.ok()) << fits.error().text();
    EXPECT_THAT(*fits, HasSubstr("15.7 GiB a card"));
    EXPECT_THAT(*fits, HasSubstr("fits, before activations"));
    const auto slow = judge_ranks(ranks(8, 3), config, llama_7b, node(80, 256));
    ASSERT_TRUE(slow.ok()) << slow.error().text();
    EXPECT_THAT(*slow, HasSubstr("better     stage 2:"));
    config.offload.parameters = TierShares::all_on(offload::Tier::ram);
    const auto stage = judge_ranks(ranks(4, 2), config, llama_7b, node(24, 256));
    ASSERT_FALSE(stage.ok());
    EXPECT_THAT(stage.error().text(), HasSubstr("needs --stage 3"));
}

}  // namespace
}  // namespace headrace::engine
