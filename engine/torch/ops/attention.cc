#include "engine/torch/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/torch/parallel.h"
#include "engine/torch/scalar_type.h"
#include "kernels/host/attention.h"

namespace headrace::engine {

namespace {

// (tokens, heads * head_dim) -> (rows, columns, heads, head_dim)
at::Tensor split_heads(const at::Tensor& x, const AttentionShape& shape, int64_t head_count) {
    return x.view({shape.row_count, shape.column_count, head_count, shape.head_dim});
}

void check_operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionShape& shape) {
    CHECK_GT(shape.kv_head_count, 0);
    CHECK_EQ(shape.head_count % shape.kv_head_count, 0);
    CHECK_EQ(q.size(0), shape.row_count * shape.column_count);
    CHECK_EQ(q.size(1), shape.head_count * shape.head_dim);
    CHECK_EQ(k.size(0), q.size(0));
    CHECK_EQ(k.size(1), shape.kv_head_count * shape.head_dim);
    CHECK(shape.starts.empty() || static_cast<int64_t>(shape.starts.size()) == q.size(0));
    CHECK(k.sizes() == v.sizes());
    CHECK(q.is_contiguous() && k.is_contiguous() && v.is_contiguous());
    CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type());
}

void check_out(const AttentionOut& out, const at::Tensor& q, const AttentionShape& shape) {
    CHECK(out.attended.sizes() == q.sizes() && out.attended.is_contiguous());
    CHECK(out.attended.scalar_type() == q.scalar_type());
    CHECK(out.log_sum.is_contiguous() && out.log_sum.scalar_type() == at::kFloat);
    CHECK_EQ(out.log_sum.numel(), shape.row_count * shape.head_count * shape.column_count);
}

// (tokens, heads * head_dim) -> (rows, heads, columns, head_dim), fp32
at::Tensor heads_of(const at::Tensor& x, const AttentionShape& shape, int64_t head_count) {
    return split_heads(x, shape, head_count).to(at::kFloat).transpose(1, 2);
}

void reference_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionShape& shape, const AttentionOut& out) {
    const auto [attended, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        heads_of(q, shape, shape.head_count), heads_of(k, shape, shape.kv_head_count),
        heads_of(v, shape, shape.kv_head_count), 0.0, true);
    at::Tensor target = split_heads(out.attended, shape, shape.head_count);
    target.copy_(attended.transpose(1, 2));  // (rows, columns, heads, head_dim)
    at::Tensor(out.log_sum).copy_(log_sum.view(out.log_sum.sizes()));
}

void reference_backward(const at::Tensor& d_attended, const at::Tensor& q, const at::Tensor& k,
                        const at::Tensor& v, const AttentionOut& forward,
                        const AttentionShape& shape, const AttentionGradients& gradients) {
    // torch wants the statistics as it makes them: (rows, columns, heads), seen transposed.
    const at::Tensor log_sum =
        forward.log_sum.reshape({shape.row_count, shape.head_count, shape.column_count})
            .transpose(1, 2)
            .contiguous()
            .transpose(1, 2);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_of(d_attended, shape, shape.head_count), heads_of(q, shape, shape.head_count),
        heads_of(k, shape, shape.kv_head_count), heads_of(v, shape, shape.kv_head_count),
        heads_of(forward.attended, shape, shape.head_count), log_sum, 0.0, true);
    split_heads(gradients.dq, shape, shape.head_count).copy_(dq.transpose(1, 2));
    split_heads(gradients.dk, shape, shape.kv_head_count).copy_(dk.transpose(1, 2));
    split_heads(gradients.dv, shape, shape.kv_head_count).copy_(dv.transpose(1, 2));
}

// Calls body(first token, shape of one row, log_sum of it) for each sample: a row is one where
// nothing is packed.
template <class Body>
void for_samples(const AttentionShape& shape, const at::Tensor& log_sum, const Body& body) {
    CHECK_EQ(static_cast<int64_t>(shape.starts.size()), shape.row_count * shape.column_count);
    const at::Tensor rows = log_sum.view({shape.row_count, shape.head_count, shape.column_count});
    for (int64_t row = 0; row < shape.row_count; ++row) {
        const SampleStarts starts = shape.starts.subspan(
            static_cast<size_t>(row * shape.column_count), static_cast<size_t>(shape.column_count));
        for (int64_t first = 0, last = 0; first < shape.column_count; first = last) {
            CHECK_EQ(starts[static_cast<size_t>(first)], first);
            while (last < shape.column_count && starts[static_cast<size_t>(last)] == first) ++last;
            AttentionShape sample = shape;
            sample.row_count = 1;
            sample.column_count = last - first;
            sample.starts = {};
            body(row * shape.column_count + first, sample,
                 rows.narrow(0, row, 1).narrow(2, first, last - first));
        }
    }
}

kernels::AttentionOperands operands_of(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const AttentionOut& out,
                                       const AttentionShape& shape) {
    kernels::AttentionOperands operands;
    operands.sizes = sizes_of(shape);
    operands.dtype = dtype_of(q.scalar_type());
    operands.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
    operands.q = q.const_data_ptr();
    operands.k = k.const_data_ptr();
    operands.v = v.const_data_ptr();
    operands.attended = out.attended.mutable_data_ptr();
    operands.log_sum = out.log_sum.mutable_data_ptr<float>();
    operands.first_keys = shape.starts.empty() ? nullptr : shape.starts.data();
    return operands;
}

