// The update beside its ceiling. A stream row moves the same bytes through the same pool with one
// xor per word; every iteration times both, one after the other, so that whatever else the machine
// does meets both alike. Medians over the iterations:
//
//   Gparam_per_s      parameters updated, in 10^9
//   GB_per_s          bytes read and written by the update
//   ceiling_GB_per_s  the same of the stream row
//   ratio             the two
//
// Run: adam_bench [--benchmark_filter=avx2]; memory is 28 bytes per parameter, 16 Mi parameters.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "cpu_adam/pool.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t element_count = 16 << 20;
constexpr uint64_t word_elements = sizeof(uint64_t) / sizeof(uint16_t);

// The traffic of a split weight: reads and writes hi, lo, m, v, reads the gradient, all advancing
// together. The pool cuts at multiples of 2048 elements, so whole words are all there is.
void stream(const StepFactors&, const Operands& operands) {
    const uint64_t word_count = operands.element_count / word_elements;
    auto* __restrict hi = reinterpret_cast<uint64_t*>(operands.hi);
    auto* __restrict lo = reinterpret_cast<uint64_t*>(operands.lo);
    auto* __restrict m = reinterpret_cast<uint64_t*>(operands.m);
    auto* __restrict v = reinterpret_cast<uint64_t*>(operands.v);
    const bool bf16 = operands.gradient_bf16 != nullptr;
    const auto* narrow = reinterpret_cast<const uint64_t*>(operands.gradient_bf16);
    const auto* wide = reinterpret_cast<const uint64_t*>(operands.gradient_fp32);
    for (uint64_t i = 0; i < word_count; ++i) {
        hi[i] ^= bf16 ? narrow[i] : wide[2 * i] ^ wide[2 * i + 1];
        lo[i] ^= 1;
        m[2 * i] ^= 1;
        m[2 * i + 1] ^= 1;
        v[2 * i] ^= 1;
        v[2 * i + 1] ^= 1;
    }
}

double seconds_of(UpdatePool* pool, const Row& row, const AdamStep& step, const PartUpdate& part) {
    const auto begin = std::chrono::steady_clock::now();
    pool->update(row, step, part);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median_of(std::vector<double> values) {
    CHECK(!values.empty());
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

// Cleared words as bytes; 64-bit words, as the stream row wants them.
std::vector<uint64_t> words_of(uint64_t size_bytes) {
    return std::vector<uint64_t>(size_bytes / sizeof(uint64_t));
}

void bench_row(benchmark::State& state, const Row& row, offload::Dtype gradient_dtype) {
    const Row ceiling{"stream", Isa::baseline, &stream};
    UpdatePool pool(static_cast<uint32_t>(state.range(0)));
    std::vector<uint64_t> weight = words_of(2 * element_count);
    std::vector<uint64_t> gradient = words_of(bytes_of(gradient_dtype, element_count));
    std::vector<uint64_t> states = words_of(opt_bytes(offload::Dtype::bf16, element_count));
    const PartUpdate part{.element_count = element_count,
                          .gradient_dtype = gradient_dtype,
                          .weight = std::as_writable_bytes(std::span(weight)),
                          .state = std::as_writable_bytes(std::span(states)),
                          .gradient = std::as_bytes(std::span(gradient))};
    AdamStep step{.learning_rate = 1e-5, .adam_step = 1};
    seconds_of(&pool, ceiling, step, part);
    std::vector<double> update_s, stream_s;
    for (auto _ : state) {
        // The stream leaves bits that are no state of Adam; clear them, so that no denormal slows
        // us.
        std::fill(weight.begin(), weight.end(), 0x3F803F803F803F80);
        std::fill(states.begin(), states.end(), 0);
        update_s.push_back(seconds_of(&pool, row, step, part));
        stream_s.push_back(seconds_of(&pool, ceiling, step, part));
        state.SetIterationTime(update_s.back());
        ++step.adam_step;
    }
    const double count = static_cast<double>(element_count);
    const double traffic_bytes = count * static_cast<double>(24 + element_bytes(gradient_dtype));
    state.counters["Gparam_per_s"] = 1e-9 * count / median_of(update_s);
    state.counters["GB_per_s"] = 1e-9 * traffic_bytes / median_of(update_s);
    state.counters["ceiling_GB_per_s"] = 1e-9 * traffic_bytes / median_of(stream_s);
    state.counters["ratio"] = median_of(stream_s) / median_of(update_s);
}

}  // namespace

}  // namespace headrace::cpu_adam

int main(int argc, char** argv) {
    using headrace::offload::Dtype;
    for (const headrace::cpu_adam::Row& row : headrace::cpu_adam::rows()) {
        if (!headrace::cpu_adam::is_supported(row)) continue;
        for (const Dtype gradient : {Dtype::bf16, Dtype::fp32}) {
            const std::string name =
                "adamw/" + std::string(row.name) + "/gradient_" + std::string(name_of(gradient));
            benchmark::RegisterBenchmark(name.c_str(), headrace::cpu_adam::bench_row, row, gradient)
                ->Arg(1)
                ->Arg(2)
                ->ArgName("threads")
                ->UseManualTime()
                ->Iterations(9)
                ->Unit(benchmark::kMillisecond);
        }
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
