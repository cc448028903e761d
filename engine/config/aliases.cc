#include "engine/config/aliases.h"

#include "offload/check.h"

namespace headrace::engine {

namespace {

constexpr Alias aliases[] = {
    {"model_name_or_path", "model"},
    {"base_model", "model"},
    {"model_path", "model"},
    {"data", "train_data"},
    {"dataset", "train_data"},
    {"data_path", "train_data"},
    {"train_file", "train_data"},
    {"train_dataset", "train_data"},
    {"eval_file", "eval_data"},
    {"eval_dataset", "eval_data"},
    {"val_data", "eval_data"},
    {"val_file", "eval_data"},
    {"validation_file", "eval_data"},
    {"validation_data", "eval_data"},
    {"out_dir", "output_dir"},
    {"save_dir", "output_dir"},
    {"torch_dtype", "dtype"},
    {"precision", "dtype"},
    {"fp16.loss_scale", "loss_scale"},
    {"fp16.initial_scale_power", "initial_scale_power"},
    {"fp16.loss_scale_window", "loss_scale_window"},
    {"fp16.hysteresis", "hysteresis"},
    {"fp16.consecutive_hysteresis", "consecutive_hysteresis"},
    {"fp16.min_loss_scale", "min_loss_scale"},
    {"cutoff_len", "max_length"},
    {"seq_len", "max_length"},
    {"seq_length", "max_length"},
    {"sequence_len", "max_length"},
    {"max_seq_len", "max_length"},
    {"max_seq_length", "max_length"},
    {"model_max_length", "max_length"},
    {"batch_size", "per_device_train_batch_size"},
    {"train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
    {"micro_batch_size", "per_device_train_batch_size"},
    {"eval_batch_size", "per_device_eval_batch_size"},
    {"val_batch_size", "per_device_eval_batch_size"},
    {"grad_accum", "gradient_accumulation_steps"},
    {"grad_accumulation", "gradient_accumulation_steps"},
    {"gradient_accumulation", "gradient_accumulation_steps"},
    {"activation_checkpointing", "gradient_checkpointing"},
    {"enable_activation_checkpointing", "gradient_checkpointing"},
    {"epochs", "num_train_epochs"},
    {"num_epochs", "num_train_epochs"},
    {"steps", "max_steps"},
    {"max_train_steps", "max_steps"},
    {"lr", "learning_rate"},
    {"lr_scheduler", "lr_scheduler_type"},
    {"lr_schedule", "lr_scheduler_type"},
    {"num_warmup_steps", "warmup_steps"},
    {"beta1", "adam_beta1"},
    {"beta2", "adam_beta2"},
    {"adam_eps", "adam_epsilon"},
    {"clip_grad_norm", "max_grad_norm"},
    {"gradient_clipping", "max_grad_norm"},
    {"log_every_n_steps", "logging_steps"},
    {"nvme_path", "offload.nvme_paths"},
    {"hbm_budget", "offload.gpu_budget"},
    {"cpu_budget", "offload.ram_budget"},
    {"pinned_budget", "offload.ram_budget"},
};

constexpr SwitchAlias switch_aliases[] = {
    {"bf16", "dtype", "bf16"},         {"fp16", "dtype", "fp16"},         {"fp32", "dtype", "fp32"},
    {"bf16.enabled", "dtype", "bf16"}, {"fp16.enabled", "dtype", "fp16"},
};

constexpr std::string_view recompute_note =
    "gradient_checkpointing alone says what is computed again in backward: it has no variants";
constexpr std::string_view attention_note =
    "attention always runs fused and in blocks here: it has no switch";
constexpr std::string_view no_saves =
    "saves are by steps and go to the store: set save_steps, or commit: every_step, and remove it";
constexpr std::string_view no_packing =
    "packing is not supported yet: remove it; samples are padded to the longest of a micro-batch";
constexpr std::string_view no_adapters =
    "adapters are not supported: Headrace trains every weight; remove it";
constexpr std::string_view no_other_precision =
    "weights in the compute dtype with an fp32 master are what there is here: write false or "
    "remove it";
constexpr std::string_view no_split =
    "there is no random split: write the held-out samples to a file of their own, and name it in "
    "eval_data";
constexpr std::string_view no_stages =
    "there is no stage or offload switch here: parameters, optimizer and nvme_paths of the offload "
    "section say where bytes live, or leave it to the planner; remove it";
constexpr std::string_view no_aio =
    "requests to the drives are sized by the planner: remove it; advanced.io_engine chooses "
    "io_uring or threads, headrace bench nvme measures a drive";
constexpr std::string_view no_optimizer_section =
    "write learning_rate, adam_beta1, adam_beta2, adam_epsilon and weight_decay";
constexpr std::string_view own_evaluation =
    "with eval_data the loss is measured at the start, at the end and every eval_steps";
constexpr std::string_view no_epochs = "evaluation is by steps: set eval_steps and remove it";
constexpr std::string_view own_template = "the model's own chat template is used: remove it";
constexpr std::string_view not_supported = "not supported yet: remove it";
constexpr std::string_view own_reading = "the data are tokenized once and mapped from then on";
constexpr std::string_view no_effect = "it has no effect here";
constexpr std::string_view no_hub = "nothing is uploaded: write false or remove it";
constexpr std::string_view no_trackers =
    "trackers are not supported yet: remove it; output_dir/metrics.jsonl has every number";

constexpr ForeignSetting foreign_settings[] = {
    {"gradient_checkpointing_kwargs", "*", recompute_note, ""},
    {"flash_attn", "*", attention_note, ""},
    {"flash_attention", "*", attention_note, ""},
    {"sdp_attention", "*", attention_note, ""},
    {"attn_implementation", "*", attention_note, ""},
    {"do_train", "true", "", "evaluation alone is not supported yet: remove it"},
    {"stage", "sft|pt", "", "only supervised fine-tuning and pretraining are supported: sft or pt"},
    {"finetuning_type", "full", "", no_adapters},
    {"adapter", "", "", no_adapters},
    {"use_peft", "false", "", no_adapters},
    {"lora_r", "0", "", no_adapters},
    {"lora_rank", "0", "", no_adapters},
    {"lora_alpha", "", "", no_adapters},
    {"lora_dropout", "0|0.0", "", no_adapters},
    {"lora_target", "", "", no_adapters},
    {"lora_target_linear", "false", "", no_adapters},
    {"lora_target_modules", "", "", no_adapters},
    {"load_in_4bit", "false", "", no_adapters},
    {"load_in_8bit", "false", "", no_adapters},
    {"optim", "adamw|adamw_torch|adamw_torch_fused|adamw_hf", "the optimizer is AdamW, always",
     "the optimizer is AdamW, always: write adamw or remove it; optimizer_states: int8 is what "
     "8-bit ones are elsewhere, and the offload section what paged ones are"},
    {"optimizer.type", "Adam|AdamW|adam|adamw", "the optimizer is AdamW, always",
     "the optimizer is AdamW, always: write AdamW or remove it"},
    {"optimizer.params", "", "", no_optimizer_section},
    {"scheduler", "", "", "write learning_rate, lr_scheduler_type and warmup_steps"},
    {"zero_optimization", "", "", no_stages},
    {"offload_param", "", "", no_stages},
    {"offload_optimizer", "", "", no_stages},
    {"aio", "", "", no_aio},
    {"tf32", "*", "products of fp32 are of fp32 here, never of TF32", ""},
    {"fp16.auto_cast", "false", "", no_other_precision},
    {"fp16.fp16_master_weights_and_grads", "false", "", no_other_precision},
    {"bf16.bf16_master_weights_and_grads", "false", "", no_other_precision},
    {"sample_packing", "false", "", no_packing},
    {"neat_packing", "false", "", no_packing},
    {"packing", "false", "", no_packing},
    {"packed", "false", "", no_packing},
    {"datasets", "", "", "one file of samples is read: name it in train_data"},
    {"test_datasets", "", "", "one file of held-out samples is read: name it in eval_data"},
    {"template", "", "", own_template},
    {"chat_template", "tokenizer_default", "", own_template},
    {"special_tokens", "", "", "the tokenizer's own are used, and padding needs none: remove it"},
    {"group_by_length", "false", "", not_supported},
    {"dataloader_num_workers", "*", own_reading, ""},
    {"dataloader_pin_memory", "*", own_reading, ""},
    {"preprocessing_num_workers", "*", own_reading, ""},
    {"val_size", "0|0.0", "", no_split},
    {"val_set_size", "0|0.0", "", no_split},
    {"train_batch_size", "", "",
     "in DeepSpeed it is the samples of a whole step: set per_device_train_batch_size and "
     "gradient_accumulation_steps, whose product it is"},
    {"tokens_per_step", "", "", "not supported yet: set gradient_accumulation_steps"},
    {"eval_strategy", "no|steps", own_evaluation, no_epochs},
    {"evaluation_strategy", "no|steps", own_evaluation, no_epochs},
    {"do_eval", "*", own_evaluation, ""},
    {"logging_strategy", "steps", "", "log lines are by steps: set logging_steps and remove it"},
    {"save_strategy", "no|steps", "resume points are the commits of the store", no_saves},
    {"save_total_limit", "1|2", "the store keeps the newest commit and the one before it",
     "the store keeps two resume points, always: write 2 or remove it"},
    {"load_best_model_at_end", "false", "", not_supported},
    {"report_to", "none", "", no_trackers},
    {"wandb_project", "", "", no_trackers},
    {"wandb_entity", "", "", no_trackers},
    {"logging_dir", "*", no_effect, ""},
    {"run_name", "*", no_effect, ""},
    {"ddp_timeout", "*", no_effect, ""},
    {"overwrite_cache", "*", no_effect, ""},
    {"plot_loss", "*", no_effect, ""},
    {"trust_remote_code", "*", "no code of a model is run here", ""},
    {"model_type", "*", "the model's own config.json says it", ""},
    {"tokenizer_type", "*", "the model's own files say it", ""},
    {"strict", "*", no_effect, ""},
    {"train_on_inputs", "false", "", "only answers are trained: remove it, or prepare text"},
    {"label_smoothing_factor", "0|0.0", "", not_supported},
    {"neftune_noise_alpha", "", "", not_supported},
    {"early_stopping_patience", "", "", not_supported},
    {"pure_bf16", "false", "", no_other_precision},
    {"evals_per_epoch", "", "", no_epochs},
    {"saves_per_epoch", "", "", no_saves},
    {"max_samples", "", "", "every sample of the file is used: shorten the file, or max_steps"},
    {"push_to_hub", "false", "", no_hub},
    {"hub_model_id", "", "", no_hub},
    {"deepspeed", "", "",
     "a DeepSpeed config is not read yet: write its values as keys of this file"},
    {"fsdp", "", "", "there is no FSDP here: the offload section places the bytes"},
};

}  // namespace

std::span<const Alias> all_aliases() {
    return aliases;
}
std::span<const SwitchAlias> all_switch_aliases() {
    return switch_aliases;
}
std::span<const ForeignSetting> all_foreign_settings() {
    return foreign_settings;
}

bool accepts(const ForeignSetting& setting, std::string_view value) {
    CHECK(!setting.name.empty());
    if (setting.accepted == "*") return true;
    std::string_view rest = setting.accepted;
    while (!rest.empty()) {
        const size_t end = rest.find('|');
        if (rest.substr(0, end) == value) return true;
        if (end == std::string_view::npos) break;
        rest.remove_prefix(end + 1);
    }
    return false;
}

}  // namespace headrace::engine
