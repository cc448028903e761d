#include "kernels/host/rope.h"

#include <algorithm>
#include <array>

#include "offload/check.h"

namespace headrace::kernels {

namespace {

constexpr std::array<RopeRow, 2> table = {{
    {"avx2", Isa::avx2_fma_f16c, &turn_tokens_avx2},
    {"scalar", Isa::baseline, &turn_tokens_scalar},
}};

}  // namespace

std::span<const RopeRow> rope_rows() {
    return table;
}

const RopeRow& best_rope_row() {
    const auto* row = std::find_if(table.begin(), table.end(),
                                   [](const RopeRow& r) { return has(r.required_isa); });
    CHECK(row != table.end());
    return *row;
}

void turn_tokens(const RopeRow& row, const RopeOperands& operands, int64_t first_token,
                 int64_t last_token) {
    CHECK(has(row.required_isa));
    CHECK(operands.x != nullptr);
    CHECK(operands.cosine != nullptr && operands.sine != nullptr);
    CHECK_GT(operands.head_count, 0);
    CHECK_GT(operands.pair_count, 0);
    CHECK_GT(operands.column_count, 0);
    CHECK_GE(first_token, 0);
    CHECK_LE(first_token, last_token);
    if (operands.sample_starts != nullptr) {
        for (int64_t token = first_token; token < last_token; ++token) {
            CHECK_GE(operands.sample_starts[token], 0);
            CHECK_LE(operands.sample_starts[token], token % operands.column_count);
        }
    }
    row.turn(operands, first_token, last_token);
}

}  // namespace headrace::kernels
