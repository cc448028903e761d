// Goal: every row of attention gives the bits of the scalar one, that of bf16 products those of its
// own oracle, which is near to the scalar row; a row of the batch, a packed sample and a query know
// nothing of what they may not see; e^x is within 2 ulp.
// Method: random operands in three dtypes at sizes around every edge of a block, a unit and a
// lane; scratch is filled with NaN, so that a read of what was not written shows; other rows and
// later keys are changed and the bits compared; e^x against double precision over its whole range.
#include "kernels/host/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "offload/fp16.h"

namespace headrace::kernels {

AttentionTasks attention_tasks_bf16_oracle();
#ifdef HEADRACE_HAS_SIMDE
AttentionTasks attention_tasks_avx512_emulated();
void attention_exp_avx512_emulated(const float* source, float* target, int64_t count);
#endif

namespace {

using offload::Dtype;

constexpr float nan_float = std::numeric_limits<float>::quiet_NaN();

using Bytes = std::vector<char>;

Bytes in_dtype(const std::vector<float>& values, Dtype dtype) {
    Bytes bytes(offload::bytes_of(dtype, values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t half = dtype == Dtype::bf16 ? offload::float_to_bf16(values[i])
                                                   : offload::float_to_fp16(values[i]);
        if (dtype == Dtype::fp32) {
            std::copy_n(reinterpret_cast<const char*>(&values[i]), 4, bytes.data() + 4 * i);
        } else {
            std::copy_n(reinterpret_cast<const char*>(&half), 2, bytes.data() + 2 * i);
        }
    }
    return bytes;
}

// A problem and all results of it.
struct Problem {
    AttentionSizes sizes;
    Dtype dtype = Dtype::fp32;
    Bytes q, k, v, d_attended;
    std::vector<int32_t> first_keys;  // empty: none
    Bytes attended, dq, dk, dv;
    std::vector<float> log_sum;

    uint64_t query_bytes(int64_t column_count) const {
        const int64_t count = column_count * sizes.head_count * sizes.head_dim;
        return offload::bytes_of(dtype, static_cast<uint64_t>(count));
    }
    uint64_t key_bytes(int64_t column_count) const {
        const int64_t count = column_count * sizes.kv_head_count * sizes.head_dim;
        return offload::bytes_of(dtype, static_cast<uint64_t>(count));
    }
};

Problem make_problem(const AttentionSizes& sizes, Dtype dtype) {
    std::mt19937 random(static_cast<uint32_t>(sizes.column_count));
    std::normal_distribution<float> normal;
    const int64_t tokens = sizes.row_count * sizes.column_count;
    const auto values = [&](int64_t head_count) {
        std::vector<float> x(static_cast<size_t>(tokens * head_count * sizes.head_dim));
        for (float& value : x) value = normal(random);
        return in_dtype(x, dtype);
    };
    Problem p;
    p.sizes = sizes;
    p.dtype = dtype;
    p.q = values(sizes.head_count);
    p.k = values(sizes.kv_head_count);
    p.v = values(sizes.kv_head_count);
    p.d_attended = values(sizes.head_count);
    return p;
}

void run_pass(const AttentionRow& row, AttentionPass pass, AttentionOperands operands,
              bool backwards) {
    std::vector<float> shared(attention_shared_floats(pass, operands.sizes), nan_float);
    std::vector<float> worker(attention_worker_floats(pass, operands.sizes), nan_float);
    operands.layout = attention_layout(pass, operands.sizes);
    operands.shared = shared.data();
    ASSERT_EQ(find_fault(pass, operands), nullptr);
    for (const AttentionPhase phase : attention_phases(pass)) {
        const int64_t task_count = attention_task_count(phase, operands.sizes);
        for (int64_t i = 0; i < task_count; ++i) {
            const int64_t task = backwards ? task_count - 1 - i : i;
            run_attention_task(row, phase, operands, task, worker);
        }
    }
}

AttentionOperands operands_of(Problem& p) {
    p.attended.assign(p.q.size(), '\xFF');
    p.dq.assign(p.q.size(), '\xFF');
    p.dk.assign(p.k.size(), '\xFF');
    p.dv.assign(p.k.size(), '\xFF');
    const int64_t rows = p.sizes.row_count * p.sizes.head_count;
    p.log_sum.assign(static_cast<size_t>(rows * p.sizes.column_count), nan_float);
    return {.sizes = p.sizes,
            .layout = {},
            .dtype = p.dtype,
            .scale = 1.0f / std::sqrt(static_cast<float>(p.sizes.head_dim)),
            .first_keys = p.first_keys.empty() ? nullptr : p.first_keys.data(),
            .q = p.q.data(),
            .k = p.k.data(),
            .v = p.v.data(),
            .attended = p.attended.data(),
            .log_sum = p.log_sum.data(),
            .d_attended = p.d_attended.data(),
            .dq = p.dq.data(),
            .dk = p.dk.data(),
            .dv = p.dv.data(),
            .shared = nullptr};
}

// Forward and backward; `backwards` runs the tasks of each phase in the opposite order.
void solve(const AttentionRow& row, Problem* p, bool backwards = false) {
    const AttentionOperands operands = operands_of(*p);
    run_pass(row, AttentionPass::forward, operands, backwards);
    run_pass(row, AttentionPass::backward, operands, backwards);
}

bool is_same(const std::vector<float>& a, const std::vector<float>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void expect_same_results(const Problem& a, const Problem& b) {
    EXPECT_TRUE(a.attended == b.attended);
    EXPECT_TRUE(is_same(a.log_sum, b.log_sum));  // false where one is NaN
    EXPECT_TRUE(a.dq == b.dq);
    EXPECT_TRUE(a.dk == b.dk);
    EXPECT_TRUE(a.dv == b.dv);
}

std::string text_of(const AttentionSizes& sizes, Dtype dtype) {
    return std::to_string(sizes.row_count) + " x " + std::to_string(sizes.column_count) +
           ", heads " + std::to_string(sizes.head_count) + ":" +
           std::to_string(sizes.kv_head_count) + " of " + std::to_string(sizes.head_dim) + ", " +
           std::string(offload::name_of(dtype));
}

// What the machine can run of the table, and the AVX-512 row's source on emulated instructions.
struct VectorRow {
    AttentionRow row;
    void (*exp)(const float* source, float* target, int64_t count) = nullptr;
};

std::vector<VectorRow> vector_rows() {
    std::vector<VectorRow> rows;
    for (const AttentionRow& row : attention_rows()) {
        if (!has(row.required_isa)) continue;
        if (row.name == "avx2") rows.push_back({row, &attention_exp_avx2});
        if (row.name == "avx512") rows.push_back({row, &attention_exp_avx512});
    }
#ifdef HEADRACE_HAS_SIMDE
    if (!rows.empty()) {  // the emulation is compiled for AVX2
        const AttentionRow emulated{"avx512 emulated", rows.back().row.required_isa,
                                    attention_tasks_avx512_emulated()};
        rows.push_back({emulated, &attention_exp_avx512_emulated});
    }
#endif
    return rows;
}

const AttentionRow& scalar_row() {
    return attention_rows().back();
}

TEST(AttentionRows, HaveTheBitsOfTheScalarRow) {
    ASSERT_EQ(scalar_row().name, "scalar");
    const std::vector<AttentionSizes> all = {
        {1, 1, 1, 1, 2},   {2, 13, 3, 1, 20},  {1, 96, 2, 2, 64},  {1, 97, 2, 1, 32},
        {1, 108, 1, 1, 6}, {2, 111, 4, 2, 16}, {1, 200, 1, 1, 128}};
    for (const AttentionSizes& sizes : all) {
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
            SCOPED_TRACE(text_of(sizes, dtype));
            Problem oracle = make_problem(sizes, dtype);
            solve(scalar_row(), &oracle);
            for (const auto& [row, exp] : vector_rows()) {
                SCOPED_TRACE(row.name);
                Problem p = make_problem(sizes, dtype);
                solve(row, &p, true);
                expect_same_results(p, oracle);
            }
        }
    }
}

// Samples of 7, 98, 1 and 124 tokens in one row.
Problem make_packed_problem() {
    Problem problem = make_problem({1, 230, 2, 1, 20}, Dtype::bf16);
    for (int32_t column = 0; column < 230; ++column) {
        const int32_t start = column < 7 ? 0 : column < 105 ? 7 : column < 106 ? 105 : 106;
        problem.first_keys.push_back(start);
    }
    return problem;
}

// What the row of bf16 products computes, where the machine has no such instructions too.
const AttentionRow& bf16_oracle() {
    static const AttentionRow row{"bf16 oracle", scalar_row().required_isa,
                                  attention_tasks_bf16_oracle(), true};
    return row;
}

double distance(const Bytes& a, const Bytes& b) {
    double sum = 0, size = 0;
    for (size_t i = 0; i < a.size(); i += 2) {
        uint16_t one = 0, other = 0;
        std::memcpy(&one, a.data() + i, 2);
        std::memcpy(&other, b.data() + i, 2);
        const double x = offload::bf16_to_float(one), y = offload::bf16_to_float(other);
        sum += (x - y) * (x - y);
        size += y * y;
    }
    return std::sqrt(sum / size);
}

// Sums in another order, of the same products: a result in some thousands is rounded otherwise.
TEST(Bf16AttentionRow, IsNearToTheOthers) {
    const std::vector<AttentionSizes> all = {{1, 1, 1, 1, 2},    {2, 13, 3, 1, 20},
                                             {1, 96, 2, 2, 64},  {1, 97, 2, 1, 33},
                                             {2, 111, 4, 2, 16}, {1, 200, 1, 1, 128}};
    for (const AttentionSizes& sizes : all) {
        SCOPED_TRACE(text_of(sizes, Dtype::bf16));
        Problem exact = make_problem(sizes, Dtype::bf16);
        Problem p = exact;
        solve(scalar_row(), &exact);
        solve(bf16_oracle(), &p, true);
        EXPECT_LT(distance(p.attended, exact.attended), 1e-3);
        if (sizes.column_count == 1) continue;  // its gradients of q and k are zeros
        EXPECT_LT(distance(p.dq, exact.dq), 1e-3);
        EXPECT_LT(distance(p.dk, exact.dk), 1e-3);
        EXPECT_LT(distance(p.dv, exact.dv), 1e-3);
    }
}

TEST(Bf16AttentionRow, HasTheBitsOfItsOracle) {
    if (!has(bf16_attention_row().required_isa)) GTEST_SKIP() << "this CPU has no AVX512-BF16";
    const std::vector<AttentionSizes> all = {
        {1, 1, 1, 1, 2},   {2, 13, 3, 1, 20},  {1, 96, 2, 2, 64},   {1, 97, 2, 1, 33},
        {1, 108, 1, 1, 6}, {2, 111, 4, 2, 16}, {1, 200, 1, 1, 128}, {1, 63, 1, 1, 80}};
    for (const AttentionSizes& sizes : all) {
        SCOPED_TRACE(text_of(sizes, Dtype::bf16));
        Problem oracle = make_problem(sizes, Dtype::bf16);
        Problem p = oracle;
        solve(bf16_oracle(), &oracle);
        solve(bf16_attention_row(), &p, true);
        expect_same_results(p, oracle);
    }
}

// A third of the elements denormal, a third so small that their products are.
void make_small(Bytes& bytes, size_t offset) {
    for (size_t i = 0; i < bytes.size() / 2; ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, bytes.data() + 2 * i, 2);
        if ((i + offset) % 3 == 1) bits &= 0x807F;
        if ((i + offset) % 3 == 2) bits = static_cast<uint16_t>((bits & 0x807F) | 0x2000 << i % 2);
        std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
}

TEST(Bf16AttentionRow, SmallValuesHaveTheBitsOfItsOracle) {
    if (!has(bf16_attention_row().required_isa)) GTEST_SKIP() << "this CPU has no AVX512-BF16";
    for (const size_t offset : {0u, 1u, 2u}) {
        Problem oracle = make_problem({1, 97, 2, 1, 64}, Dtype::bf16);
        make_small(oracle.q, 0);
        make_small(oracle.k, offset);
        make_small(oracle.v, 0);
        make_small(oracle.d_attended, offset);
        Problem p = oracle;
        solve(bf16_oracle(), &oracle);
        solve(bf16_attention_row(), &p, true);
        expect_same_results(p, oracle);
        Problem exact = p;
        solve(scalar_row(), &exact);
        EXPECT_LT(distance(p.attended, exact.attended), 1e-3) << "zeros instead are no loss";
    }
}

TEST(Bf16AttentionRow, PackedSamplesHaveTheBitsOfItsOracle) {
    if (!has(bf16_attention_row().required_isa)) GTEST_SKIP() << "this CPU has no AVX512-BF16";
    Problem oracle = make_packed_problem();
    Problem p = oracle;
    solve(bf16_oracle(), &oracle);
    solve(bf16_attention_row(), &p);
    expect_same_results(p, oracle);
}

TEST(AttentionRows, PackedSamplesHaveTheBitsOfTheScalarRow) {
    Problem oracle = make_packed_problem();
    Problem unpacked = oracle;
    solve(scalar_row(), &oracle);
    for (const auto& [row, exp] : vector_rows()) {
        SCOPED_TRACE(row.name);
        Problem p = oracle;
        solve(row, &p);
        expect_same_results(p, oracle);
    }
    unpacked.first_keys.clear();
    solve(scalar_row(), &unpacked);
    EXPECT_FALSE(oracle.attended == unpacked.attended);
}

// A packed sample that begins where a block does is computed as if it stood alone.
TEST(Attention, PackedSampleIsTheSampleAlone) {
    const AttentionRow& row = best_attention_row(Dtype::bf16);
    constexpr int64_t first = attention_key_block;
    Problem packed = make_problem({1, first + 50, 4, 2, 24}, Dtype::bf16);
    packed.first_keys.assign(first, 0);
    packed.first_keys.resize(first + 50, static_cast<int32_t>(first));
    solve(row, &packed);
    Problem alone = packed;
    alone.sizes.column_count = 50;
    alone.first_keys.clear();
    const auto cut = [](Bytes* bytes, uint64_t begin) {
        bytes->erase(bytes->begin(), bytes->begin() + static_cast<ptrdiff_t>(begin));
    };
    cut(&alone.q, packed.query_bytes(first));
    cut(&alone.d_attended, packed.query_bytes(first));
    cut(&alone.k, packed.key_bytes(first));
    cut(&alone.v, packed.key_bytes(first));
    solve(row, &alone);
    EXPECT_TRUE(
        std::equal(alone.attended.begin(), alone.attended.end(),
                   packed.attended.begin() + static_cast<ptrdiff_t>(packed.query_bytes(first))));
    EXPECT_TRUE(std::equal(alone.dq.begin(), alone.dq.end(),
                           packed.dq.begin() + static_cast<ptrdiff_t>(packed.query_bytes(first))));
    for (const auto& [mine, theirs] :
         {std::pair(&alone.dk, &packed.dk), std::pair(&alone.dv, &packed.dv)}) {
        EXPECT_TRUE(std::equal(mine->begin(), mine->end(),
                               theirs->begin() + static_cast<ptrdiff_t>(packed.key_bytes(first))));
    }
}

// Other keys and values behind a query change no bit of it.
TEST(Attention, NoQuerySeesTheFuture) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const AttentionRow& row = best_attention_row(dtype);
        Problem p = make_problem({1, 150, 2, 1, 20}, dtype);
        Problem other = p;
        const auto key = static_cast<ptrdiff_t>(p.key_bytes(101));
        std::fill(other.k.begin() + key, other.k.end(), '\x41');
        std::fill(other.v.begin() + key, other.v.end(), '\x42');
        for (Problem* one : {&p, &other}) {
            run_pass(row, AttentionPass::forward, operands_of(*one), false);
        }
        const auto seen = static_cast<ptrdiff_t>(p.query_bytes(101));
        EXPECT_TRUE(
            std::equal(p.attended.begin(), p.attended.begin() + seen, other.attended.begin()));
        EXPECT_FALSE(p.attended == other.attended);
    }
}

TEST(Attention, ARowHasTheSameBitsAloneAndAmongOthers) {
    const AttentionRow& row = best_attention_row(Dtype::bf16);
    Problem all = make_problem({3, 101, 6, 2, 36}, Dtype::bf16);
    solve(row, &all);
    Problem one = all;
    one.sizes.row_count = 1;
    const auto cut = [](const Bytes& bytes) {
        const auto third = static_cast<ptrdiff_t>(bytes.size() / 3);
        return Bytes(bytes.begin() + third, bytes.begin() + 2 * third);
    };
    one.q = cut(all.q);
    one.k = cut(all.k);
    one.v = cut(all.v);
    one.d_attended = cut(all.d_attended);
    solve(row, &one);
    EXPECT_TRUE(one.attended == cut(all.attended));
    EXPECT_TRUE(one.dq == cut(all.dq));
    EXPECT_TRUE(one.dk == cut(all.dk));
    EXPECT_TRUE(one.dv == cut(all.dv));
}

TEST(Attention, FaultsAreNamed) {
    Problem p = make_problem({1, 4, 2, 1, 8}, Dtype::fp32);
    AttentionOperands good = operands_of(p);
    good.layout = attention_layout(AttentionPass::backward, good.sizes);
    good.shared = p.log_sum.data();
    EXPECT_EQ(find_fault(AttentionPass::backward, good), nullptr);
    const auto fault_of = [&](auto change) {
        AttentionOperands operands = good;
        change(operands);
        const char* fault = find_fault(AttentionPass::backward, operands);
        return std::string(fault == nullptr ? "" : fault);
    };
    EXPECT_NE(fault_of([](auto& o) { o.sizes.head_count = 3, o.sizes.kv_head_count = 2; }), "");
    EXPECT_NE(fault_of([](auto& o) { o.sizes.head_dim = 80; }), "");
    EXPECT_NE(fault_of([](auto& o) { o.scale = nan_float; }), "");
    EXPECT_NE(fault_of([](auto& o) { o.k = nullptr; }), "");
    EXPECT_NE(fault_of([](auto& o) { o.log_sum = nullptr; }), "");
    EXPECT_NE(fault_of([](auto& o) { o.dv = nullptr; }), "");
    EXPECT_NE(fault_of([](auto& o) { o.shared = nullptr; }), "");
    const std::vector<int32_t> descends = {0, 1, 0, 0};
    const std::vector<int32_t> blind = {0, 2, 2, 2};
    EXPECT_EQ(fault_of([&](auto& o) { o.first_keys = descends.data(); }), "first keys descend");
    EXPECT_EQ(fault_of([&](auto& o) { o.first_keys = blind.data(); }),
              "a query does not see itself");
}

// Distance in units of the last place of the exact value.
double ulps_of(float found, double exact) {
    const int exponent = std::max(std::ilogb(exact), -126);
    return std::abs(static_cast<double>(found) - exact) / std::ldexp(1.0, exponent - 23);
}

TEST(AttentionExp, IsWithinTwoUlpAndHasOneSetOfBits) {
    std::vector<float> source;
    for (float x = -87.0f; x < 88.3f; x += 0.00037f) source.push_back(x);
    for (float x = 1.0f; x > 1e-30f; x /= 1.7f) source.insert(source.end(), {x, -x});
    source.insert(source.end(), {0.0f, -0.0f, 0.5f, -0.5f, -87.0f});
    source.resize((source.size() + 15) / 16 * 16, -1.0f);
    std::vector<float> found(source.size());
    const auto count = static_cast<int64_t>(source.size());
    attention_exp_scalar(source.data(), found.data(), count);
    double worst = 0;
    for (size_t i = 0; i < source.size(); ++i) {
        worst = std::max(worst, ulps_of(found[i], std::exp(static_cast<double>(source[i]))));
    }
    EXPECT_LE(worst, 2.0);
    EXPECT_GT(worst, 0.4);
    for (const auto& [row, exp] : vector_rows()) {
        std::vector<float> other(source.size());
        exp(source.data(), other.data(), count);
        EXPECT_EQ(other, found) << row.name;
    }
}

TEST(AttentionExp, EndsAreZeroInfinityAndNaN) {
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> source(16, 0.0f);
    source[0] = -infinity;
    source[1] = -87.1f;
    source[2] = nan_float;
    source[3] = infinity;
    source[4] = -1e30f;
    std::vector<float> found(16);
    const auto check = [&] {
        EXPECT_EQ(found[0], 0.0f);
        EXPECT_EQ(found[1], 0.0f);
        EXPECT_TRUE(std::isnan(found[2]));
        EXPECT_EQ(found[3], infinity);
        EXPECT_EQ(found[4], 0.0f);
        EXPECT_EQ(found[5], 1.0f);
    };
    attention_exp_scalar(source.data(), found.data(), 16);
    check();
    for (const auto& [row, exp] : vector_rows()) {
        exp(source.data(), found.data(), 16);
        check();
    }
}

}  // namespace
}  // namespace headrace::kernels
