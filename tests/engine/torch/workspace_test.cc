// Goal: torch's memory stays in the region it is given, says so when it does not fit, leaves it
// empty, and needs no more than workspace_bytes predicts, nor much less.
// Method: small layers computed inside regions of the predicted size, and of a little less than the
// measured one; shapes tiny and in the proportions of real models, where a block takes most and
// where the head does, one and two threads.
#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>

#include "engine/torch/llama.h"
#include "engine/torch/ops/matmul_sizes.h"
#include "engine/torch/workspace.h"
#include "engine/torch/workspace_bytes.h"
#include "offload/units.h"
#include "tests/engine/flat_model.h"
#include "tests/engine/goldens/golden.h"

namespace headrace::engine::tests {
namespace {

using offload::Dtype;

// A region at a 64-byte boundary.
class Region {
  public:
    explicit Region(uint64_t size_bytes)
        : bytes_(size_bytes + 64),
          first_(64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64),
          size_bytes_(size_bytes) {}
    std::span<std::byte> span() { return std::span(bytes_).subspan(first_, size_bytes_); }

  private:
    std::vector<std::byte> bytes_;
    uint64_t first_;
    uint64_t size_bytes_;
};

// One block and the head of a model, with everything a compute call needs.
struct Bench {
    Bench(const LlamaConfig& config, Dtype dtype, int64_t row_count, int64_t column_count,
          Kernels kernels = Kernels::fused)
        : compute(config, dtype, kernels), model(make_flat_model(config, dtype, golden_weight)) {
        const auto token_count = static_cast<size_t>(row_count * column_count);
        std::minstd_rand random(1);
        for (size_t token = 0; token < token_count; ++token) {
            ids.push_back(static_cast<int32_t>(random() % config.vocabulary_size));
        }
        batch = {row_count, column_count, ids, ids};
        hidden.resize(offload::bytes_of(dtype, token_count * config.hidden_size));
        gradient = hidden;
        compute.embed(batch, {.weights = model.weights[0], .hidden_out = hidden});
        for (const auto& layer : model.layout.layers)
            accumulators.emplace_back(layer.element_count);
        tied_use = accumulators[0];
    }

    // Every row becomes samples of 7 tokens, the last one shorter.
    void pack() {
        targets = ids;
        for (int64_t token = 0; token < batch.token_count(); ++token) {
            const int64_t column = token % batch.column_count;
            starts.push_back(static_cast<int32_t>(column / 7 * 7));
            const bool is_last = column % 7 == 6 || column + 1 == batch.column_count;
            if (is_last) targets[static_cast<size_t>(token)] = -100;
        }
        batch.targets = targets;
        batch.sample_starts = starts;
    }

    void block_backward() {
        compute.block_backward(batch, {.weights = model.weights[1],
                                       .hidden_in = hidden,
                                       .grad_out = hidden,
                                       .grad_in = gradient,
                                       .accumulator = accumulators[1]});
    }
    void run_all() {
        compute.block(batch,
                      {.weights = model.weights[1], .hidden_in = hidden, .hidden_out = gradient});
        block_backward();
        compute.head(batch, {.embedding_weights = model.weights[0],
                             .weights = model.weights.back(),
                             .hidden_in = hidden,
                             .grad_in = gradient,
                             .embedding_accumulator = tied_use,
                             .accumulator = accumulators.back()});
    }

