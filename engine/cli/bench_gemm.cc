#include "engine/cli/bench_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "engine/cli/loops.h"
#include "engine/models/effort.h"
#include "engine/models/shape.h"
#include "engine/torch/llama.h"
#include "engine/torch/product.h"
#include "engine/torch/workspace.h"
#include "kernels/host/reduce.h"
#include "kernels/host/slab.h"
#include "offload/check.h"
#include "offload/part.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Dtype;
using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Result;
using offload::Status;

namespace {

constexpr int64_t square_side = 1024;
// More than the caches of a processor hold.
constexpr uint64_t cold_bytes = 256 * offload::mib;

// A row: what it calls, and how many operations that is.
struct Work {
    std::string name;
    double flop = 0;
    std::function<void()> call;
    std::vector<double> seconds{};
};

// The memory of one layer's computing, cut from one slab.
class Slab {
  public:
    explicit Slab(uint64_t size_bytes)
        : memory_({.gpu_capacity_bytes = size_bytes}), size_bytes_(size_bytes) {}

    Status prepare() {
        const auto taken = memory_.take(offload::Tier::gpu, size_bytes_);
        if (!taken) return taken.error();
        left_ = *taken;
        return {};
    }

    std::span<std::byte> cut(uint64_t size_bytes) {
        const uint64_t whole_bytes = offload::align_up(size_bytes, offload::page_bytes);
        CHECK_LE(whole_bytes, left_.size());
        const std::span<std::byte> piece = left_.first(size_bytes);
        left_ = left_.subspan(whole_bytes);
        return piece;
    }

