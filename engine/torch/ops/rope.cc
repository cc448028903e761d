#include "engine/torch/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/torch/parallel.h"
#include "engine/torch/scalar_type.h"
#include "kernels/host/rope.h"

namespace headrace::engine {

std::vector<float> inverse_frequencies(const Rope& rope, int64_t head_dim) {
    CHECK_GT(head_dim, 0);
    CHECK_EQ(head_dim % 2, 0);
    CHECK_GT(rope.theta, 0.0);
    const at::TensorOptions fp32 = at::TensorOptions().dtype(at::kFloat);
    const at::Tensor exponents = at::arange(0, head_dim, 2, fp32) / static_cast<double>(head_dim);
    const at::Tensor plain = at::reciprocal(at::pow(rope.theta, exponents));
    std::vector<float> frequencies(plain.const_data_ptr<float>(),
                                   plain.const_data_ptr<float>() + plain.numel());
    if (rope.type == RopeType::plain) return frequencies;

    CHECK_GT(rope.high_frequency_factor, rope.low_frequency_factor);
    const auto original = static_cast<double>(rope.original_max_positions);
    for (float& frequency : frequencies) {
        const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / frequency;
        const auto slowed = static_cast<float>(frequency / rope.factor);
        if (wavelength > original / rope.low_frequency_factor) {
            frequency = slowed;
        } else if (wavelength >= original / rope.high_frequency_factor) {
            const auto smooth =
                static_cast<float>((original / wavelength - rope.low_frequency_factor) /
                                   (rope.high_frequency_factor - rope.low_frequency_factor));
            frequency = (1.0f - smooth) * slowed + smooth * frequency;
        }
    }
    return frequencies;
}

RopeTable rope_table(const std::vector<float>& frequencies, int64_t column_count,
                     at::ScalarType dtype) {
    CHECK_GT(column_count, 0);
    CHECK(!frequencies.empty());
    const auto pair_count = static_cast<int64_t>(frequencies.size());
    const at::TensorOptions fp32 = at::TensorOptions().dtype(at::kFloat);
    const at::Tensor scale =
        at::from_blob(const_cast<float*>(frequencies.data()), {pair_count}, fp32);
    const at::Tensor positions = at::arange(column_count, fp32).unsqueeze(1);  // (columns, 1)
    const at::Tensor angles = at::mul(positions, scale).unsqueeze(1);  // (columns, 1, pairs)
    return {angles.cos().to(dtype).to(at::kFloat), angles.sin().to(dtype).to(at::kFloat)};
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table, Turn turn) {
    CHECK_EQ(x.dim(), 4);
    const int64_t pair_count = table.cosine.size(2);
    CHECK_EQ(x.size(3), 2 * pair_count);
    CHECK_EQ(x.size(1), table.cosine.size(0));
    const double sign = turn == Turn::forward ? 1.0 : -1.0;
    const at::Tensor wide = x.to(at::kFloat);                  // (rows, columns, heads, head_dim)
    at::Tensor turned = at::empty(x.sizes(), wide.options());  // the same
    const at::Tensor low = wide.narrow(3, 0, pair_count);      // (rows, columns, heads, pairs)
    const at::Tensor high = wide.narrow(3, pair_count, pair_count);
    at::Tensor turned_low = turned.narrow(3, 0, pair_count);
    at::Tensor turned_high = turned.narrow(3, pair_count, pair_count);
    at::mul_out(turned_low, low, table.cosine).addcmul_(high, table.sine, -sign);
    at::mul_out(turned_high, high, table.cosine).addcmul_(low, table.sine, sign);
    return turned;
}

namespace {

// The angles of every token: (tokens, 1, pairs).
RopeTable restarted_table(const RopeTable& table, SampleStarts starts) {
    const int64_t column_count = table.cosine.size(0);
    const auto token_count = static_cast<int64_t>(starts.size());
    at::Tensor positions = at::empty({token_count}, at::TensorOptions().dtype(at::kLong));
    for (int64_t token = 0; token < token_count; ++token) {
        const int64_t position = token % column_count - starts[static_cast<size_t>(token)];
        CHECK_GE(position, 0);
        positions.mutable_data_ptr<int64_t>()[token] = position;
    }
    return {table.cosine.index_select(0, positions), table.sine.index_select(0, positions)};
}

// Some 10 microseconds: worth another thread.
constexpr int64_t turned_elements_per_block = 1 << 16;

}  // namespace

void rope_rotate_(at::Tensor& x, const RopeTable& table, Turn turn, Kernels choice,
                  SampleStarts starts) {
    CHECK_EQ(x.dim(), 2);
    CHECK(x.is_contiguous());
    CHECK(table.cosine.is_contiguous() && table.sine.is_contiguous());
    const int64_t column_count = table.cosine.size(0);
    const int64_t head_dim = 2 * table.cosine.size(2);
    CHECK_EQ(x.size(0) % column_count, 0);
    CHECK_EQ(x.size(1) % head_dim, 0);
    const int64_t head_count = x.size(1) / head_dim;
    CHECK(starts.empty() || static_cast<int64_t>(starts.size()) == x.size(0));
    if (choice == Kernels::reference && !starts.empty()) {
        const RopeTable restarted = restarted_table(table, starts);
        at::Tensor split = x.view({1, x.size(0), head_count, head_dim});
        split.copy_(rotate(split, restarted, turn));  // (1, tokens, heads, head_dim)
        return;
    }
    if (choice == Kernels::reference) {
        at::Tensor split = x.view({x.size(0) / column_count, column_count, head_count, head_dim});
        split.copy_(rotate(split, table, turn));  // (rows, columns, heads, head_dim)
        return;
    }
    const kernels::RopeOperands operands{.x = x.mutable_data_ptr(),
                                         .dtype = dtype_of(x.scalar_type()),
                                         .head_count = head_count,
                                         .pair_count = head_dim / 2,
                                         .column_count = column_count,
                                         .sample_starts = starts.empty() ? nullptr : starts.data(),
                                         .cosine = table.cosine.const_data_ptr<float>(),
                                         .sine = table.sine.const_data_ptr<float>(),
                                         .is_back = turn == Turn::back};
    const kernels::RopeRow& row = kernels::best_rope_row();
    const int64_t block_tokens = std::max<int64_t>(1, turned_elements_per_block / x.size(1));
    parallel_rows(x.size(0), block_tokens, [&](int64_t first, int64_t last) {
        kernels::turn_tokens(row, operands, first, last);
    });
}

}  // namespace headrace::engine
