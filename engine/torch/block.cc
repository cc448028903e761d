#include "engine/torch/block.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/torch/ops/matmul.h"
#include "engine/torch/ops/residual.h"
#include "engine/torch/ops/rms_norm.h"
#include "engine/torch/ops/rows.h"
#include "engine/torch/ops/swiglu.h"
#include "engine/torch/scalar_type.h"

namespace headrace::engine {

using offload::Dtype;

namespace {

// Of the extents of a kept, in their order.
constexpr std::array<at::Tensor BlockKept::*, 8> kept_tensors = {
    &BlockKept::query,   &BlockKept::key,    &BlockKept::value, &BlockKept::attended,
    &BlockKept::log_sum, &BlockKept::middle, &BlockKept::gate,  &BlockKept::up};

at::TensorOptions work_options(Dtype storage) {
    return at::TensorOptions().dtype(scalar_type_of(work_dtype(storage)));
}

at::Tensor empty_work(int64_t row_count, int64_t column_count, Dtype storage) {
    return at::empty({row_count, column_count}, work_options(storage));
}

// Scratch of the products of every weight of a block.
at::Tensor make_scratch(const BlockWeights& weights, const BlockShape& shape) {
    int64_t elements = 0;
    for (const at::Tensor& weight :
         {weights.query, weights.key, weights.output, weights.gate, weights.down}) {
        elements = std::max(
            elements, matmul_scratch_elements(shape.token_count(), weight.size(0), weight.size(1),
                                              shape.storage, work_dtype(shape.storage)));
    }
    return at::empty({elements}, work_options(shape.storage));
}

void assign(const at::Tensor& source, const at::Tensor& target) {
    if (source.scalar_type() != target.scalar_type()) return convert(source, target);
    at::Tensor(target).copy_(source);
}

void check_rows(const at::Tensor& x, const BlockShape& shape) {
    CHECK_EQ(x.dim(), 2);
    CHECK_EQ(x.size(0), shape.token_count());
    CHECK_EQ(x.size(1), shape.hidden_size);
    CHECK(x.scalar_type() == scalar_type_of(shape.storage));
    CHECK(x.is_contiguous());
}

}  // namespace

BlockKept kept_at(const BlockShape& shape, std::span<std::byte> bytes) {
    CHECK_EQ(bytes.size(), kept_bytes_of(shape));
    CHECK_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 64, 0u);
    const std::vector<KeptExtent> extents = kept_extents_of(shape);
    CHECK_EQ(extents.size(), kept_tensors.size());
    BlockKept kept;
    for (size_t i = 0; i < extents.size(); ++i) {
        kept.*kept_tensors[i] =
            at::from_blob(bytes.data(), extents[i].sizes,
                          at::TensorOptions().dtype(scalar_type_of(extents[i].dtype)));
        bytes = bytes.subspan(extents[i].size_bytes());
    }
    return kept;
}

BlockKept make_kept(const BlockShape& shape) {
    const std::vector<KeptExtent> extents = kept_extents_of(shape);
    CHECK_EQ(extents.size(), kept_tensors.size());
    BlockKept kept;
    for (size_t i = 0; i < extents.size(); ++i) {
        kept.*kept_tensors[i] = at::empty(
            extents[i].sizes, at::TensorOptions().dtype(scalar_type_of(extents[i].dtype)));
    }
    return kept;
}

void Block::keep(const at::Tensor& x, const BlockKept& kept) const {
    keep(x, kept, make_scratch(weights, shape));
}

void Block::keep(const at::Tensor& x, const BlockKept& kept, const at::Tensor& scratch) const {
    check_rows(x, shape);
    {
        const Norm normed = rms_norm(x, weights.input_norm, epsilon, kernels);
        multiply(normed.y, weights.query, kept.query, scratch);
        multiply(normed.y, weights.key, kept.key, scratch);
        multiply(normed.y, weights.value, kept.value, scratch);
    }
    for (at::Tensor turned : {kept.query, kept.key}) {
        rope_rotate_(turned, rope, Turn::forward, kernels, shape.attention.starts);
    }
    attention_forward_into(kept.query, kept.key, kept.value, shape.attention, kernels,
                           {kept.attended, kept.log_sum});
    {
        const at::Tensor half = empty_work(x.size(0), x.size(1), shape.storage);
        multiply(as_work(kept.attended), weights.output, half, scratch);
        add_residual(x, half, kept.middle);
    }
    const Norm normed = rms_norm(kept.middle, weights.post_norm, epsilon, kernels);
    multiply(normed.y, weights.gate, kept.gate, scratch);
    multiply(normed.y, weights.up, kept.up, scratch);
}

