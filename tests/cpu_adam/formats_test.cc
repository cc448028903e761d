// Goal: in every format the bits of a layer do not depend on how it is cut into parts, on threads
// or on the row; an observer of a part is shown whole pages, each once; and training with bf16 or
// int8 states is as good as with fp32. Method: a layer as one part on the scalar row against parts
// on pools; sections_of over what an observer saw; a noisy quadratic, whose loss after 200 steps is
// known for all three.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <tuple>
#include <vector>

#include "cpu_adam/convert.h"
#include "cpu_adam/pool.h"
#include "offload/units.h"
#include "tests/cpu_adam/adam_reference.h"

namespace headrace::cpu_adam {

using offload::Dtype;

namespace {

constexpr StateFormat formats[] = {StateFormat::fp32, StateFormat::bf16, StateFormat::int8};
constexpr Dtype dtypes[] = {Dtype::bf16, Dtype::fp16, Dtype::fp32};

// Elements [first, first + count) of a layer's flat run, with their weights' bits and states.
class Part {
  public:
    Part(Dtype weight_dtype, StateFormat state_format, uint64_t first, uint64_t count)
        : weight(weight_dtype),
          format(state_format),
          first_element(first),
          element_count(count),
          weights(offload::div_ceil(bytes_of(weight, count), 4), 0x3C003C00u),
          states(offload::div_ceil(offload::opt_bytes(weight, format, count), 4)) {}

    PartUpdate update(const std::vector<float>& layer_gradients) {
        return {.element_count = element_count,
                .weight_dtype = weight,
                .format = format,
                .gradient_dtype = Dtype::fp32,
                .weight = std::as_writable_bytes(std::span(weights)),
                .state = std::as_writable_bytes(std::span(states)),
                .gradient = std::as_bytes(std::span(layer_gradients).subspan(first_element)),
                .rounding = {.seed = 42, .layer = 5},
                .first_element = first_element};
    }
    StateView view() {
        return view_state(weight, format, std::as_writable_bytes(std::span(states)), element_count);
    }
    std::span<std::byte> weight_bytes() {
        return std::as_writable_bytes(std::span(weights)).first(bytes_of(weight, element_count));
    }
    bool operator==(const Part&) const = default;

    Dtype weight;
    StateFormat format;
    uint64_t first_element;
    uint64_t element_count;
    std::vector<uint32_t> weights, states;
};

void run_steps(UpdatePool* pool, const Row& row, Part* part, uint64_t step_count) {
    const uint64_t layer_elements = part->first_element + part->element_count;
    for (uint64_t t = 1; t <= step_count; ++t) {
        const auto gradients = plain_values(layer_elements, 0.1f, static_cast<uint32_t>(t));
        pool->update(row, {.learning_rate = 1e-3, .adam_step = t}, part->update(gradients));
    }
}

}  // namespace

TEST(Formats, math_1_no_cut_row_or_thread_count_changes_a_bit) {
    const uint64_t layer_elements = 2 * 32768 + 2048 * 3;
    const uint64_t cut = 32768 + 2048;
    UpdatePool one(1), three(3);
    for (const Dtype weight : dtypes) {
        for (const StateFormat format : formats) {
            Part expected(weight, format, 0, layer_elements);
            run_steps(&one, rows().back(), &expected, 3);
            Part first(weight, format, 0, cut), second(weight, format, cut, layer_elements - cut);
            run_steps(&three, best(), &first, 3);
            run_steps(&three, best(), &second, 3);
            Part joined(weight, format, 0, layer_elements);
            copy_state(first.view(), joined.view(), {0, 0, cut});
            copy_state(second.view(), joined.view(), {0, cut, layer_elements - cut});
            std::ranges::copy(first.weight_bytes(), joined.weight_bytes().begin());
            std::ranges::copy(second.weight_bytes(),
                              joined.weight_bytes().subspan(bytes_of(weight, cut)).begin());
            EXPECT_EQ(joined, expected) << name_of(weight) << " " << name_of(format);
        }
    }
}

TEST(Formats, another_seed_or_layer_rounds_otherwise) {
    const std::vector<float> gradients = plain_values(4096, 0.1f, 1);
    for (const StateFormat format : formats) {
        std::vector<Part> parts(3, Part(Dtype::bf16, format, 0, 4096));
        for (size_t i = 0; i < parts.size(); ++i) {
            PartUpdate update = parts[i].update(gradients);
            if (i == 1) update.rounding.seed += 1;
            if (i == 2) update.rounding.layer += 1;
            update_range(best(), factors_of({.learning_rate = 1e-3}), update, {0, 4096});
        }
        EXPECT_EQ(parts[0] == parts[1], format == StateFormat::fp32);
        EXPECT_EQ(parts[0] == parts[2], format == StateFormat::fp32);
    }
}

TEST(Formats, an_observer_is_shown_whole_pages_each_once) {
    const uint64_t element_count = 3 * 32768 + 2048 * 5;
    const std::vector<float> gradients = plain_values(element_count, 0.1f, 1);
    UpdatePool pool(3);
    for (const Dtype weight : dtypes) {
        for (const StateFormat format : formats) {
            Part part(weight, format, 0, element_count);
            PartUpdate update = part.update(gradients);
            std::vector<uint32_t> seen(update.state.size() / offload::page_bytes);
            std::mutex mutex;
            const std::function<void(ElementRange)> look = [&](ElementRange range) {
                const std::lock_guard lock(mutex);
                for (const ByteRange& bytes : sections_of({weight, format, element_count}, range)) {
                    EXPECT_EQ(bytes.offset_bytes % offload::page_bytes, 0u);
                    EXPECT_EQ(bytes.size_bytes % offload::page_bytes, 0u);
                    const uint64_t first = bytes.offset_bytes / offload::page_bytes;
                    for (uint64_t i = 0; i < bytes.size_bytes / offload::page_bytes; ++i) {
                        seen.at(first + i) += 1;
                    }
                }
            };
            update.on_updated = &look;
            pool.update(best(), {.learning_rate = 1e-3}, update);
            EXPECT_TRUE(std::ranges::all_of(seen, [](uint32_t times) { return times == 1; }))
                << name_of(weight) << " " << name_of(format);
        }
    }
}

namespace {

// Loss curvature / 2 * (w - target)^2 per element, gradients with noise; curvatures over two powers
// of ten, so that a block holds small and large moments.
struct Quadratic {
    explicit Quadratic(uint64_t count) : targets(plain_values(count, 0.1f, 21)) {
        std::mt19937 random(22);
        std::uniform_real_distribution<float> exponent(-2, 0);
        for (uint64_t i = 0; i < count; ++i)
            curvatures.push_back(std::pow(10.0f, exponent(random)));
    }