    LlamaCompute compute;
    FlatModel model;
    std::vector<int32_t> ids;
    std::vector<int32_t> targets;
    std::vector<int32_t> starts;
    MicroBatch batch;
    std::vector<std::byte> hidden;
    std::vector<std::byte> gradient;
    std::vector<std::vector<float>> accumulators;
    std::vector<float> tied_use;
};

LlamaConfig config_of(int64_t hidden, int64_t intermediate, int64_t heads, int64_t kv_heads,
                      int64_t head_dim, int64_t vocabulary) {
    LlamaConfig config;
    config.hidden_size = hidden;
    config.intermediate_size = intermediate;
    config.block_count = 1;
    config.head_count = heads;
    config.kv_head_count = kv_heads;
    config.head_dim = head_dim;
    config.vocabulary_size = vocabulary;
    config.max_positions = 2048;
    config.tied = true;
    return config;
}

struct Case {
    LlamaConfig config;
    int64_t row_count;
    int64_t column_count;
};

std::vector<Case> cases() {
    const LlamaConfig tiny = config_of(64, 96, 4, 2, 16, 259);
    const LlamaConfig wide = config_of(40, 72, 5, 5, 14, 67);
    const LlamaConfig smollm2 = config_of(576, 1536, 9, 3, 64, 1024);
    const LlamaConfig many_words = config_of(576, 1536, 9, 3, 64, 16384);
    const LlamaConfig like_7b = config_of(512, 1376, 8, 8, 64, 1000);
    const LlamaConfig like_70b = config_of(512, 1792, 8, 1, 64, 1000);
    const LlamaConfig wide_heads = config_of(320, 640, 8, 2, 128, 1000);
    return {{tiny, 2, 13},       {tiny, 1, 1},      {wide, 3, 21},      {smollm2, 2, 96},
            {many_words, 2, 96}, {like_7b, 1, 130}, {like_70b, 1, 129}, {wide_heads, 3, 70}};
}

TEST(Workspace, BytesPredictedAreThoseThatAreTaken) {
    for (const int thread_count : {1, 2}) {
        start_torch(thread_count);
        for (const Case& shape : cases()) {
            for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
                Bench bench(shape.config, dtype, shape.row_count, shape.column_count);
                const uint64_t predicted =
                    bench.compute.workspace_bytes(shape.row_count, shape.column_count);
                Region region(predicted);
                reset_workspace_peak();
                const offload::Status status =
                    with_workspace(region.span(), [&] { bench.run_all(); });
                ASSERT_TRUE(status.ok())
                    << shape.config.intermediate_size << " " << status.error().text();
                const WorkspacePeak peak = workspace_peak();
                EXPECT_GT(peak.in_use_bytes, 0u);
                EXPECT_GE(peak.extent_bytes, peak.in_use_bytes);
                EXPECT_LE(peak.extent_bytes, predicted);
                EXPECT_LE(peak.library_bytes, thread_count * 8 * offload::mib);
                // The holes that are allowed for, and the small tensors.
                EXPECT_LE(predicted, peak.extent_bytes + peak.extent_bytes / 40 + 80 * offload::kib)
                    << shape.config.hidden_size << " wide, " << shape.column_count << " columns, "
                    << thread_count << " threads";
            }
        }
    }
}

// What a card or another host needs does not depend on this CPU: the work dtype is given.
TEST(Workspace, BytesAreOfTheArithmeticThatIsGiven) {
    const LlamaConfig config = config_of(512, 1376, 8, 8, 64, 1000);
    const BlockShape block = block_shape_of(config, Dtype::bf16, 1, 130);
    const auto bytes_in = [&](Dtype work) {
        return workspace_bytes_of(config, {.block = block, .work = work, .thread_count = 2});
    };
    EXPECT_GT(bytes_in(Dtype::fp32), bytes_in(Dtype::bf16));
    start_torch(2);
    EXPECT_EQ(LlamaCompute(config, Dtype::bf16).workspace_bytes(1, 130),
              bytes_in(work_dtype(Dtype::bf16)));
}

// Many threads, few tokens and a wide MLP: attention's forward takes the most, within a backward
// that computes again, beside all that it keeps.
TEST(Workspace, BytesPredictedAreEnoughForManyThreads) {
    start_torch(16);
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
        Bench bench(config_of(256, 2048, 1, 1, 64, 1000), dtype, 1, 64);
        Region region(bench.compute.workspace_bytes(1, 64));
        const offload::Status status = with_workspace(region.span(), [&] { bench.run_all(); });
        EXPECT_TRUE(status.ok()) << status.error().text();
    }
    start_torch(2);
}

// A head that is wider than everything else: its logits, and a copy of them in fp32 where the
// reference kernels multiply in less.
TEST(Workspace, BytesPredictedAreEnoughForAWideHead) {
    start_torch(2);
    for (const Kernels kernels : {Kernels::fused, Kernels::reference}) {
        for (const int64_t column_count : {16, 33, 64, 256, 300}) {
            for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
                Bench bench(config_of(576, 256, 9, 3, 64, 16384), dtype, 1, column_count, kernels);
                Region region(bench.compute.workspace_bytes(1, column_count));
                const offload::Status status =
                    with_workspace(region.span(), [&] { bench.run_all(); });
                EXPECT_TRUE(status.ok()) << column_count << " " << status.error().text();
            }
        }
    }
}