void Block::finish(const BlockKept& kept, const at::Tensor& y) const {
    check_rows(y, shape);
    const at::Tensor scratch = make_scratch(weights, shape);
    const at::Tensor half = empty_work(y.size(0), y.size(1), shape.storage);
    multiply(swiglu(kept.gate, kept.up, kernels), weights.down, half, scratch);
    add_residual(kept.middle, half, y);
}

void Block::mlp_backward(BlockKept& kept, const at::Tensor& d_hidden, const BlockSinks& sinks,
                         const at::Tensor& scratch) const {
    at::Tensor d_gate = empty_work(kept.gate.size(0), kept.gate.size(1), shape.storage);
    at::Tensor d_up = swiglu(kept.gate, kept.up, kernels);  // the product, for now
    multiply_backward({.dy = d_hidden, .x = d_up, .weight = weights.down, .dx = d_gate}, sinks.down,
                      scratch);
    swiglu_backward(kept.gate, kept.up, /*d_product=*/d_gate, d_up, kernels);
    kept.gate.reset();
    kept.up.reset();
    const Norm normed = rms_norm(kept.middle, weights.post_norm, epsilon, kernels);
    const at::Tensor d_normed = at::empty_like(normed.y);  // (tokens, hidden)
    multiply_backward({.dy = d_gate, .x = normed.y, .weight = weights.gate, .dx = d_normed},
                      sinks.gate, scratch);
    d_gate.reset();
    multiply_backward({.dy = d_up,
                       .x = normed.y,
                       .weight = weights.up,
                       .dx = d_normed,
                       .mode = InputGradient::add},
                      sinks.up, scratch);
    d_up.reset();
    rms_norm_backward({.dy = d_normed,
                       .x = kept.middle,
                       .inverse_rms = normed.inverse_rms,
                       .weight = weights.post_norm,
                       .sum = d_hidden},
                      sinks.post_norm, kernels);
    kept.middle.reset();
}

void Block::attention_backward(const at::Tensor& x, BlockKept& kept, const at::Tensor& d_hidden,
                               const BlockSinks& sinks, const at::Tensor& scratch) const {
    AttentionGradients d;
    {
        const at::Tensor d_attended = at::empty_like(kept.attended);  // (tokens, heads * head_dim)
        {
            const bool is_rounded = work_dtype(shape.storage) != shape.storage;
            const at::Tensor wide =
                is_rounded ? empty_work(d_attended.size(0), d_attended.size(1), shape.storage)
                           : d_attended;
            multiply_backward(
                {.dy = d_hidden, .x = as_work(kept.attended), .weight = weights.output, .dx = wide},
                sinks.output, scratch);
            if (is_rounded) convert(wide, d_attended);
        }
        d = engine::attention_backward(d_attended, kept.query, kept.key, kept.value,
                                       {kept.attended, kept.log_sum}, shape.attention, kernels);
    }
    kept = {};
    rope_rotate_(d.dq, rope, Turn::back, kernels, shape.attention.starts);
    rope_rotate_(d.dk, rope, Turn::back, kernels, shape.attention.starts);
    const Norm normed = rms_norm(x, weights.input_norm, epsilon, kernels);
    const at::Tensor d_normed = at::empty_like(normed.y);  // (tokens, hidden)
    const auto project_back = [&](at::Tensor& dy, const at::Tensor& weight, InputGradient mode,
                                  const GradientSink& sink) {
        multiply_backward(
            {.dy = as_work(dy), .x = normed.y, .weight = weight, .dx = d_normed, .mode = mode},
            sink, scratch);
        dy.reset();
    };
    project_back(d.dq, weights.query, InputGradient::store, sinks.query);
    project_back(d.dk, weights.key, InputGradient::add, sinks.key);
    project_back(d.dv, weights.value, InputGradient::add, sinks.value);
    rms_norm_backward({.dy = d_normed,
                       .x = x,
                       .inverse_rms = normed.inverse_rms,
                       .weight = weights.input_norm,
                       .sum = d_hidden},
                      sinks.input_norm, kernels);
}

void Block::backward(const at::Tensor& x, BlockKept kept, const at::Tensor& dy,
                     const at::Tensor& dx, const BlockSinks& sinks) const {
    check_rows(x, shape);
    check_rows(dy, shape);
    check_rows(dx, shape);
    // What lives to the end comes first in memory, and kept, whose last tensors are used up first,
    // after it: so what is given back leaves no hole that the next tensors do not fit.
    // d loss / d the hidden state that backward has come to.
    const at::Tensor d_hidden = empty_work(dy.size(0), dy.size(1), shape.storage);
    const at::Tensor scratch = make_scratch(weights, shape);
    if (!kept.query.defined()) {
        kept = make_kept(shape);
        keep(x, kept, scratch);
    }
    assign(dy, d_hidden);
    mlp_backward(kept, d_hidden, sinks, scratch);
    attention_backward(x, kept, d_hidden, sinks, scratch);
    assign(d_hidden, dx);
}

}  // namespace headrace::engine
