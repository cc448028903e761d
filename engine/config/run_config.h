// RunConfig: what a user asked for, as plain values with every default filled in. It is what a run
// file, `key=value` overrides and defaults come to (engine/config/load_config.h); whoever holds one
// may trust it: ranges, conflicts and missing fields have been refused before it exists.
//
// An empty optional is `auto`: the planner, or the machine, decides. Names are Hugging Face's where
// they have one, with the unit added. Sizes are bytes. Nothing here reads a file or a clock.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/loss_scale.h"
#include "engine/torch/ops/kernels.h"
#include "offload/dtype.h"
#include "offload/spread.h"
#include "offload/state_format.h"
#include "offload/tier.h"

namespace headrace::engine {

enum class Device : uint8_t { automatic, cuda, host };
// As transformers name them: `constant` has no warm-up.
enum class LrSchedule : uint8_t { linear, cosine, constant, constant_with_warmup };
enum class IoEngine : uint8_t { automatic, uring, threads };
enum class CommitMode : uint8_t { automatic, every_step, at_saves };

std::string_view name_of(Device device);        // "auto", "cuda", "host"
std::string_view name_of(LrSchedule schedule);  // "linear", ..., "constant_with_warmup"
std::string_view name_of(IoEngine engine);      // "auto", "uring", "threads"
std::string_view name_of(CommitMode commit);    // "auto", "every_step", "at_saves"

using offload::TierShares;

// "nvme" where one tier has everything, else "{gpu: 0.1, ram: 0.4, nvme: 0.5}".
std::string text_of(const TierShares& shares);

// `all` in micro_batches_per_pass and layers_in_flight: as many as there are.
inline constexpr int64_t as_many_as_there_are = std::numeric_limits<int64_t>::max();

// Knobs that cannot change a bit of the result, but for two.
struct AdvancedConfig {
    std::optional<int64_t> micro_batches_per_pass;  // the group; may be as_many_as_there_are
    std::optional<int64_t> layers_in_flight;        // the window; may be as_many_as_there_are
    std::optional<uint64_t> part_bytes;             // of weights in the compute dtype
    std::optional<TierShares> stash_tier;           // gradients that wait for the verdict
    std::optional<offload::Tier> accumulator_tier;  // fp32 sums between passes: ram or nvme
    // The share of parts on nvme whose update is computed twice (offload/slots.h, Plan::twice).
    std::optional<double> update_twice;
    std::optional<int64_t> ring_slots{};  // parts of a kind on their way through ram at a time
    // Blocks that keep what their backward needs, the last ones first: on the gpu, those before
    // them in ram, those before these on nvme. Where one of the three is given, the others are 0.
    std::optional<int64_t> blocks_kept_on_gpu{};
    std::optional<int64_t> blocks_kept_in_ram{};
    std::optional<int64_t> blocks_kept_on_nvme{};
    std::optional<int64_t> update_threads;
    std::optional<int64_t> compute_threads;  // part of the numerics record
    Kernels kernels = Kernels::fused;        // the other one: part of the numerics record too
    IoEngine io_engine = IoEngine::automatic;
    bool overlap = true;  // false: one op at a time, in the order of the list
    std::string trace{};  // a file to write what ran when to; empty: none
    bool operator==(const AdvancedConfig&) const = default;
};

inline bool says_what_is_kept(const AdvancedConfig& advanced) {
    return advanced.blocks_kept_on_gpu || advanced.blocks_kept_in_ram ||
           advanced.blocks_kept_on_nvme;
}

struct OffloadConfig {
    // Ceilings per tier.
    std::optional<uint64_t> gpu_budget_bytes;
    std::optional<uint64_t> ram_budget_bytes;
    std::optional<uint64_t> nvme_budget_bytes;
    std::vector<std::string> nvme_paths;  // folders; never empty where a share of nvme is > 0

    std::optional<TierShares> parameters;
    std::optional<TierShares> optimizer;  // the states beside the weight: lo, m, v
    std::optional<TierShares> activations;

    // The type gradients wait in, are normed in and updated from; default: the compute dtype.
    offload::Dtype gradients = offload::Dtype::bf16;

    // How the optimizer states are kept, beside the master.
    offload::StateFormat optimizer_states = offload::StateFormat::fp32;

    // When the store becomes a resume point. automatic: every step where all states are on nvme,
    // at saves where some are in memory.
    CommitMode commit = CommitMode::automatic;
    // Of all paths together: the run commits and stops before it would write more.
    std::optional<uint64_t> nvme_write_limit_bytes;
    // Per second, of all paths together; for servers whose drives are shared.
    std::optional<uint64_t> nvme_max_write_bytes;

    AdvancedConfig advanced;
    bool operator==(const OffloadConfig&) const = default;
};

struct RunConfig {
    std::string model;       // a folder, a hub-cache folder, or org/name
    std::string train_data;  // JSONL
    std::string eval_data;   // JSONL, or empty: no evaluation
    std::string output_dir;  // default: runs/<last component of model>

    Device device = Device::automatic;
    std::string emulate{};  // a machine file: its card is pretended; empty: none is
    // A machine file: the rates that placements are chosen by; empty: this machine's, as measured.
    std::string machine{};
    offload::Dtype dtype = offload::Dtype::bf16;
    LossScaleRule loss_scale;   // obeyed where dtype is fp16
    int64_t max_length = 2048;  // tokens per sample
    bool shuffle = true;

    int64_t per_device_train_batch_size = 1;  // rows of a micro-batch
    int64_t per_device_eval_batch_size = 1;   // default: as in training
    int64_t gradient_accumulation_steps = 1;  // micro-batches of a step
    // true: every block is computed again in backward; false: none is, or the run does not fit;
    // nothing: those are not that find room for what their backward needs. Changes no bit.
    std::optional<bool> gradient_checkpointing;
    double num_train_epochs = 3;  // ignored where max_steps is given
    std::optional<int64_t> max_steps;

    double learning_rate = 1e-5;
    LrSchedule lr_scheduler_type = LrSchedule::linear;
    double warmup_ratio = 0.03;           // of all updates, rounded up
    std::optional<int64_t> warmup_steps;  // wins over warmup_ratio
    double weight_decay = 0;
    double adam_beta1 = 0.9;
    double adam_beta2 = 0.999;
    double adam_epsilon = 1e-8;
    double max_grad_norm = 1.0;  // 0: no clipping

    uint64_t seed = 42;
    int64_t logging_steps = 1;
    // With eval_data: evaluate before the first step, after every eval_steps, and at the end.
    std::optional<int64_t> eval_steps;
    // With commits at saves: save after every so many steps, besides the end.
    std::optional<int64_t> save_steps;
    bool resume_from_checkpoint = false;
    bool overwrite_output_dir = false;  // an unfinished run that is there may be thrown away
    // A resume may turn the states of the saved run into the format of optimizer_states.
    bool convert_optimizer_states = false;
    // A resume may compute with other arithmetic than the saved run, and so with other bits.
    bool allow_other_numerics = false;

    OffloadConfig offload;
    bool operator==(const RunConfig&) const = default;
};

}  // namespace headrace::engine
