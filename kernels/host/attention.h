// Causal grouped-query attention, forward and backward, in blocks: scores never leave a tile of 96
// queries by 96 keys. A query q_i of head h sees the keys j <= i of its row, of kv head
// h * kv_heads / heads (and j >= first_keys[i], where samples are packed into one row):
//
//   score_ij = q_i . k_j / sqrt(head_dim)      log_sum_i = log(sum_j exp(score_ij))
//   p_ij = exp(score_ij - log_sum_i)           attended_i = sum_j p_ij v_j
//   delta_i = d_attended_i . attended_i        ds_ij = p_ij (d_attended_i . v_j - delta_i)
//   dq_i = sum_j ds_ij k_j / sqrt(head_dim)    dk_j = sum_hi ds_ij q_i / sqrt(head_dim)
//   dv_j = sum_hi p_ij d_attended_i
//
// Operands are fp32, bf16 or fp16, widened once; everything between is fp32, results are rounded
// once (but see bf16_attention_row). Keys and values are read once per kv head, never expanded.
//
// The work is a list of phases, each a number of tasks that may run at the same time on any
// threads; a phase begins when the one before it is done. No task's arithmetic depends on another
// row of the batch or on who runs it, so bits depend on neither. The rows of the table have the
// same bits: a sum is a chain of fma in ascending order within a tile, tiles are added in
// ascending order, lanes (16) are joined by halves (8, 4, 2, 1), and e^x is one polynomial, at
// most 2 ulp off, and ln x is kernels/host/natural_log.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/host/attention_tile.h"
#include "kernels/host/isa.h"

namespace headrace::kernels {

struct AttentionRow {
    std::string_view name;
    Isa required_isa = Isa::baseline;
    AttentionTasks tasks;
    bool is_of_bf16_alone = false;
};

// All rows, best first; the last one, scalar, runs everywhere.
std::span<const AttentionRow> attention_rows();

// Of operands in bf16, with q . k and d_attended . v from products of bf16: exact as those of the
// others (but denormal values are zeros), added in another order, so not with their bits.
const AttentionRow& bf16_attention_row();

// What this machine is best at for operands in `dtype`.
const AttentionRow& best_attention_row(offload::Dtype dtype);

// Forward reads q, k, v and writes attended and log_sum; backward reads all of them and d_attended
// and writes dq, dk, dv.
enum class AttentionPass : uint8_t { forward, backward };

// The phases of a pass, in order.
std::span<const AttentionPhase> attention_phases(AttentionPass pass);
int64_t attention_task_count(AttentionPhase phase, const AttentionSizes& sizes);

// What follows from the sizes, for AttentionOperands::layout.
AttentionLayout attention_layout(AttentionPass pass, const AttentionSizes& sizes);

// Scratch, in floats: one for all tasks of the pass (AttentionOperands::shared), one per worker.
uint64_t attention_shared_floats(AttentionPass pass, const AttentionSizes& sizes);
uint64_t attention_worker_floats(AttentionPass pass, const AttentionSizes& sizes);

// Runs one task. `worker` is scratch that no task running at the same time uses; it need not be
// cleared, nor need `shared`.
void run_attention_task(const AttentionRow& row, AttentionPhase phase,
                        const AttentionOperands& operands, int64_t task, std::span<float> worker);

// First broken promise about the operands of a pass, or null: sizes that do not fit each other, a
// missing pointer, first_keys that descend within a row or lie behind their query.
const char* find_fault(AttentionPass pass, const AttentionOperands& operands);

}  // namespace headrace::kernels
