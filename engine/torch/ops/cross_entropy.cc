#include "engine/torch/ops/cross_entropy.h"

#include <algorithm>

#include "engine/torch/ops/rows.h"
#include "engine/torch/parallel.h"
#include "kernels/host/natural_log.h"

namespace headrace::engine {

namespace {

// Rows are taken a few at a time, so that the passes below find them in the cache.
constexpr int64_t cached_bytes = 2 << 20;

void reference_cross_entropy(const at::Tensor& logits, std::span<const int32_t> targets,
                             std::span<const float> scales, std::span<double> losses) {
    const int64_t row_count = logits.size(0);
    const int64_t vocabulary_size = logits.size(1);
    const int64_t block_row_count = std::max<int64_t>(1, cached_bytes / (4 * vocabulary_size));
    for (int64_t first = 0; first < row_count; first += block_row_count) {
        const int64_t count = std::min(block_row_count, row_count - first);
        const at::Tensor block = logits.narrow(0, first, count);  // (rows, vocabulary)
        const at::Tensor highest = block.amax(1, true);           // (rows, 1)
        block.sub_(highest);
        float* values = block.mutable_data_ptr<float>();
        for (int64_t row = 0; row < count; ++row) {
            const int32_t target = targets[static_cast<size_t>(first + row)];
            CHECK_GE(target, 0);
            CHECK_LT(target, vocabulary_size);
            losses[static_cast<size_t>(first + row)] = -values[row * vocabulary_size + target];
        }
        const at::Tensor sums = block.exp_().sum(1, true);  // (rows, 1), each >= 1
        const at::Tensor factors = at::empty_like(sums);    // (rows, 1)
        for (int64_t row = 0; row < count; ++row) {
            const float sum = sums.const_data_ptr<float>()[row];
            const auto index = static_cast<size_t>(first + row);
            losses[index] += kernels::natural_log(static_cast<double>(sum));
            factors.mutable_data_ptr<float>()[row] = scales[index] / sum;
        }
        block.mul_(factors);
        for (int64_t row = 0; row < count; ++row) {
            const auto index = static_cast<size_t>(first + row);
            values[row * vocabulary_size + targets[index]] -= scales[index];
        }
    }
}

}  // namespace

void cross_entropy(const at::Tensor& logits, const OutputTargets& targets, Kernels kernels) {
    CHECK(logits.is_contiguous());
    const auto& [tokens, scales, losses] = targets;
    const int64_t row_count = logits.size(0);
    const int64_t vocabulary_size = logits.size(1);
    CHECK_EQ(static_cast<int64_t>(tokens.size()), row_count);
    CHECK_EQ(scales.size(), tokens.size());
    CHECK_EQ(losses.size(), tokens.size());
    for (const int32_t token : tokens) {
        CHECK_GE(token, 0);
        CHECK_LT(token, vocabulary_size);
    }
    if (kernels == Kernels::reference) {
        const at::Tensor wide = logits.to(at::kFloat);
        reference_cross_entropy(wide, tokens, scales, losses);
        if (!wide.is_same(logits)) at::Tensor(logits).copy_(wide);
        return;
    }
    auto* bytes = static_cast<std::byte*>(logits.data_ptr());
    const int64_t row_bytes = vocabulary_size * static_cast<int64_t>(logits.element_size());
    parallel_rows(row_count, 1, [&](int64_t first, int64_t last) {
        row_functions().cross_entropy({.element = element_of(logits.scalar_type()),
                                       .row_count = last - first,
                                       .column_count = vocabulary_size,
                                       .logits = bytes + first * row_bytes,
                                       .targets = targets.tokens.data() + first,
                                       .scales = targets.scales.data() + first,
                                       .losses = targets.losses.data() + first});
    });
}

}  // namespace headrace::engine
