#include "engine/config/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "offload/check.h"
#include "offload/schedule.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Dtype;
using offload::Tier;

namespace {

constexpr std::array<Tier, 2> off_device = {Tier::ram, Tier::nvme};
constexpr std::array<std::string_view, 3> device_names = {"auto", "cuda", "host"};
constexpr std::array<std::string_view, 4> schedule_names = {"linear", "cosine", "constant",
                                                            "constant_with_warmup"};
constexpr std::array<std::string_view, 2> kernel_names = {"fused", "reference"};
constexpr std::array<std::string_view, 3> commit_names = {"auto", "every_step", "at_saves"};
constexpr std::array<std::string_view, 3> state_names = {"fp32", "bf16", "int8"};
constexpr std::array<std::string_view, 3> io_names = {"auto", "uring", "threads"};

// Less is a number whose unit was forgotten.
constexpr uint64_t budget_bytes_min = 4096;
// More only wait for each other, and the system refuses to start them at some number.
constexpr int64_t threads_max = 512;
// Each takes its part's bytes of ram; far fewer are ever of use.
constexpr int64_t ring_slots_max = 4096;

constexpr auto none = OptionalCountField::Extra::none;
constexpr auto all = OptionalCountField::Extra::all;
constexpr auto minus_one = OptionalCountField::Extra::minus_one;
constexpr auto open_below = RealField::Ends::open_below;
constexpr auto open_above = RealField::Ends::open_above;

// clang-format off
constexpr Key key_table[] = {
    {"model", "a folder, a hub-cache folder, or org/name in the local hub cache",
     TextField{[](RunConfig& c) -> auto& { return c.model; }}},
    {"train_data", "JSONL: messages | prompt + completion | text | input_ids",
     TextField{[](RunConfig& c) -> auto& { return c.train_data; }}},
    {"eval_data", "JSONL to measure the loss on; empty: none",
     TextField{[](RunConfig& c) -> auto& { return c.eval_data; }}},
    {"output_dir", "where the run writes; default runs/<name of the model>",
     TextField{[](RunConfig& c) -> auto& { return c.output_dir; }}},
    {"device", "auto | cuda | host",
     ChoiceField{device_names, [](const RunConfig& c) { return static_cast<size_t>(c.device); },
                 [](RunConfig& c, size_t i) { c.device = static_cast<Device>(i); }}},
    {"emulate", "a machine file whose card is pretended: ops take its time, nothing is trained",
     TextField{[](RunConfig& c) -> auto& { return c.emulate; }}},
    {"machine", "a machine file: rates to choose a placement by, instead of this machine's",
     TextField{[](RunConfig& c) -> auto& { return c.machine; }}},
    {"dtype", "compute dtype: bf16 | fp16 | fp32",
     DtypeField{[](RunConfig& c) -> auto& { return c.dtype; }}},
    {"loss_scale", "fp16: a fixed loss scale; 0: dynamic, as in DeepSpeed",
     RealField{[](RunConfig& c) -> auto& { return c.loss_scale.fixed_scale; }, 0, 1e30}},
    {"initial_scale_power", "fp16: the dynamic loss scale begins with 2 to this",
     CountField{[](RunConfig& c) -> auto& { return c.loss_scale.initial_scale_power; }, 0,
                scale_power_max}},
    {"loss_scale_window", "fp16: steps without an overflow after which the scale doubles",
     CountField{[](RunConfig& c) -> auto& { return c.loss_scale.window; }, 1}},
    {"hysteresis", "fp16: overflows until the scale is halved",
     CountField{[](RunConfig& c) -> auto& { return c.loss_scale.hysteresis; }, 1}},
    {"consecutive_hysteresis", "fp16: a step without an overflow makes the hysteresis full again",
     SwitchField{[](RunConfig& c) -> auto& { return c.loss_scale.has_consecutive_hysteresis; }}},
    {"min_loss_scale", "fp16: an overflow at this scale ends the run",
     RealField{[](RunConfig& c) -> auto& { return c.loss_scale.min_scale; }, 0, 1e30,
               open_below}},
    {"max_length", "tokens per sample; longer samples are cut",
     CountField{[](RunConfig& c) -> auto& { return c.max_length; }, 2}},
    {"shuffle", "another order of the samples in each epoch",
     SwitchField{[](RunConfig& c) -> auto& { return c.shuffle; }}},
    {"per_device_train_batch_size", "samples of a micro-batch",
     CountField{[](RunConfig& c) -> auto& { return c.per_device_train_batch_size; }, 1}},
    {"per_device_eval_batch_size", "the same in evaluation; default as in training",
     CountField{[](RunConfig& c) -> auto& { return c.per_device_eval_batch_size; }, 1}},
    {"gradient_accumulation_steps", "micro-batches of a step",
     CountField{[](RunConfig& c) -> auto& { return c.gradient_accumulation_steps; }, 1,
                offload::micro_batch_count_limit}},
    {"gradient_checkpointing",
     "blocks keep what backward needs: auto, where there is room | false, all | true, none",
     OptionalSwitchField{[](RunConfig& c) -> auto& { return c.gradient_checkpointing; }}},
    {"num_train_epochs", "passes over the data; may be a fraction",
     RealField{[](RunConfig& c) -> auto& { return c.num_train_epochs; }, 0, 1e6, open_below}},
    {"max_steps", "steps; wins over num_train_epochs",
     OptionalCountField{[](RunConfig& c) -> auto& { return c.max_steps; }, 1, minus_one}},
    {"learning_rate", "the peak of the schedule",
     RealField{[](RunConfig& c) -> auto& { return c.learning_rate; }, 0, 10}},
    {"lr_scheduler_type", "linear | cosine | constant_with_warmup | constant (no warm-up)",
     ChoiceField{schedule_names,
                 [](const RunConfig& c) { return static_cast<size_t>(c.lr_scheduler_type); },
                 [](RunConfig& c, size_t i) { c.lr_scheduler_type = static_cast<LrSchedule>(i); }}},
    {"warmup_ratio", "warm-up as a share of all updates",
     RealField{[](RunConfig& c) -> auto& { return c.warmup_ratio; }, 0, 1}},
    {"warmup_steps", "warm-up in updates; wins over warmup_ratio",
     OptionalCountField{[](RunConfig& c) -> auto& { return c.warmup_steps; }, 0}},
    {"weight_decay", "decoupled, as in AdamW; of every weight, those of norms too",
     RealField{[](RunConfig& c) -> auto& { return c.weight_decay; }, 0, 1e3}},
    {"adam_beta1", "decay of the first moment",
     RealField{[](RunConfig& c) -> auto& { return c.adam_beta1; }, 0, 1, open_above}},
    {"adam_beta2", "decay of the second moment",
     RealField{[](RunConfig& c) -> auto& { return c.adam_beta2; }, 0, 1, open_above}},
    {"adam_epsilon", "added to the root of the second moment",
     RealField{[](RunConfig& c) -> auto& { return c.adam_epsilon; }, 1.2e-38, 1}},
    {"max_grad_norm", "the global gradient norm is clipped to this; 0: never",
     RealField{[](RunConfig& c) -> auto& { return c.max_grad_norm; }, 0, 1e30}},
    {"seed", "of the order of the samples, and of the rounding of states",
     SeedField{[](RunConfig& c) -> auto& { return c.seed; }}},
    {"logging_steps", "a log line after every so many steps",
     CountField{[](RunConfig& c) -> auto& { return c.logging_steps; }, 1}},
    {"eval_steps", "evaluate after every so many steps, besides start and end",
     OptionalCountField{[](RunConfig& c) -> auto& { return c.eval_steps; }, 1}},
    {"save_steps", "with commit at_saves: save after every so many steps, besides the end",
     OptionalCountField{[](RunConfig& c) -> auto& { return c.save_steps; }, 1}},
    {"resume_from_checkpoint", "go on where the run in output_dir was stopped",
     SwitchField{[](RunConfig& c) -> auto& { return c.resume_from_checkpoint; }}},
    {"overwrite_output_dir", "throw away an unfinished run that is in output_dir",
     SwitchField{[](RunConfig& c) -> auto& { return c.overwrite_output_dir; }}},
    {"convert_optimizer_states", "a resume may turn the saved states into optimizer_states",
     SwitchField{[](RunConfig& c) -> auto& { return c.convert_optimizer_states; }}},
    {"allow_other_numerics", "a resume may compute otherwise: another processor, torch or version",
     SwitchField{[](RunConfig& c) -> auto& { return c.allow_other_numerics; }}},
    {"offload.gpu_budget", "ceiling of the card's memory (device host: of the pretended card's)",
     SizeField{[](RunConfig& c) -> auto& { return c.offload.gpu_budget_bytes; },
               budget_bytes_min}},
    {"offload.ram_budget", "ceiling of the ram tier, buffers of the drives included",
     SizeField{[](RunConfig& c) -> auto& { return c.offload.ram_budget_bytes; },
               budget_bytes_min}},
    {"offload.nvme_budget", "ceiling of the bytes on the drives; else what is free there",
     SizeField{[](RunConfig& c) -> auto& { return c.offload.nvme_budget_bytes; },
               budget_bytes_min}},
    {"offload.nvme_paths", "folders on the drives to use, one per drive",
     TextListField{[](RunConfig& c) -> auto& { return c.offload.nvme_paths; }}},
    {"offload.nvme_write_limit", "the run commits and stops before it writes more to the drives",
     SizeField{[](RunConfig& c) -> auto& { return c.offload.nvme_write_limit_bytes; },
               budget_bytes_min}},
    {"offload.nvme_max_write", "bytes per second to the drives, such as 2GB/s; auto: no limit",
     SizeField{[](RunConfig& c) -> auto& { return c.offload.nvme_max_write_bytes; },
               offload::mib, SizeField::Per::second}},
    {"offload.parameters", "gpu | ram | nvme | auto, or {gpu: 10%, ram: 40%, nvme: 50%}",
     SharesField{[](RunConfig& c) -> auto& { return c.offload.parameters; }}},
    {"offload.optimizer", "the same for the optimizer states",
     SharesField{[](RunConfig& c) -> auto& { return c.offload.optimizer; }}},
    {"offload.activations", "the same for layers' inputs until backward, the last layers' nearest",
     SharesField{[](RunConfig& c) -> auto& { return c.offload.activations; }}},
    {"offload.optimizer_states", "fp32 | bf16 | int8: 12, 8 or 6.1 bytes per bf16 parameter",
     ChoiceField{state_names,
                 [](const RunConfig& c)
                     { return static_cast<size_t>(c.offload.optimizer_states); },
                 [](RunConfig& c, size_t i)
                     { c.offload.optimizer_states = static_cast<offload::StateFormat>(i); }}},
    {"offload.gradients", "what gradients wait in: bf16 | fp16 | fp32; default dtype",
     DtypeField{[](RunConfig& c) -> auto& { return c.offload.gradients; }}},
    {"offload.commit", "auto | every_step | at_saves: when the run becomes resumable",
     ChoiceField{commit_names,
                 [](const RunConfig& c) { return static_cast<size_t>(c.offload.commit); },
                 [](RunConfig& c, size_t i) { c.offload.commit = static_cast<CommitMode>(i); }}},
    {"offload.advanced.micro_batches_per_pass", "micro-batches per pass over the layers, or all",
     OptionalCountField{[](RunConfig& c) -> auto&
                            { return c.offload.advanced.micro_batches_per_pass; }, 1, all}},
    {"offload.advanced.layers_in_flight", "layers whose weights are on the card at a time, or all",
     OptionalCountField{[](RunConfig& c) -> auto&
                            { return c.offload.advanced.layers_in_flight; }, 1, all}},
    {"offload.advanced.part_bytes", "what moves at a time: bytes of weights",
     SizeField{[](RunConfig& c) -> auto& { return c.offload.advanced.part_bytes; }, 4096}},
    {"offload.advanced.stash_tier",
     "gpu | ram | nvme | auto, or shares: where gradients wait for the verdict, the first nearest",
     SharesField{[](RunConfig& c) -> auto& { return c.offload.advanced.stash_tier; }}},
    {"offload.advanced.accumulator_tier", "where gradient sums wait between passes: ram | nvme",
     TierField{[](RunConfig& c) -> auto&
                   { return c.offload.advanced.accumulator_tier; }, off_device}},
    {"offload.advanced.update_twice",
     "share of the parts on nvme that are updated before forward and again in backward",
     OptionalShareField{[](RunConfig& c) -> auto& { return c.offload.advanced.update_twice; }}},
    {"offload.advanced.ring_slots", "parts of a kind on their way through ram at a time",
     OptionalCountField{[](RunConfig& c) -> auto& { return c.offload.advanced.ring_slots; }, 1,
                        none, ring_slots_max}},
    {"offload.advanced.blocks_kept_on_gpu", "the last blocks, which are not computed again",
     OptionalCountField{[](RunConfig& c) -> auto&
                            { return c.offload.advanced.blocks_kept_on_gpu; }, 0}},
    {"offload.advanced.blocks_kept_in_ram", "those before them that are not computed again either",
     OptionalCountField{[](RunConfig& c) -> auto&
                            { return c.offload.advanced.blocks_kept_in_ram; }, 0}},
    {"offload.advanced.blocks_kept_on_nvme", "those before these that are not either",
     OptionalCountField{[](RunConfig& c) -> auto&
                            { return c.offload.advanced.blocks_kept_on_nvme; }, 0}},
    {"offload.advanced.update_threads", "threads of the optimizer update",
     OptionalCountField{[](RunConfig& c) -> auto&
                            { return c.offload.advanced.update_threads; }, 1, none, threads_max}},
    {"offload.advanced.compute_threads", "threads of device host; may change bits",
     OptionalCountField{[](RunConfig& c) -> auto&
                            { return c.offload.advanced.compute_threads; }, 1, none, threads_max}},
    {"offload.advanced.kernels", "fused | reference: what computes between matrix products",
     ChoiceField{kernel_names,
                 [](const RunConfig& c) { return static_cast<size_t>(c.offload.advanced.kernels); },
                 [](RunConfig& c, size_t i)
                     { c.offload.advanced.kernels = static_cast<Kernels>(i); }}},
    {"offload.advanced.io_engine", "auto | uring | threads",
     ChoiceField{io_names,
                 [](const RunConfig& c)
                     { return static_cast<size_t>(c.offload.advanced.io_engine); },
                 [](RunConfig& c, size_t i)
                     { c.offload.advanced.io_engine = static_cast<IoEngine>(i); }}},
    {"offload.advanced.overlap", "false: one op at a time, to see what overlapping them brings",
     SwitchField{[](RunConfig& c) -> auto& { return c.offload.advanced.overlap; }}},
    {"offload.advanced.trace", "a file for what ran when in the last steps, for ui.perfetto.dev",
     TextField{[](RunConfig& c) -> auto& { return c.offload.advanced.trace; }}},
};
// clang-format on

}  // namespace

std::span<const Key> all_keys() {
    return key_table;
}

const Key* find_key(std::string_view name) {
    for (const std::string_view section : {"", "offload.", "offload.advanced."}) {
        const std::string dotted = std::string(section) + std::string(name);
        const auto key = std::ranges::find(key_table, dotted, &Key::name);
        if (key != std::end(key_table)) return &*key;
    }
    return nullptr;
}

}  // namespace headrace::engine
