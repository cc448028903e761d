#include "engine/torch/ops/attention.h"

#include <tuple>

namespace headrace::engine {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// (tokens, heads * head_dim) -> (rows, columns, heads, head_dim)
at::Tensor split_heads(const at::Tensor& x, const AttentionShape& shape, int64_t head_count) {
    return x.view({shape.row_count, shape.column_count, head_count, shape.head_dim});
}

// (rows, heads, columns, head_dim) -> (tokens, heads * head_dim), in `dtype`
at::Tensor join_heads(const at::Tensor& x, at::ScalarType dtype) {
    return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1) * x.size(3)}).to(dtype);
}

struct Attention : torch::autograd::Function<Attention> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const RopeTable& table,
                              const AttentionShape& shape) {
        const at::Tensor queries =
            rotate(split_heads(q, shape, shape.head_count), table, Turn::forward).transpose(1, 2);
        const at::Tensor keys =
            rotate(split_heads(k, shape, shape.kv_head_count), table, Turn::forward)
                .transpose(1, 2);
        const at::Tensor values =
            split_heads(v, shape, shape.kv_head_count).to(at::kFloat).transpose(1, 2);
        const auto [attended, log_sum] =
            at::_scaled_dot_product_flash_attention_for_cpu(queries, keys, values, 0.0, true);
        context->save_for_backward(
            {queries, keys, values, attended, log_sum, table.cosine, table.sine});
        context->saved_data["dtype"] = static_cast<int64_t>(q.scalar_type());
        return join_heads(attended, q.scalar_type());
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
        CHECK_EQ(gradients.size(), 1u);
        CHECK_EQ(saved.size(), 7u);
        const at::Tensor& queries = saved[0];  // (rows, heads, columns, head_dim)
        const at::Tensor d_attended =
            gradients[0]
                .to(at::kFloat)
                .view({queries.size(0), queries.size(2), queries.size(1), queries.size(3)})
                .transpose(1, 2);
        const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
            d_attended, queries, saved[1], saved[2], saved[3], saved[4], 0.0, true);
        const RopeTable table{saved[5], saved[6]};
        const auto turn_back = [&](const at::Tensor& gradient) {
            return rotate(gradient.transpose(1, 2), table, Turn::back).transpose(1, 2);
        };
        return {join_heads(turn_back(dq), dtype), join_heads(turn_back(dk), dtype),
                join_heads(dv, dtype), at::Tensor(), at::Tensor()};
    }
};

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const RopeTable& table, const AttentionShape& shape) {
    CHECK_GT(shape.kv_head_count, 0);
    CHECK_EQ(shape.head_count % shape.kv_head_count, 0);
    CHECK_EQ(q.size(0), shape.row_count * shape.column_count);
    CHECK_EQ(q.size(1), shape.head_count * shape.head_dim);
    CHECK_EQ(k.size(1), shape.kv_head_count * shape.head_dim);
    CHECK(k.sizes() == v.sizes());
    return Attention::apply(q, k, v, table, shape);
}

}  // namespace headrace::engine
