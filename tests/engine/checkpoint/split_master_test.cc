// Goal: the split master that a checkpoint is read into is the one that the update joins and
// splits. Method: all upper halves with the edges of the lower one: a step on the split weight has
// the bits of the same step on the fp32 weight, split here.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "cpu_adam/variants.h"
#include "engine/checkpoint/elements.h"

namespace headrace::engine {

TEST(SplitMaster, the_update_joins_and_splits_as_the_checkpoint_does) {
    std::vector<float> weights;
    for (uint32_t upper = 0; upper < 0x10000; ++upper) {
        for (const uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
            weights.push_back(std::bit_cast<float>(upper << 16 | lower));
        }
    }
    const size_t count = weights.size();
    std::vector<uint16_t> hi, lo;
    for (const float weight : weights) {
        hi.push_back(split_master(weight).hi);
        lo.push_back(split_master(weight).lo);
    }
    const auto update = [&](cpu_adam::Operands operands) {
        std::vector<float> m(count), v(count);
        const std::vector<float> gradient(count, 0.25f);
        operands.element_count = count;
        operands.m = m.data();
        operands.v = v.data();
        operands.gradient_fp32 = gradient.data();
        cpu_adam::best().update(cpu_adam::factors_of({.learning_rate = 1e-3}), operands);
    };
    update({.hi = hi.data(), .lo = lo.data()});
    update({.weight = weights.data()});
    size_t nan_count = 0;
    for (size_t i = 0; i < count; ++i) {
        nan_count += std::isnan(weights[i]) ? 1 : 0;
        ASSERT_EQ(hi[i], split_master(weights[i]).hi) << i;
        ASSERT_EQ(lo[i], split_master(weights[i]).lo) << i;
        const float joined = join_master({.hi = hi[i], .lo = lo[i]});
        ASSERT_EQ(std::bit_cast<uint32_t>(joined), std::bit_cast<uint32_t>(weights[i])) << i;
    }
    EXPECT_GT(nan_count, 1000u);
    EXPECT_LT(nan_count, count / 100);
}

}  // namespace headrace::engine
