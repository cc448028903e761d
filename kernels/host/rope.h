// Rotary positions, in place: in every head of a token at position c the pair of elements
// (i, i + pairs) is turned by the angle whose cosine and sine stand at [c][i]. The position is the
// token's column in its row, counted from where its sample begins.
//
//   low'  = fma(high, -s, round(low * cos))        s = sin forward, -sin back
//   high' = fma(low,   s, round(high * cos))
//
// in fp32, rounded once to the dtype of x. Turning back is the gradient of turning. Every row has
// the same bits, and tokens know nothing of each other. Any thread; different tokens at once.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/host/isa.h"
#include "kernels/host/rope_span.h"

namespace headrace::kernels {

struct RopeRow {
    std::string_view name;
    Isa required_isa = Isa::baseline;
    void (*turn)(const RopeOperands& operands, int64_t first_token, int64_t last_token) = nullptr;
};

// All rows, best first; the last one, scalar, runs everywhere.
std::span<const RopeRow> rope_rows();
const RopeRow& best_rope_row();

// Turns the tokens [first_token, last_token).
void turn_tokens(const RopeRow& row, const RopeOperands& operands, int64_t first_token,
                 int64_t last_token);

}  // namespace headrace::kernels
