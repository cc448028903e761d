// Attention (kernels/host/attention.h) as its rows see it. Plain structs and constants only: the
// translation units with instruction-set flags include this header, and an inline function here
// could be kept by the linker in a form that not every machine can run.
#pragma once

#include <cstdint>

#include "offload/dtype.h"

namespace headrace::kernels {

// Queries and keys of a tile, and what the loops over it count in: a *unit* is 12 rows of a
// product, which a row of the table may compute in smaller pieces, and 16 lanes are its columns.
inline constexpr int64_t attention_query_block = 96;
inline constexpr int64_t attention_key_block = 96;
inline constexpr int64_t attention_unit = 12;
inline constexpr int64_t attention_lanes = 16;
static_assert(attention_query_block % attention_unit == 0);
static_assert(attention_key_block % attention_unit == 0);
static_assert(attention_key_block % (2 * attention_lanes) == 0);

struct AttentionSizes {
    int64_t row_count = 0;
    int64_t column_count = 0;
    int64_t head_count = 0;
    int64_t kv_head_count = 0;  // divides head_count
    int64_t head_dim = 0;
};

// Everything that follows from the sizes. A *stride* is the distance of two rows of a tile in
// floats: head_dim filled up to lanes, and to an odd number of cache lines, so that the rows of a
// tile do not meet in the same sets of the cache.
struct AttentionLayout {
    int64_t stride = 0;
    int64_t query_rows = 0;       // of a tile: a block of queries, or all of a short row, in units
    int64_t key_block_count = 0;  // of one row of the batch
    int64_t query_block_count = 0;   // the same
    int64_t turned_tile_floats = 0;  // (head_dim, key_block): keys or values, transposed
    int64_t plain_tile_floats = 0;   // (key_block, stride)
    // Floats of `shared`: packed tiles first, then the gradients of every head.
    int64_t packed_tile_floats = 0;     // all packed forms of one block of keys
    int64_t head_gradient_floats = 0;   // dk or dv of one head: (columns filled to units, stride)
    int64_t gradients_first_float = 0;  // where they begin

    bool operator==(const AttentionLayout&) const = default;
};

struct AttentionOperands {
    AttentionSizes sizes;
    AttentionLayout layout;
    offload::Dtype dtype = offload::Dtype::fp32;
    float scale = 0.0f;  // of a score: 1 / sqrt(head_dim)
    // (rows, columns): the first key that a query may see, ascending within a row; null: 0.
    const int32_t* first_keys = nullptr;
    const void* q = nullptr;           // (tokens, heads * head_dim)
    const void* k = nullptr;           // (tokens, kv_heads * head_dim)
    const void* v = nullptr;           // the same
    void* attended = nullptr;          // as q
    float* log_sum = nullptr;          // (rows, heads, columns)
    const void* d_attended = nullptr;  // as q
    void* dq = nullptr;                // as q
    void* dk = nullptr;                // as k
    void* dv = nullptr;                // as k
    float* shared = nullptr;
};

// What tasks a phase has: pack_*: (row, kv head, block of keys); attend: (row, head, block of
// queries), the longest first; differentiate: (row, head); join: (row, kv head, block of keys).
enum class AttentionPhase : uint8_t { pack_forward, attend, pack_backward, differentiate, join };
inline constexpr int attention_phase_count = 5;

// One function per phase, in the order of AttentionPhase.
struct AttentionTasks {
    using Function = void (*)(const AttentionOperands& operands, int64_t task, float* worker);
    Function functions[attention_phase_count] = {};
};

AttentionTasks attention_tasks_scalar();
AttentionTasks attention_tasks_avx2();
AttentionTasks attention_tasks_avx512();
AttentionTasks attention_tasks_avx512_bf16();
// Writes e^x for each of `count` values (a multiple of 16; for tests). 0 below -87, infinite from
// 88.4, else within 2 ulp.
void attention_exp_scalar(const float* source, float* target, int64_t count);
void attention_exp_avx2(const float* source, float* target, int64_t count);
void attention_exp_avx512(const float* source, float* target, int64_t count);

}  // namespace headrace::kernels
