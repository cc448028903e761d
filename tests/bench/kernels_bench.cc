// What a block computes between its matrix products, fused and made of ATen calls, and whole
// blocks. Every iteration times both and a memcpy of as many bytes as the fused kernel reads and
// writes, one after the other, so that whatever else the machine does meets all alike. Medians over
// iterations:
//
//   fused_us, reference_us   one call
//   speedup                  reference / fused
//   GB_per_s                 bytes read and written by the fused kernel
//   ceiling_GB_per_s         the same of memcpy (one thread)
//
// Rows are SmolLM2's: hidden 576, intermediate 1536, vocabulary 49152; bf16 weights and
// activations. block/*: forward, and backward from kept and with recompute; GFLOP_per_s of the
// products alone. widening/*: what it costs to widen bf16 weights for each micro-batch anew, as a
// share of a block's products: narrow_cpu_us with it, widened_before_cpu_us without.
//
// Run: kernels_bench [--benchmark_filter=swiglu]; HEADRACE has no part in it but its kernels.
#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>
#include <vector>

#include "engine/torch/llama.h"
#include "engine/torch/ops/cross_entropy.h"
#include "engine/torch/ops/matmul.h"
#include "engine/torch/ops/rms_norm.h"
#include "engine/torch/ops/swiglu.h"