    float gradient(uint64_t i, float w) const { return curvatures[i] * (w - targets[i]); }
    double loss(const std::vector<float>& weights) const {
        double sum = 0;
        for (size_t i = 0; i < weights.size(); ++i) {
            const double off = static_cast<double>(weights[i] - targets[i]);
            sum += 0.5 * static_cast<double>(curvatures[i]) * off * off;
        }
        return sum / static_cast<double>(weights.size());
    }
    std::vector<float> targets, curvatures;
};

struct Training {
    std::vector<float> weights;
    double loss = 0;
};

Training train(StateFormat format, uint64_t step_count) {
    const uint64_t count = 8192;
    const Quadratic problem(count);
    Part part(Dtype::fp32, format, 0, count);
    std::ranges::fill(part.weights, 0u);
    Training run{std::vector<float>(count), 0};
    for (uint64_t t = 1; t <= step_count; ++t) {
        std::vector<float> gradients = plain_values(count, 0.01f, static_cast<uint32_t>(1000 + t));
        std::memcpy(run.weights.data(), part.weights.data(), count * sizeof(float));
        for (uint64_t i = 0; i < count; ++i) gradients[i] += problem.gradient(i, run.weights[i]);
        const AdamStep step{.learning_rate = 2e-3, .beta2 = 0.99, .adam_step = t};
        update_range(best(), factors_of(step), part.update(gradients), {0, count});
    }
    std::memcpy(run.weights.data(), part.weights.data(), count * sizeof(float));
    run.loss = problem.loss(run.weights);
    return run;
}

double distance_of(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        sum += std::pow(static_cast<double>(a[i] - b[i]), 2);
    }
    return std::sqrt(sum / static_cast<double>(a.size()));
}

}  // namespace

TEST(Formats, two_hundred_noisy_steps_track_those_in_fp32) {
    const Training fp32 = train(StateFormat::fp32, 200);
    const Training start = train(StateFormat::fp32, 0);
    EXPECT_LT(fp32.loss, 0.05 * start.loss);
    const double way = distance_of(fp32.weights, start.weights);
    for (const auto& [format, loss_bound, distance_bound] :
         {std::tuple{StateFormat::bf16, 0.005, 0.005}, std::tuple{StateFormat::int8, 0.02, 0.03}}) {
        const Training run = train(format, 200);
        RecordProperty(std::string(name_of(format)) + "_loss_ratio",
                       std::to_string(run.loss / fp32.loss));
        RecordProperty(std::string(name_of(format)) + "_distance",
                       std::to_string(distance_of(run.weights, fp32.weights) / way));
        EXPECT_NEAR(run.loss / fp32.loss, 1.0, loss_bound) << name_of(format);
        EXPECT_LT(distance_of(run.weights, fp32.weights) / way, distance_bound) << name_of(format);
    }
}

}  // namespace headrace::cpu_adam