  private:
    kernels::HostMemory memory_;
    uint64_t size_bytes_;
    std::span<std::byte> left_;
};

// Small numbers of both signs, so that nothing overflows or gets denormal: a pattern of bf16 and
// fp16 bits; of fp32 as well, each two of them being one.
void fill(std::span<std::byte> bytes, Dtype dtype) {
    constexpr std::array<uint16_t, 4> bf16 = {0x3c23, 0xbc12, 0x3b91, 0xbc5a};
    constexpr std::array<uint16_t, 4> fp16 = {0x211f, 0xa0a3, 0x1e40, 0xa2d1};
    const auto& pattern = dtype == Dtype::fp16 ? fp16 : bf16;
    for (uint64_t i = 0; i + 1 < bytes.size(); i += 2) {
        std::memcpy(bytes.data() + i, &pattern[(i / 2 * 2654435761u >> 7) % 4], 2);
    }
}

std::span<float> floats(std::span<std::byte> bytes) {
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

class Bench {
  public:
    Bench(const BenchGemmCommand& command, const LlamaConfig& shape,
          const GemmBenchContext& context)
        : command_(command),
          shape_(shape),
          context_(context),
          compute_(shape, command.dtype),
          layout_(offload::make_layout(layers_of(shape), offload::block_elements).value()),
          slab_(wanted_bytes()) {}

    uint64_t wanted_bytes() const;
    Status prepare();
    Status run_rounds();
    GemmBench result() const;

  private:
    uint64_t hidden_bytes() const {
        return bytes_of(command_.dtype, command_.row_count * command_.column_count) *
               static_cast<uint64_t>(shape_.hidden_size);
    }
    uint64_t block_elements() const { return layout_.layers[1].element_count; }
    uint64_t head_elements() const { return layout_.layers.back().element_count; }
    uint64_t words_elements() const {
        return shape_.tied ? layout_.layers.front().element_count : 0;
    }
    double reduce_rate() const;
    // A step computes each block on memory that it has not touched for long: so does this, as far
    // as cold_bytes go.
    struct Block {
        std::span<std::byte> weights;
        std::span<std::byte> kept;
        std::span<float> accumulator;
    };
    uint64_t block_bytes() const;
    uint64_t block_count() const;
    const Block& next_block();
    void forward(bool keeps);
    void backward(bool is_kept);
    void add_block_work(const offload::LayerEffort& effort);
    void add_head_work(double flop);
    void compute(const std::function<void()>& call) const {
        const Status status = with_workspace(workspace_, call);
        CHECK_TEXT(status.ok(), status.ok() ? "" : status.error().text());
    }

    const BenchGemmCommand& command_;
    const LlamaConfig& shape_;
    const GemmBenchContext& context_;
    const LlamaCompute compute_;
    const offload::Layout layout_;
    Slab slab_;
    std::span<std::byte> workspace_;
    std::vector<int32_t> ids_;
    std::vector<int32_t> targets_;
    MicroBatch batch_;
    std::vector<Work> works_;  // the last is a square product
    std::vector<double> reduce_bytes_per_s_;
    std::vector<Block> blocks_;
    size_t next_block_ = 0;
    std::span<std::byte> hidden_;
    std::span<std::byte> hidden_out_;
    std::span<std::byte> stash_;
    SquareProduct square_{square_side, command_.dtype};
};

uint64_t Bench::wanted_bytes() const {
    const int64_t rows = command_.row_count;
    const int64_t columns = command_.column_count;
    const uint64_t sum =
        bytes_of(command_.dtype, block_elements() + head_elements() + words_elements()) +
        4 * (head_elements() + words_elements()) + 4 * hidden_bytes() +
        block_count() * block_bytes() + compute_.workspace_bytes(rows, columns);
    return offload::align_up(sum, offload::page_bytes) + 16 * offload::page_bytes;
}

Status Bench::prepare() {
    if (Status status = slab_.prepare(); !status) return status;
    const auto token_count = static_cast<size_t>(command_.row_count * command_.column_count);
    for (size_t i = 0; i < token_count; ++i) {
        const auto word = static_cast<int32_t>(i * 2654435761u % 997);
        ids_.push_back(word % static_cast<int32_t>(shape_.vocabulary_size));
        const bool is_last = (i + 1) % static_cast<size_t>(command_.column_count) == 0;
        targets_.push_back(is_last ? -100 : ids_.back());
    }
    batch_ = {.row_count = command_.row_count,
              .column_count = command_.column_count,
              .input_ids = ids_,
              .targets = targets_};
    workspace_ = slab_.cut(compute_.workspace_bytes(command_.row_count, command_.column_count));
    const offload::Effort effort = effort_of(shape_, command_.row_count, command_.column_count);
    add_block_work(effort.layers[1]);
    add_head_work(effort.layers.back().backward_flop);
    const double square = 2.0 * square_side * square_side * square_side;
    works_.push_back(
        {.name = "square product", .flop = square, .call = [this] { square_.multiply(); }});
    return {};
}

uint64_t Bench::block_bytes() const {
    const uint64_t kept = compute_.kept_bytes(command_.row_count, command_.column_count);
    return (bytes_of(command_.dtype, 1) + 4) * block_elements() + kept + 3 * offload::page_bytes;
}

uint64_t Bench::block_count() const {
    const uint64_t count = std::max<uint64_t>(1, cold_bytes / block_bytes());
    return std::min(count, static_cast<uint64_t>(shape_.block_count));
}

const Bench::Block& Bench::next_block() {
    next_block_ = (next_block_ + 1) % blocks_.size();
    return blocks_[next_block_];
}

void Bench::forward(bool keeps) {
    const Block& block = next_block();
    compute([&] {
        compute_.block(batch_, {.weights = block.weights,
                                .hidden_in = hidden_,
                                .hidden_out = hidden_out_,
                                .kept_out = keeps ? block.kept : std::span<std::byte>()});
    });
}

void Bench::backward(bool is_kept) {
    const Block& block = next_block();
    compute([&] {
        compute_.block_backward(batch_,
                                {.weights = block.weights,
                                 .hidden_in = hidden_,
                                 .grad_out = hidden_,
                                 .grad_in = hidden_out_,
                                 .accumulator = block.accumulator,
                                 .kept_in = is_kept ? block.kept : std::span<const std::byte>()});
    });
}

void Bench::add_block_work(const offload::LayerEffort& effort) {
    hidden_ = slab_.cut(hidden_bytes());
    hidden_out_ = slab_.cut(hidden_bytes());
    stash_ = slab_.cut(bytes_of(command_.dtype, block_elements()));
    fill(hidden_, command_.dtype);
    std::ranges::fill(stash_, std::byte{0});
    const uint64_t kept_bytes = compute_.kept_bytes(command_.row_count, command_.column_count);
    for (uint64_t i = 0; i < block_count(); ++i) {
        blocks_.push_back({.weights = slab_.cut(bytes_of(command_.dtype, block_elements())),
                           .kept = slab_.cut(kept_bytes),
                           .accumulator = floats(slab_.cut(4 * block_elements()))});
        fill(blocks_.back().weights, command_.dtype);
        std::ranges::fill(blocks_.back().accumulator, 0.0f);  // its pages are there
    }
    for (uint64_t i = 0; i < block_count(); ++i) forward(true);
    works_.push_back(
        {.name = "block forward", .flop = effort.forward_flop, .call = [this] { forward(false); }});
    works_.push_back({.name = "block backward, recomputed",
                      .flop = effort.backward_flop + effort.recompute_flop,
                      .call = [this] { backward(false); }});
    works_.push_back({.name = "block backward, kept", .flop = effort.backward_flop, .call = [this] {
                          backward(true);
                      }});
}

void Bench::add_head_work(double flop) {
    const std::span<std::byte> words = slab_.cut(bytes_of(command_.dtype, words_elements()));
    const std::span<std::byte> weights = slab_.cut(bytes_of(command_.dtype, head_elements()));
    const std::span<std::byte> hidden = slab_.cut(hidden_bytes());
    const std::span<std::byte> gradient = slab_.cut(hidden_bytes());
    const std::span<float> sums = floats(slab_.cut(4 * head_elements()));
    const std::span<float> words_sums = floats(slab_.cut(4 * words_elements()));
    fill(words, command_.dtype);
    fill(weights, command_.dtype);
    fill(hidden, command_.dtype);
    std::ranges::fill(sums, 0.0f);
    std::ranges::fill(words_sums, 0.0f);
    LlamaCompute::Head head{
        .weights = weights, .hidden_in = hidden, .grad_in = gradient, .accumulator = sums};
    if (shape_.tied) {
        head.embedding_weights = words;
        head.embedding_accumulator = words_sums;
    }
    works_.push_back({.name = "head", .flop = flop, .call = [=, this] {
                          compute([&] { compute_.head(batch_, head); });
                      }});
}

Status Bench::run_rounds() {
    for (uint32_t round = 0; round <= command_.rounds; ++round) {
        if (context_.say && round > 0) {
            context_.say(fmt::format("round {} of {}", round, command_.rounds));
        }
        for (Work& work : works_) {
            if (context_.should_stop && context_.should_stop()) {
                return stopped_bench();
            }
            const double seconds_min = round == 0 ? 0 : command_.seconds_min;
            const double calls_per_s = rate_alone(
                [&work] {
                    work.call();
                    return 1.0;
                },
                seconds_min);
            if (round > 0) work.seconds.push_back(1 / calls_per_s);
        }
        const double bytes_per_s = reduce_rate();
        if (round > 0) reduce_bytes_per_s_.push_back(bytes_per_s);
    }
    return {};
}

double Bench::reduce_rate() const {
    const std::span<float> accumulator = blocks_.front().accumulator;
    std::ranges::fill(accumulator, 0.0f);
    return rate_alone(
        [this, accumulator] {
            kernels::reduce_part(kernels::best_reduce_row(), {.first_use = accumulator,
                                                              .second_use = {},
                                                              .pieces = {},
                                                              .stash_dtype = command_.dtype,
                                                              .stash = stash_});
            return static_cast<double>(accumulator.size_bytes() + stash_.size());
        },
        command_.seconds_min);
}

GemmBench Bench::result() const {
    GemmBench bench;
    double block_s = 0;
    double block_flop = 0;
    double ceiling = 0;
    for (const Work& work : works_) {
        BenchRow row{.name = work.name, .unit = "GFLOP/s"};
        for (const double seconds : work.seconds) row.samples.push_back(work.flop / seconds / 1e9);
        row.achieved = median_of(row.samples);
        row.facts = {{"seconds", median_of(work.seconds)}};
        ceiling = row.achieved;  // the last is the square product
        bench.rows.push_back(std::move(row));
    }
    for (const size_t work : {size_t{0}, size_t{1}}) {
        block_s += median_of(works_[work].seconds);
        block_flop += works_[work].flop;
    }
    const auto blocks = static_cast<double>(shape_.block_count);
    const double step_s = blocks * block_s + median_of(works_[3].seconds);
    const double step_flop = blocks * block_flop + works_[3].flop;
    bench.step_flops = step_flop / step_s;
    BenchRow step{.name = "a step, recomputed", .unit = "GFLOP/s"};
    step.achieved = bench.step_flops / 1e9;
    step.samples = {step.achieved};
    step.facts = {{"seconds", step_s}};
    bench.rows.push_back(std::move(step));
    for (BenchRow& row : bench.rows) {
        row.ceiling = ceiling;
        row.against = "square product";
        row.facts.insert(
            row.facts.end(),
            {{"threads", static_cast<uint64_t>(context_.compute_thread_count)},
             {"dtype", std::string(name_of(command_.dtype))},
             {"tokens", static_cast<uint64_t>(command_.row_count * command_.column_count)}});
    }
    bench.reduce_bytes_per_s = median_of(reduce_bytes_per_s_);
    return bench;
}

}  // namespace

LlamaConfig default_shape() {
    LlamaConfig shape;
    shape.hidden_size = 1024;
    shape.intermediate_size = 4096;
    shape.block_count = 24;
    shape.head_count = 16;
    shape.kv_head_count = 8;
    shape.head_dim = 64;
    shape.vocabulary_size = 32768;
    shape.max_positions = 8192;
    return shape;
}

Result<GemmBench> bench_gemm(const BenchGemmCommand& command, const LlamaConfig& shape,
                             const GemmBenchContext& context) {
    CHECK_GE(context.compute_thread_count, 1);
    CHECK_GE(command.row_count, 1);
    CHECK_GE(command.column_count, 2);
    start_torch(context.compute_thread_count);
    const LlamaConfig computed = without_extras(shape);
    Bench bench(command, computed, context);
    const uint64_t wanted_bytes = bench.wanted_bytes();
    if (wanted_bytes > context.free_bytes) {
        return Error{ErrorCode::does_not_fit,
                     fmt::format("one block and the head at {} x {} tokens take {} of memory in "
                                 "this bench, and {} is free",
                                 command.row_count, command.column_count,
                                 format_bytes(wanted_bytes), format_bytes(context.free_bytes)),
                     "name a smaller --model, or fewer --tokens"};
    }
    if (Status status = bench.prepare(); !status) return status.error();
    if (Status status = bench.run_rounds(); !status) return status.error();
    return bench.result();
}

}  // namespace headrace::engine
