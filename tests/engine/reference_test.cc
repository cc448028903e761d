// Goal: the independent reference trains as torch does, so that what is compared with it bit for
// bit is compared with something right. Method: goldens of 5 AdamW steps with clipping
// (tests/engine/goldens); then properties that any run must have: clipping matters, a learning rate
// of 0 changes no bit, runs repeat.
#include "tests/engine/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/engine/goldens/golden.h"

namespace headrace::engine::tests {
namespace {

using offload::Dtype;

constexpr size_t step_count = 5;

// The AdamW of make_goldens.py.
ReferenceOptions golden_options(Dtype gradients, double max_grad_norm) {
    return {.gradients = gradients,
            .max_grad_norm = max_grad_norm,
            .learning_rates = std::vector<double>(step_count, 1e-3),
            .adam = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1}};
}

std::vector<std::vector<MicroBatch>> golden_steps(const Golden& golden) {
    return {step_count, {golden.batch(0), golden.batch(1)}};
}

std::vector<float> fp32_run(const std::vector<std::byte>& run) {
    std::vector<float> values(run.size() / sizeof(float));
    std::memcpy(values.data(), run.data(), run.size());
    return values;
}

class Reference : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override { start_torch(1); }
};

TEST_P(Reference, FiveClippedStepsEqualTorch) {
    const Golden golden(GetParam());
    const double max_norm = golden.values<double>("step.max_norm").at(0);
    const ReferenceRun run =
        run_reference(make_flat_model(golden.config(), Dtype::fp32, golden_weight),
                      golden_steps(golden), golden_options(Dtype::fp32, max_norm));
    const std::vector<double> losses = golden.values<double>("step.losses");
    const std::vector<double> norms = golden.values<double>("step.norms");
    for (size_t k = 0; k < step_count; ++k) {
        EXPECT_NEAR(run.steps[k].loss, losses[k], 1e-5);
        EXPECT_NEAR(run.steps[k].grad_norm, norms[k], 1e-4 * norms[k]);
        EXPECT_GT(run.steps[k].grad_norm, max_norm) << "clipping must trigger";
    }
    const offload::Layout& layout = run.model.layout;
    for (size_t layer = 0; layer < run.model.layer_count(); ++layer) {
        const std::vector<float> weights = fp32_run(run.model.weights[layer]);
        for (size_t tensor = 0; tensor < layout.specs[layer].tensors.size(); ++tensor) {
            const std::string& name = layout.specs[layer].tensors[tensor].name;
            const std::vector<float> actual = tensor_of(layout, weights, layer, tensor);
            const std::vector<float> expected = golden.values<float>("step." + name);
            double difference = 0;
            double norm = 0;
            for (size_t i = 0; i < expected.size(); ++i) {
                difference += std::pow(static_cast<double>(actual[i] - expected[i]), 2);
                norm += std::pow(static_cast<double>(expected[i]), 2);
            }
            EXPECT_LE(std::sqrt(difference / norm), 1e-4) << name;
        }
    }
}

TEST_P(Reference, RepeatsAndClippingMatters) {
    const Golden golden(GetParam());
    const double max_norm = golden.values<double>("step.max_norm").at(0);
    const FlatModel model = make_flat_model(golden.config(), Dtype::bf16, golden_weight);
    const auto digest = [&](double limit) {
        return digest_of(
            run_reference(model, golden_steps(golden), golden_options(Dtype::bf16, limit)));
    };
    EXPECT_EQ(digest(max_norm), digest(max_norm));
    EXPECT_NE(digest(max_norm), digest(0));
}

// MATH-6: a step with a learning rate of 0 leaves every weight as it was loaded, bit for bit.
TEST_P(Reference, math_6_NoLearningRateNoChange) {
    const Golden golden(GetParam());
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const FlatModel model = make_flat_model(golden.config(), dtype, golden_weight);
        ReferenceOptions options = golden_options(dtype, 1.0);
        options.learning_rates.assign(step_count, 0.0);
        const ReferenceRun still = run_reference(model, golden_steps(golden), options);
        EXPECT_EQ(still.model.weights, model.weights);
        options.learning_rates.assign(step_count, 1e-3);
        EXPECT_NE(run_reference(model, golden_steps(golden), options).model.weights, model.weights);
    }
}

// ACC-1: the gradient of the second and third step counts all their micro-batches, as the first's.
TEST_P(Reference, acc_1_LaterStepsAccumulateAsTheFirst) {
    const Golden golden(GetParam());
    ReferenceOptions options = golden_options(Dtype::fp32, 0);
    options.learning_rates.assign(3, 0.0);  // so that every step has the same gradient
    const std::vector<MicroBatch> batches = {golden.batch(0), golden.batch(1), golden.batch(0),
                                             golden.batch(1)};
    const ReferenceRun run =
        run_reference(make_flat_model(golden.config(), Dtype::fp32, golden_weight),
                      {batches, batches, batches}, options);
    EXPECT_EQ(run.steps[0].grad_norm, run.steps[1].grad_norm);
    EXPECT_EQ(run.steps[0].grad_norm, run.steps[2].grad_norm);
    EXPECT_EQ(run.steps[0].loss, run.steps[2].loss);
}

// A gradient that is not finite: weights and states keep their bits, and the run goes on.
TEST_P(Reference, ASkippedStepChangesNothing) {
    const Golden golden(GetParam());
    FlatModel model = make_flat_model(golden.config(), Dtype::fp32, golden_weight);
    const float infinity = std::numeric_limits<float>::infinity();
    std::memcpy(model.weights[1].data(), &infinity, sizeof(infinity));
    ReferenceOptions options = golden_options(Dtype::fp32, 1.0);
    options.learning_rates.resize(1);
    const ReferenceRun run = run_reference(model, {{golden.batch(0), golden.batch(1)}}, options);
    EXPECT_TRUE(run.steps[0].skipped);
    EXPECT_TRUE(std::isnan(run.steps[0].grad_norm));
    EXPECT_EQ(run.model.weights, model.weights);
    for (const auto& state : run.states) {
        for (const std::byte byte : state) ASSERT_EQ(byte, std::byte{0});
    }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Reference, testing::ValuesIn(golden_names),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace headrace::engine::tests