TEST(Workspace, BytesPredictedAreEnoughForPackedSamplesToo) {
    start_torch(2);
    for (const Kernels kernels : {Kernels::fused, Kernels::reference}) {
        for (const Case& shape : cases()) {
            for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
                Bench bench(shape.config, dtype, shape.row_count, shape.column_count, kernels);
                bench.pack();
                Region region(bench.compute.workspace_bytes(shape.row_count, shape.column_count));
                const offload::Status status =
                    with_workspace(region.span(), [&] { bench.run_all(); });
                EXPECT_TRUE(status.ok()) << status.error().text();
            }
        }
    }
}

TEST(Workspace, TheMeasuredExtentIsEnoughAndLessIsRefused) {
    start_torch(1);
    Bench bench(config_of(64, 96, 4, 2, 16, 259), Dtype::fp32, 2, 13);
    Region large(1 << 20);
    reset_workspace_peak();
    ASSERT_TRUE(with_workspace(large.span(), [&] { bench.block_backward(); }).ok());
    const std::vector<float> expected = bench.accumulators[1];
    const uint64_t extent_bytes = workspace_peak().extent_bytes;
    Region exact(extent_bytes);
    EXPECT_TRUE(with_workspace(exact.span(), [&] { bench.block_backward(); }).ok());
    for (uint64_t size_bytes = 64; size_bytes < extent_bytes; size_bytes += 4096) {
        Region small(size_bytes);
        const offload::Status status =
            with_workspace(small.span(), [&] { bench.block_backward(); });
        if (status.ok()) continue;  // other places may need less
        EXPECT_EQ(status.error().code, offload::ErrorCode::does_not_fit);
        EXPECT_NE(status.error().what.find("gpu_budget"), std::string::npos);
    }
    Region tiny(64);
    EXPECT_FALSE(with_workspace(tiny.span(), [&] { bench.block_backward(); }).ok());
    // Nothing leaked, and the next run has the same bits.
    ASSERT_TRUE(with_workspace(large.span(), [&] { bench.block_backward(); }).ok());
    EXPECT_EQ(bench.accumulators[1], expected);
}

TEST(Workspace, RepeatsExactly) {
    start_torch(2);
    Bench bench(config_of(64, 96, 4, 2, 16, 259), Dtype::bf16, 2, 13);
    Region region(4 << 20);
    std::vector<uint64_t> extents;
    for (int round = 0; round < 3; ++round) {
        reset_workspace_peak();
        ASSERT_TRUE(with_workspace(region.span(), [&] { bench.run_all(); }).ok());
        extents.push_back(workspace_peak().extent_bytes);
    }
    EXPECT_EQ(extents[0], extents[1]);
    EXPECT_EQ(extents[0], extents[2]);
}

// What a library packs operands into lies beside the region: one piece, used again; a second one at
// the same time comes from the heap.
TEST(Workspace, LibraryMemoryIsNotOfTheRegion) {
    start_torch(1);
    Region region(64 * 1024);
    reset_workspace_peak();
    const offload::Status status = with_workspace(region.span(), [&] {
        const at::Tensor inside = at::empty({1024});
        std::optional<LibraryMemory> library;
        library.emplace();
        at::Tensor packed = at::empty({100 * 1024});
        const void* const place = packed.data_ptr();
        const at::Tensor second = at::empty({1024});
        packed.reset();
        EXPECT_EQ(at::empty({50 * 1024}).data_ptr(), place);
        library.reset();
        EXPECT_EQ(workspace_peak().in_use_bytes, 4096u);
    });
    EXPECT_TRUE(status.ok()) << status.error().text();
    EXPECT_EQ(workspace_peak().library_bytes, 400u * 1024);
}

TEST(Workspace, OutsideAScopeTorchUsesTheHeap) {
    start_torch(1);
    Bench bench(config_of(64, 96, 4, 2, 16, 259), Dtype::fp32, 1, 5);
    reset_workspace_peak();
    bench.run_all();
    EXPECT_EQ(workspace_peak().in_use_bytes, 0u);
}

// What was made outside may be freed inside: the address tells where a block belongs.
TEST(Workspace, FreesWhatTheHeapGave) {
    start_torch(1);
    Region region(1 << 20);
    auto outside = std::make_unique<LlamaCompute>(config_of(64, 96, 4, 2, 16, 259), Dtype::fp32);
    EXPECT_TRUE(with_workspace(region.span(), [&] { outside.reset(); }).ok());
}

}  // namespace
}  // namespace headrace::engine::tests
