#include "engine/models/effort.h"

#include "offload/check.h"

namespace headrace::engine {

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
    const double attention = 2 * columns * columns * queries * rows;
    const double down = 2 * hidden * inner * tokens;  // its output is not needed again
    const double head = 2 * hidden * words * tokens;

    offload::Effort effort;
    effort.layers.assign(static_cast<size_t>(config.block_count) + 2,
                         {.forward_flop = products + attention,
                          .recompute_flop = products + attention - down,
                          .backward_flop = 2 * products + 2.5 * attention});
    effort.layers.front() = {};  // rows are looked up
    effort.layers.back() = {.backward_flop = 3 * head};
    effort.loss_flop = head;
    return effort;
}

}  // namespace headrace::engine
