// Goal: the stream that the update is held against leaves memory as it was, takes the operands of
// every format, and reads and writes nothing beyond them.
// Method: whole parts in exactly sized, seeded memory (under AddressSanitizer in the preset dev),
// through UpdatePool with several threads, bytes compared.
#include "engine/cli/adam_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "cpu_adam/pool.h"

namespace headrace::engine {
namespace {

using offload::Dtype;
using offload::StateFormat;

std::vector<std::byte> seeded(uint64_t size_bytes, uint32_t seed) {
    std::mt19937 generator(seed);
    std::vector<std::byte> bytes(size_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator());
    return bytes;
}

TEST(AdamStreamTest, memory_is_as_it_was) {
    constexpr uint64_t element_count = 3 * 32768 + 2048;
    cpu_adam::UpdatePool pool(3);
    for (const StreamLoop loop : stream_loops) {
        for (const StateFormat format : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8}) {
            for (const Dtype weight : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
                for (const Dtype gradient : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
                    const auto weights = seeded(bytes_of(weight, element_count), 1);
                    const auto states =
                        seeded(offload::opt_bytes(weight, format, element_count), 2);
                    const auto gradients = seeded(bytes_of(gradient, element_count), 3);
                    auto weights_after = weights;
                    auto states_after = states;
                    cpu_adam::PartUpdate part;
                    part.element_count = element_count;
                    part.weight_dtype = weight;
                    part.format = format;
                    part.gradient_dtype = gradient;
                    part.weight = weights_after;
                    part.state = states_after;
                    part.gradient = gradients;
                    pool.update(stream_row(loop), {.learning_rate = 1}, part);
                    EXPECT_EQ(weights_after, weights) << name_of(loop) << " " << name_of(format);
                    EXPECT_EQ(states_after, states) << name_of(loop) << " " << name_of(format);
                }
            }
        }
    }
}

TEST(AdamStreamTest, every_loop_has_a_name_and_a_loop_of_its_own) {
    std::set<std::string_view> names;
    std::set<void (*)(const cpu_adam::StepFactors&, const cpu_adam::Operands&)> functions;
    for (const StreamLoop loop : stream_loops) {
        names.insert(name_of(loop));
        functions.insert(stream_row(loop).update);
    }
    EXPECT_EQ(names.size(), 3u);
    EXPECT_EQ(functions.size(), 3u);
}

TEST(AdamStreamTest, speed_2_the_triad_is_weight_m_and_three_times_v) {
    constexpr uint64_t element_count = 3 * 32768 + 2048;
    std::vector<float> memory(4 * element_count);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 1000);
    const auto bytes = std::as_writable_bytes(std::span(memory));
    const uint64_t array_bytes = element_count * sizeof(float);
    cpu_adam::PartUpdate part;
    part.element_count = element_count;
    part.weight_dtype = Dtype::fp32;
    part.gradient_dtype = Dtype::fp32;
    part.weight = bytes.first(array_bytes);
    part.state = bytes.subspan(array_bytes, 2 * array_bytes);
    part.gradient = bytes.last(array_bytes);
    const std::vector<float> before = memory;
    cpu_adam::UpdatePool(3).update(triad_row(), {.learning_rate = 1}, part);
    for (size_t i = 0; i < memory.size(); ++i) {
        const float expected = i < element_count
                                   ? before[element_count + i] + 3 * before[2 * element_count + i]
                                   : before[i];
        ASSERT_EQ(memory[i], expected) << i;
    }
}

}  // namespace
}  // namespace headrace::engine
