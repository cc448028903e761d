#include "engine/models/effort.h"

#include <algorithm>

#include "offload/check.h"

namespace headrace::engine {

namespace {

// Pairs of a token and one that it sees, in a sample of so many; half of the square where it sees
// all before it, less the corner that a window cuts off.
double seen_pairs(const BlockExtras& extras, int64_t block, double columns) {
    const bool sees_all =
        extras.window_tokens == 0 ||
        (extras.full_attention_period > 0 && (block + 1) % extras.full_attention_period == 0);
    const double beyond =
        sees_all ? 0 : std::max(0.0, columns - static_cast<double>(extras.window_tokens));
    return (columns * columns - beyond * beyond) / 2;
}

}  // namespace

offload::Effort effort_of(const LlamaConfig& config, int64_t row_count, int64_t column_count) {
    CHECK_GT(row_count, 0);
    CHECK_GT(column_count, 0);
    const auto hidden = static_cast<double>(config.hidden_size);
    const auto queries = static_cast<double>(config.head_count * config.head_dim);
    const auto keys = static_cast<double>(config.kv_head_count * config.head_dim);
    const auto inner = static_cast<double>(config.intermediate_size);
    const auto words = static_cast<double>(config.vocabulary_size);
    const auto rows = static_cast<double>(row_count);
    const auto columns = static_cast<double>(column_count);
    const double tokens = rows * columns;

    const double block_parameters = hidden * (2 * queries + 2 * keys + 3 * inner);
    const double products = 2 * block_parameters * tokens;
    const double down = 2 * hidden * inner * tokens;  // its output is not needed again
    const double head = 2 * hidden * words * tokens;

    offload::Effort effort;
    effort.layers.emplace_back();  // rows are looked up
    for (int64_t block = 0; block < config.block_count; ++block) {
        const double attention = 4 * seen_pairs(config.extras, block, columns) * queries * rows;
        effort.layers.push_back({.forward_flop = products + attention,
                                 .recompute_flop = products + attention - down,
                                 .backward_flop = 2 * products + 2.5 * attention});
    }
    effort.layers.push_back({.backward_flop = 3 * head});
    effort.loss_flop = head;
    return effort;
}

}  // namespace headrace::engine
