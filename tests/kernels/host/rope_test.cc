// Goal: every row turns with the bits of the scalar one, at every width and dtype; turning is the
// rotation it says, and turning back undoes it.
// Method: random elements and angles; pair counts around the lanes of a row; fp64 as the truth.
#include "kernels/host/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "offload/fp16.h"

namespace headrace::kernels {
namespace {

using offload::Dtype;

struct Case {
    RopeOperands operands;
    std::vector<char> x;
    std::vector<float> cosine, sine;
    int64_t token_count = 0;
};

Case make_case(int64_t pair_count, Dtype dtype, bool is_back) {
    Case c;
    std::mt19937 random(static_cast<uint32_t>(pair_count));
    std::uniform_real_distribution<float> angle(-3.0f, 3.0f);
    c.operands = {.x = nullptr,
                  .dtype = dtype,
                  .head_count = 3,
                  .pair_count = pair_count,
                  .column_count = 5,
                  .cosine = nullptr,
                  .sine = nullptr,
                  .is_back = is_back};
    c.token_count = 2 * c.operands.column_count;
    for (int64_t i = 0; i < c.operands.column_count * pair_count; ++i) {
        const float turned = angle(random);
        c.cosine.push_back(std::cos(turned));
        c.sine.push_back(std::sin(turned));
    }
    const int64_t count = c.token_count * c.operands.head_count * 2 * pair_count;
    c.x.resize(offload::bytes_of(dtype, static_cast<uint64_t>(count)));
    for (int64_t i = 0; i < count; ++i) {
        const float value = angle(random);
        const uint16_t half =
            dtype == Dtype::bf16 ? offload::float_to_bf16(value) : offload::float_to_fp16(value);
        if (dtype == Dtype::fp32) std::memcpy(c.x.data() + 4 * i, &value, 4);
        if (dtype != Dtype::fp32) std::memcpy(c.x.data() + 2 * i, &half, 2);
    }
    return c;
}

void turn(const RopeRow& row, Case* c) {
    c->operands.x = c->x.data();
    c->operands.cosine = c->cosine.data();
    c->operands.sine = c->sine.data();
    turn_tokens(row, c->operands, 0, 3);  // in two calls, as two threads would
    turn_tokens(row, c->operands, 3, c->token_count);
}

TEST(RopeRows, HaveTheBitsOfTheScalarRow) {
    ASSERT_EQ(rope_rows().back().name, "scalar");
    for (const RopeRow& row : rope_rows()) {
        if (!has(row.required_isa)) continue;
        for (const int64_t pair_count : {1, 7, 8, 10, 16, 29, 64}) {
            for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
                for (const bool is_back : {false, true}) {
                    SCOPED_TRACE(std::string(row.name) + ", pairs " + std::to_string(pair_count));
                    Case found = make_case(pair_count, dtype, is_back);
                    Case expected = found;
                    turn(row, &found);
                    turn(rope_rows().back(), &expected);
                    EXPECT_TRUE(found.x == expected.x);
                    EXPECT_FALSE(found.x == make_case(pair_count, dtype, is_back).x);
                }
            }
        }
    }
}

// Positions count from where a token's sample begins, in every row.
TEST(RopeRows, PackedSamplesBeginAtPositionZero) {
    constexpr int64_t pairs = 13;
    const std::vector<int32_t> starts = {0, 0, 2, 3, 3, 0, 1, 1, 1, 4};  // two rows of five columns
    for (const RopeRow& row : rope_rows()) {
        if (!has(row.required_isa)) continue;
        SCOPED_TRACE(row.name);
        Case packed = make_case(pairs, Dtype::bf16, false);
        const uint64_t token_bytes = packed.x.size() / starts.size();
        packed.operands.sample_starts = starts.data();
        Case moved = packed;  // each token stands at its position of a first row of one sample
        turn(row, &packed);
        for (size_t token = 0; token < starts.size(); ++token) {
            const size_t position = token % 5 - static_cast<size_t>(starts[token]);
            Case alone = make_case(pairs, Dtype::bf16, false);
            const auto piece = [&](std::vector<char>& x, size_t index) {
                return x.begin() + static_cast<ptrdiff_t>(index * token_bytes);
            };
            std::copy_n(piece(moved.x, token), token_bytes, piece(alone.x, position));
            turn(row, &alone);
            EXPECT_TRUE(std::equal(piece(alone.x, position), piece(alone.x, position + 1),
                                   piece(packed.x, token)))
                << token;
        }
    }
}

float fp32_at(const Case& c, int64_t index) {
    float value;
    std::memcpy(&value, c.x.data() + 4 * index, 4);
    return value;
}

TEST(Rope, IsARotationAndBackUndoesIt) {
    constexpr int64_t pairs = 10;
    const Case before = make_case(pairs, Dtype::fp32, false);
    Case after = before;
    turn(best_rope_row(), &after);
    for (int64_t token = 0; token < after.token_count; ++token) {
        for (int64_t i = 0; i < 3 * pairs; ++i) {
            const int64_t low = token * 6 * pairs + i / pairs * 2 * pairs + i % pairs;
            const auto at = static_cast<size_t>(token % 5 * pairs + i % pairs);
            const double cosine = before.cosine[at], sine = before.sine[at];
            const double x = fp32_at(before, low), y = fp32_at(before, low + pairs);
            EXPECT_NEAR(fp32_at(after, low), x * cosine - y * sine, 1e-6);
            EXPECT_NEAR(fp32_at(after, low + pairs), y * cosine + x * sine, 1e-6);
        }
    }
    after.operands.is_back = true;
    turn(best_rope_row(), &after);
    for (int64_t i = 0; i < after.token_count * 6 * pairs; ++i) {
        EXPECT_NEAR(fp32_at(after, i), fp32_at(before, i), 2e-6);
    }
}

}  // namespace
}  // namespace headrace::kernels
