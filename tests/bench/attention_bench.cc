// Attention beside torch's own flash attention (Kernels::reference), interleaved: every iteration
// times both, one after the other, so that whatever else the machine does meets both alike. Medians
// over the iterations:
//
//   ms, reference_ms  one call, forward or forward and backward
//   speedup           reference_ms / ms
//   cpu_speedup       the same of the process's CPU time, which a busy machine disturbs less
//   GF_per_cpu_s      floating-point operations of the causal half, in 10^9 a second of CPU time
//   ceiling_GF_per_cpu_s  the same of an fp32 matrix product of 1024^3 by torch
//
// Run: attention_bench [--benchmark_filter=2048]; SmolLM2's heads: 9, 3 of keys, of 64.
#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string>
#include <vector>

#include "engine/cli/quiet_start.h"
#include "engine/torch/ops/attention.h"

namespace headrace::engine {

namespace {

struct Case {
    AttentionShape shape;
    at::ScalarType dtype = at::kBFloat16;
    bool with_backward = false;
};

struct Operands {
    at::Tensor q, k, v, d_attended;
};

struct Seconds {
    double wall = 0;
    double cpu = 0;
};

// Of one call.
template <class Function>
Seconds seconds_of(Function function) {
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu_begin = std::clock();
    function();
    const std::clock_t cpu_end = std::clock();
    const auto end = std::chrono::steady_clock::now();
    return {.wall = std::chrono::duration<double>(end - begin).count(),
            .cpu = static_cast<double>(cpu_end - cpu_begin) / CLOCKS_PER_SEC};
}

Seconds attention_seconds(const Operands& in, const Case& c, Kernels kernels) {
    return seconds_of([&] {
        const AttentionOut out = attention_forward(in.q, in.k, in.v, c.shape, kernels);
        if (!c.with_backward) return;
        attention_backward(in.d_attended, in.q, in.k, in.v, out, c.shape, kernels);
    });
}

Seconds product_seconds(const at::Tensor& square) {
    return seconds_of([&] { benchmark::DoNotOptimize(at::mm(square, square)); });
}

double median_of(const std::vector<Seconds>& all, double Seconds::*member) {
    std::vector<double> values;
    for (const Seconds& seconds : all) values.push_back(seconds.*member);
    CHECK(!values.empty());
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

// Forward has two products, backward five, each of half the scores.
double flops_of(const Case& c) {
    const auto columns = static_cast<double>(c.shape.column_count);
    const double pairs =
        static_cast<double>(c.shape.row_count * c.shape.head_count) * columns * (columns + 1) / 2;
    return (c.with_backward ? 7 : 2) * 2 * pairs * static_cast<double>(c.shape.head_dim);
}

void bench_case(benchmark::State& state, const Case& c) {
    at::set_num_threads(static_cast<int>(state.range(0)));
    const int64_t tokens = c.shape.row_count * c.shape.column_count;
    const auto random = [&](int64_t head_count) {
        return at::randn({tokens, head_count * c.shape.head_dim}).to(c.dtype);
    };
    const Operands in{random(c.shape.head_count), random(c.shape.kv_head_count),
                      random(c.shape.kv_head_count), random(c.shape.head_count)};
    const at::Tensor square = at::randn({1024, 1024});
    attention_seconds(in, c, Kernels::fused);
    attention_seconds(in, c, Kernels::reference);
    product_seconds(square);
    std::vector<Seconds> fused_s, reference_s, product_s;
    for (auto _ : state) {
        fused_s.push_back(attention_seconds(in, c, Kernels::fused));
        reference_s.push_back(attention_seconds(in, c, Kernels::reference));
        product_s.push_back(product_seconds(square));
        state.SetIterationTime(fused_s.back().wall);
    }
    const double fused_cpu_s = median_of(fused_s, &Seconds::cpu);
    state.counters["ms"] = 1e3 * median_of(fused_s, &Seconds::wall);
    state.counters["reference_ms"] = 1e3 * median_of(reference_s, &Seconds::wall);
    state.counters["speedup"] =
        median_of(reference_s, &Seconds::wall) / median_of(fused_s, &Seconds::wall);
    state.counters["cpu_speedup"] = median_of(reference_s, &Seconds::cpu) / fused_cpu_s;
    state.counters["GF_per_cpu_s"] = 1e-9 * flops_of(c) / fused_cpu_s;
    state.counters["ceiling_GF_per_cpu_s"] =
        1e-9 * 2 * 1024.0 * 1024 * 1024 / median_of(product_s, &Seconds::cpu);
}

}  // namespace

}  // namespace headrace::engine

int main(int argc, char** argv) {
    using headrace::engine::Case;
    if (!headrace::engine::has_chosen_how_to_wait()) {  // as the program
        headrace::engine::start_quietly(headrace::engine::running_program(), argv);
        return 1;
    }
    for (const int64_t columns : {64, 512, 2048}) {
        for (const bool with_backward : {false, true}) {
            for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
                const Case c{.shape = {1, columns, 9, 3, 64},
                             .dtype = dtype,
                             .with_backward = with_backward};
                const std::string name = "attention/" + std::to_string(columns) +
                                         (with_backward ? "/forward_backward" : "/forward") +
                                         (dtype == at::kFloat ? "/fp32" : "/bf16");
                benchmark::RegisterBenchmark(name.c_str(), headrace::engine::bench_case, c)
                    ->Arg(1)
                    ->Arg(2)
                    ->ArgName("threads")
                    ->UseManualTime()
                    ->Iterations(columns == 2048 ? 7 : 15)
                    ->Unit(benchmark::kMillisecond);
            }
        }
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