namespace headrace::engine {

namespace {

constexpr int64_t hidden = 576;
constexpr int64_t intermediate = 1536;
constexpr int64_t vocabulary = 49152;
constexpr int thread_count = 2;

double seconds_of(const std::function<void()>& call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Of all threads: other programs on the machine count little.
double cpu_seconds_of(const std::function<void()>& call) {
    const std::clock_t begin = std::clock();
    call();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

double median_of(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

using Call = std::function<void(Kernels)>;

// `prepare` is not timed: it brings back what a call in place has destroyed.
void compare(
    benchmark::State& state, double traffic_bytes, const Call& call,
    const std::function<void()>& prepare = [] {}) {
    const at::NoGradGuard no_graph;
    const auto copy_bytes = static_cast<size_t>(traffic_bytes / 2);
    std::vector<std::byte> source(copy_bytes), target(copy_bytes);
    std::vector<double> fused_s, reference_s, copy_s;
    for (auto _ : state) {
        for (const Kernels kernels : {Kernels::fused, Kernels::reference}) {
            prepare();
            (kernels == Kernels::fused ? fused_s : reference_s).push_back(seconds_of([&] {
                call(kernels);
            }));
        }
        copy_s.push_back(
            seconds_of([&] { std::memcpy(target.data(), source.data(), copy_bytes); }));
        benchmark::DoNotOptimize(target.data());
        state.SetIterationTime(fused_s.back());
    }
    state.counters["fused_us"] = 1e6 * median_of(fused_s);
    state.counters["reference_us"] = 1e6 * median_of(reference_s);
    state.counters["speedup"] = median_of(reference_s) / median_of(fused_s);
    state.counters["GB_per_s"] = 1e-9 * traffic_bytes / median_of(fused_s);
    state.counters["ceiling_GB_per_s"] = 1e-9 * traffic_bytes / median_of(copy_s);
}

at::Tensor random(int64_t rows, int64_t columns, at::ScalarType type) {
    return at::randn({rows, columns}, at::TensorOptions().dtype(at::kFloat)).to(type);
}

const at::ScalarType storage = at::kBFloat16;

double bytes_of(const at::Tensor& x) {
    return static_cast<double>(x.numel()) * static_cast<double>(x.element_size());
}

void norm(benchmark::State& state) {
    const at::Tensor x = random(state.range(0), hidden, storage);
    const at::Tensor weight = random(1, hidden, storage).select(0, 0);
    const Norm given = rms_norm(x, weight, 1e-5, Kernels::fused);
    compare(state, bytes_of(x) + bytes_of(given.y),
            [&](Kernels kernels) { rms_norm(x, weight, 1e-5, kernels); });
}

void norm_backward(benchmark::State& state) {
    const at::Tensor x = random(state.range(0), hidden, storage);
    const at::Tensor weight = random(1, hidden, storage).select(0, 0);
    const Norm given = rms_norm(x, weight, 1e-5, Kernels::fused);
    const at::Tensor dy = random(state.range(0), hidden, work_type(storage));
    const at::Tensor sum = random(state.range(0), hidden, work_type(storage));
    std::vector<float> accumulator(hidden);
    const GradientSink sink(accumulator, Accumulate::store, offload::Dtype::bf16);
    compare(state, bytes_of(x) + bytes_of(dy) + 2 * bytes_of(sum), [&](Kernels kernels) {
        rms_norm_backward({dy, x, given.inverse_rms, weight, sum}, sink, kernels);
    });
}

void swiglu_forward(benchmark::State& state) {
    const at::Tensor gate = random(state.range(0), intermediate, storage);
    const at::Tensor up = random(state.range(0), intermediate, storage);
    const double product_bytes = bytes_of(swiglu(gate, up, Kernels::fused));
    compare(state, 2 * bytes_of(gate) + product_bytes,
            [&](Kernels kernels) { swiglu(gate, up, kernels); });
}

void swiglu_back(benchmark::State& state) {
    const at::Tensor gate = random(state.range(0), intermediate, storage);
    const at::Tensor up = random(state.range(0), intermediate, storage);
    const at::Tensor given = random(state.range(0), intermediate, work_type(storage));
    at::Tensor d_product = given.clone();
    const at::Tensor d_up = at::empty_like(given);
    compare(
        state, 2 * bytes_of(gate) + 3 * bytes_of(d_up),
        [&](Kernels kernels) { swiglu_backward(gate, up, d_product, d_up, kernels); },
        [&] { d_product.copy_(given); });
}

void cross_entropy_rows(benchmark::State& state) {
    const int64_t rows = state.range(0);
    const at::Tensor given = random(rows, vocabulary, work_type(storage));
    at::Tensor logits = given.clone();
    std::vector<int32_t> tokens(static_cast<size_t>(rows), 17);
    std::vector<float> scales(static_cast<size_t>(rows), 1.0f / 512);
    std::vector<double> losses(static_cast<size_t>(rows));
    compare(
        state, 2 * bytes_of(logits),
        [&](Kernels kernels) {
            cross_entropy(logits, {.tokens = tokens, .scales = scales, .losses = losses}, kernels);
        },
        [&] { logits.copy_(given); });
}

LlamaConfig one_block() {
    LlamaConfig config;
    config.hidden_size = hidden;
    config.intermediate_size = intermediate;
    config.block_count = 1;
    config.head_count = 9;
    config.kv_head_count = 3;
    config.head_dim = 64;
    config.vocabulary_size = 256;
    config.max_positions = 2048;
    config.tied = true;
    return config;
}

// One block over one micro-batch of `range(0)` tokens, in both kinds of kernels.
enum class Way : uint8_t { forward, kept, recompute };
void block(benchmark::State& state, Way way) {
    const LlamaConfig config = one_block();
    const int64_t tokens = state.range(0);
    const uint64_t run_elements = offload::make_layout(layers_of(config), offload::block_elements)
                                      .value()
                                      .layers.at(1)
                                      .element_count;
    const at::Tensor weights = random(1, static_cast<int64_t>(run_elements), storage).mul_(0.02);
    const at::Tensor x = random(tokens, hidden, storage);
    const at::Tensor dy = random(tokens, hidden, storage);
    const auto bytes = [](const at::Tensor& tensor) {
        return std::span(static_cast<std::byte*>(tensor.data_ptr()),
                         static_cast<size_t>(tensor.numel() * tensor.element_size()));
    };
    const LlamaCompute fused(config, offload::Dtype::bf16);
    const LlamaCompute reference(config, offload::Dtype::bf16, Kernels::reference);
    const at::Tensor y = at::empty_like(x);
    const auto kept_bytes = static_cast<int64_t>(fused.kept_bytes(1, tokens));
    const at::Tensor kept = at::zeros({kept_bytes}, at::TensorOptions().dtype(at::kByte));
    std::vector<float> accumulator(run_elements);
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    const MicroBatch batch{1, tokens, ids, ids};
    const auto forward = [&](const LlamaCompute& compute) {
        compute.block(batch, {bytes(weights), bytes(x), bytes(y), bytes(kept)});
    };
    const auto call = [&](Kernels kernels) {
        const LlamaCompute& compute = kernels == Kernels::fused ? fused : reference;
        if (way == Way::forward) return forward(compute);
        compute.block_backward(
            batch, {.weights = bytes(weights),
                    .hidden_in = bytes(x),
                    .grad_out = bytes(dy),
                    .grad_in = bytes(y),
                    .accumulator = accumulator,
                    .kept_in = way == Way::kept ? bytes(kept) : std::span<std::byte>()});
    };
    forward(fused);
    compare(state, 2 * bytes_of(weights), call);
    const double products = way == Way::forward ? 2 : way == Way::kept ? 4 : 6;
    const double matrix_elements = hidden * (2.0 * hidden + 2.0 * 192 + 3.0 * intermediate);
    state.counters["GFLOP_per_s"] = 1e-3 * products * matrix_elements *
                                    static_cast<double>(tokens) / state.counters["fused_us"];
}

// The products of all weights of a block with bf16 weights, which are widened for every micro-batch
// anew where the CPU has no bf16 products, beside the same products with weights widened before.
enum class Pass : uint8_t { forward, backward };
void widening(benchmark::State& state, Pass pass) {
    const at::NoGradGuard no_graph;
    const int64_t tokens = state.range(0);
    const std::vector<std::pair<int64_t, int64_t>> shapes = {
        {hidden, hidden},       {192, hidden},          {192, hidden},         {hidden, hidden},
        {intermediate, hidden}, {intermediate, hidden}, {hidden, intermediate}};
    struct Product {
        at::Tensor narrow, wide, x, y, dx;
    };
    std::vector<Product> products;
    int64_t scratch_elements = 0;
    for (const auto& [outputs, inputs] : shapes) {
        const at::Tensor narrow = random(outputs, inputs, storage);
        const at::Tensor x = random(tokens, inputs, work_type(storage));
        products.push_back({narrow, narrow.to(work_type(storage)), x,
                            random(tokens, outputs, work_type(storage)), at::empty_like(x)});
        scratch_elements =
            std::max(scratch_elements, matmul_scratch_elements(tokens, outputs, inputs, storage));
    }
    const at::Tensor scratch =
        at::empty({scratch_elements}, at::TensorOptions().dtype(work_type(storage)));
    std::vector<float> accumulator(static_cast<size_t>(intermediate * hidden));
    const auto run = [&](bool widened) {
        for (const Product& p : products) {
            const at::Tensor& weight = widened ? p.wide : p.narrow;
            if (pass == Pass::forward) {
                multiply(p.x, weight, p.y, scratch);
                continue;
            }
            const std::span sums(accumulator.data(), static_cast<size_t>(weight.numel()));
            multiply_backward({.dy = p.y, .x = p.x, .weight = weight, .dx = p.dx},
                              {sums, Accumulate::add, offload::Dtype::bf16}, scratch);
        }
    };
    std::vector<double> narrow_s, wide_s;
    for (auto _ : state) {
        narrow_s.push_back(cpu_seconds_of([&] { run(false); }));
        wide_s.push_back(cpu_seconds_of([&] { run(true); }));
        state.SetIterationTime(narrow_s.back());
    }
    state.counters["narrow_cpu_us"] = 1e6 * median_of(narrow_s);
    state.counters["widened_before_cpu_us"] = 1e6 * median_of(wide_s);
    state.counters["share_of_widening"] = 1.0 - median_of(wide_s) / median_of(narrow_s);
}

void add_rows() {
    const auto add = [](const char* name, const std::function<void(benchmark::State&)>& row,
                        const std::vector<int64_t>& counts) {
        for (const int64_t count : counts) {
            benchmark::RegisterBenchmark(name, row)
                ->Arg(count)
                ->UseManualTime()
                ->Iterations(25)
                ->Unit(benchmark::kMicrosecond);
        }
    };
    add("rms_norm", norm, {512});
    add("rms_norm_backward", norm_backward, {512});
    add("swiglu", swiglu_forward, {512});
    add("swiglu_backward", swiglu_back, {512});
    add("cross_entropy", cross_entropy_rows, {128});
    const std::vector<int64_t> tokens = {64, 512};
    add(
        "block/forward", [](benchmark::State& state) { block(state, Way::forward); }, tokens);
    add(
        "block/backward_kept", [](benchmark::State& state) { block(state, Way::kept); }, tokens);
    add(
        "block/backward_recompute", [](benchmark::State& state) { block(state, Way::recompute); },
        tokens);
    add(
        "widening/forward", [](benchmark::State& state) { widening(state, Pass::forward); },
        tokens);
    add(
        "widening/backward", [](benchmark::State& state) { widening(state, Pass::backward); },
        tokens);
}

}  // namespace

}  // namespace headrace::engine

int main(int argc, char** argv) {
    headrace::engine::start_torch(headrace::engine::thread_count);
    headrace::engine::add_rows();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
