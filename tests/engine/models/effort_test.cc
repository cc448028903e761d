// Goal: the count of arithmetic is that of the definition. Method: a model of round numbers by
// hand, and 8 operations per parameter and token for a large one.
#include "engine/models/effort.h"

#include <gtest/gtest.h>

namespace headrace::engine {
namespace {

TEST(Effort, IsThatOfTheDefinition) {
    const LlamaConfig config{.hidden_size = 10,
                             .intermediate_size = 30,
                             .block_count = 2,
                             .head_count = 4,
                             .kv_head_count = 2,
                             .head_dim = 5,
                             .vocabulary_size = 100,
                             .rope = {}};
    const offload::Effort effort = effort_of(config, 3, 7);
    ASSERT_EQ(effort.layers.size(), 4u);
    // q and o 10 x 20, k and v 10 x 10, gate, up and down 10 x 30; 21 tokens.
    const double products = 2.0 * (2 * 200 + 2 * 100 + 3 * 300) * 21;
    const double attention = 2.0 * 7 * 7 * 20 * 3;
    EXPECT_DOUBLE_EQ(effort.layers[1].forward_flop, products + attention);
    EXPECT_DOUBLE_EQ(effort.layers[2].recompute_flop, products + attention - 2.0 * 10 * 30 * 21);
    EXPECT_DOUBLE_EQ(effort.layers[1].backward_flop, 2 * products + 2.5 * attention);
    EXPECT_DOUBLE_EQ(effort.layers[0].forward_flop, 0);
    EXPECT_DOUBLE_EQ(effort.layers[3].backward_flop, 6.0 * 10 * 100 * 21);
    EXPECT_DOUBLE_EQ(effort.loss_flop, 2.0 * 10 * 100 * 21);
}

// 13B: 8 operations per parameter and token with recompute; attention adds what the last product
// saves.
TEST(Effort, OfALargeModelIsAboutEightPerParameterAndToken) {
    const LlamaConfig config{.hidden_size = 5120,
                             .intermediate_size = 13824,
                             .block_count = 40,
                             .head_count = 40,
                             .kv_head_count = 40,
                             .head_dim = 128,
                             .vocabulary_size = 32000,
                             .rope = {}};
    const offload::Effort effort = effort_of(config, 1, 4096);
    double flop = 0;
    for (const offload::LayerEffort& layer : effort.layers) {
        flop += layer.forward_flop + layer.recompute_flop + layer.backward_flop;
    }
    const double classic = 8.0 * static_cast<double>(parameter_count(config)) * 4096;
    EXPECT_NEAR(flop / classic, 1.0, 0.03);
}

}  // namespace
}  // namespace headrace::engine