// What a phase does per task is so little here that the caller alone is done before another thread
// is awake: about 0.1 ms of packing or joining, or of products.
bool is_short(kernels::AttentionPhase phase, const kernels::AttentionSizes& sizes) {
    constexpr int64_t short_elements = 1 << 16;
    constexpr int64_t short_products = 1 << 20;
    const int64_t tokens = sizes.row_count * sizes.column_count;
    const bool has_products =
        phase == kernels::AttentionPhase::attend || phase == kernels::AttentionPhase::differentiate;
    if (!has_products) return tokens * sizes.kv_head_count * sizes.head_dim < short_elements;
    return tokens * sizes.column_count / 2 * sizes.head_count * sizes.head_dim < short_products;
}

// All phases of a pass over torch's threads; scratch from torch's allocator.
void run_pass(kernels::AttentionPass pass, kernels::AttentionOperands& operands) {
    const kernels::AttentionRow& row = kernels::best_attention_row(operands.dtype);
    const auto floats = [](uint64_t count) {
        return at::empty({static_cast<int64_t>(count)}, at::TensorOptions().dtype(at::kFloat));
    };
    const uint64_t worker_floats = kernels::attention_worker_floats(pass, operands.sizes);
    const auto worker_count = static_cast<uint64_t>(parallel_workers());
    at::Tensor shared = floats(kernels::attention_shared_floats(pass, operands.sizes));
    at::Tensor scratch = floats(worker_count * worker_floats);
    auto* const scratch_data = scratch.mutable_data_ptr<float>();
    operands.layout = kernels::attention_layout(pass, operands.sizes);
    operands.shared = shared.mutable_data_ptr<float>();
    const char* fault = kernels::find_fault(pass, operands);
    CHECK_TEXT(fault == nullptr, fault == nullptr ? "" : fault);
    for (const kernels::AttentionPhase phase : kernels::attention_phases(pass)) {
        const int64_t task_count = kernels::attention_task_count(phase, operands.sizes);
        const auto run_task = [&](int64_t task, int64_t worker) {
            const std::span mine(scratch_data + static_cast<uint64_t>(worker) * worker_floats,
                                 worker_floats);
            kernels::run_attention_task(row, phase, operands, task, mine);
        };
        if (is_short(phase, operands.sizes)) {
            for (int64_t task = 0; task < task_count; ++task) run_task(task, 0);
        } else {
            parallel_blocks(task_count, run_task);
        }
    }
}

}  // namespace

AttentionOut attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionShape& shape, Kernels choice) {
    AttentionOut out{at::empty(q.sizes(), q.options()),
                     at::empty({shape.row_count, shape.head_count, shape.column_count},
                               q.options().dtype(at::kFloat))};
    attention_forward_into(q, k, v, shape, choice, out);
    return out;
}

void attention_forward_into(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionShape& shape, Kernels choice, const AttentionOut& out) {
    check_operands(q, k, v, shape);
    check_out(out, q, shape);
    if (choice == Kernels::reference && shape.starts.empty()) {
        return reference_forward(q, k, v, shape, out);
    }
    if (choice == Kernels::reference) {
        return for_samples(
            shape, out.log_sum,
            [&](int64_t token, const AttentionShape& sample, const at::Tensor& log_sum) {
                const auto part = [&](const at::Tensor& x) {
                    return x.narrow(0, token, sample.column_count);
                };
                reference_forward(part(q), part(k), part(v), sample, {part(out.attended), log_sum});
            });
    }
    kernels::AttentionOperands operands = operands_of(q, k, v, out, shape);
    run_pass(kernels::AttentionPass::forward, operands);
}

AttentionGradients attention_backward(const at::Tensor& d_attended, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const AttentionOut& forward, const AttentionShape& shape,
                                      Kernels choice) {
    AttentionGradients gradients{at::empty(q.sizes(), q.options()),
                                 at::empty(k.sizes(), k.options()),
                                 at::empty(v.sizes(), v.options())};
    attention_backward_into(d_attended, q, k, v, forward, shape, choice, gradients);
    return gradients;
}

void attention_backward_into(const at::Tensor& d_attended, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionOut& forward,
                             const AttentionShape& shape, Kernels choice,
                             const AttentionGradients& gradients) {
    check_operands(q, k, v, shape);
    check_out(forward, q, shape);
    CHECK(d_attended.sizes() == q.sizes() && d_attended.is_contiguous());
    CHECK(d_attended.scalar_type() == q.scalar_type());
    check_operands(gradients.dq, gradients.dk, gradients.dv, shape);
    CHECK(gradients.dq.scalar_type() == q.scalar_type());
    if (choice == Kernels::reference && shape.starts.empty()) {
        return reference_backward(d_attended, q, k, v, forward, shape, gradients);
    }
    if (choice == Kernels::reference) {
        return for_samples(
            shape, forward.log_sum,
            [&](int64_t token, const AttentionShape& sample, const at::Tensor& log_sum) {
                const auto part = [&](const at::Tensor& x) {
                    return x.narrow(0, token, sample.column_count);
                };
                reference_backward(part(d_attended), part(q), part(k), part(v),
                                   {part(forward.attended), log_sum}, sample,
                                   {part(gradients.dq), part(gradients.dk), part(gradients.dv)});
            });
    }
    kernels::AttentionOperands operands = operands_of(q, k, v, forward, shape);
    operands.d_attended = d_attended.const_data_ptr();
    operands.dq = gradients.dq.mutable_data_ptr();
    operands.dk = gradients.dk.mutable_data_ptr();
    operands.dv = gradients.dv.mutable_data_ptr();
    run_pass(kernels::AttentionPass::backward, operands);
}

}  // namespace headrace::engine
