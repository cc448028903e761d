#include "engine/train/run_identity.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <memory>

#include "engine/config/machine.h"
#include "engine/torch/llama.h"

namespace headrace::engine {

using offload::Result;
using offload::Status;

namespace {

// Bits may differ between versions of this number and of nothing else in the engine's code. A run
// may be allowed to go on under another one: what changes the order of the samples, or what the
// bytes of states mean, needs a fact of its own that no permission covers.
constexpr int numerics_version = 3;

// Elements of a tensor that are looked at, from its beginning and from its middle.
constexpr uint64_t sampled_elements = 32;

class Fingerprint {
  public:
    Fingerprint() : state_(XXH3_createState()) {
        CHECK(state_ != nullptr);
        CHECK_EQ(XXH3_128bits_reset(state_.get()), XXH_OK);
    }
    void add(std::span<const std::byte> bytes) {
        CHECK_EQ(XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()), XXH_OK);
    }
    void add(std::string_view text) {
        const auto size_bytes = static_cast<uint64_t>(text.size());
        add(std::as_bytes(std::span(&size_bytes, 1)));
        add(std::as_bytes(std::span(text)));
    }
    std::string text() const {
        const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
        return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
    }

  private:
    struct Free {
        void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
    };
    std::unique_ptr<XXH3_state_t, Free> state_;
};

Status add_sample(Fingerprint& print, const Checkpoint& checkpoint, const std::string& tensor,
                  uint64_t first_element, uint64_t element_count) {
    std::array<float, sampled_elements> sample{};
    const auto bytes = std::as_writable_bytes(std::span(sample)).first(element_count * 4);
    const Status read = checkpoint.read_elements(
        tensor, first_element, {.dtype = offload::Dtype::fp32, .weights = bytes, .lo = {}});
    if (read) print.add(bytes);
    return read;
}

Result<std::string> model_fingerprint(const TrainInputs& inputs, const Checkpoint& checkpoint) {
    Fingerprint print;
    for (const offload::LayerSpec& layer : layers_of(inputs.model)) {
        for (const offload::TensorSpec& tensor : layer.tensors) {
            print.add(tensor.name);
            print.add(std::as_bytes(std::span(tensor.shape)));
            const uint64_t elements = element_count_of(tensor);
            const uint64_t sampled = std::min(sampled_elements, elements);
            for (const uint64_t first : {uint64_t{0}, (elements - sampled) / 2}) {
                const Status status = add_sample(print, checkpoint, tensor.name, first, sampled);
                if (!status) return status.error();
            }
        }
    }
    return print.text();
}

std::string data_fingerprint(const Dataset& data) {
    Fingerprint print;
    for (int64_t i = 0; i < data.sample_count(); ++i) {
        const Sample sample = data.sample(i);
        const auto token_count = static_cast<uint64_t>(sample.input_ids.size());
        print.add(std::as_bytes(std::span(&token_count, 1)));
        print.add(std::as_bytes(sample.input_ids));
        print.add(std::as_bytes(sample.labels));
    }
    return print.text();
}

Fact fact(std::string name, const auto& value) {
    return {std::move(name), fmt::format("{}", value)};
}

std::vector<Fact> recipe_of(const RunConfig& config) {
    std::vector<Fact> facts = {
        fact("learning_rate", config.learning_rate),
        fact("lr_scheduler_type", name_of(config.lr_scheduler_type)),
        fact("warmup_ratio", config.warmup_ratio),
        fact("warmup_steps", config.warmup_steps ? std::to_string(*config.warmup_steps) : "-"),
        fact("weight_decay", config.weight_decay),
        fact("adam_beta1", config.adam_beta1),
        fact("adam_beta2", config.adam_beta2),
        fact("adam_epsilon", config.adam_epsilon),
        fact("max_grad_norm", config.max_grad_norm),
        fact("num_train_epochs", config.num_train_epochs),
        fact("max_steps", config.max_steps ? std::to_string(*config.max_steps) : "-")};
    if (config.dtype != offload::Dtype::fp16) return facts;
    const LossScaleRule& rule = config.loss_scale;
    for (Fact& setting : std::vector<Fact>{
             fact("loss_scale", rule.fixed_scale),
             fact("initial_scale_power", rule.initial_scale_power),
             fact("loss_scale_window", rule.window), fact("hysteresis", rule.hysteresis),
             fact("consecutive_hysteresis", rule.has_consecutive_hysteresis),
             fact("min_loss_scale", rule.min_scale)}) {
        facts.push_back(std::move(setting));
    }
    return facts;
}

}  // namespace

std::vector<Fact> numerics_of(const TrainInputs& inputs, const MachineFile* card,
                              int compute_threads) {
    const RunConfig& config = inputs.config;
    std::vector<Fact> facts = {
        fact("numerics", numerics_version),
        fact("library", torch_version()),
        fact("cpu", read_machine().cpu_kind),
        fact("matmul", matmul_description(config.dtype)),
        fact("kernels", name_of(config.offload.advanced.kernels)),
        fact("compute_threads", compute_threads),
        fact("gradients", name_of(config.offload.gradients)),
        fact("gradient_accumulation_steps", config.gradient_accumulation_steps),
        fact("per_device_train_batch_size", config.per_device_train_batch_size),
        fact("head_chunk", head_chunk_tokens(inputs.model)),
        fact(states_fact, name_of(config.offload.optimizer_states)),
        fact("shuffle", config.shuffle),
        fact("seed", config.seed)};
    if (card != nullptr) facts.push_back(fact("emulate", plain_text(card->machine.name)));
    return facts;
}

Result<Identity> identity_of(const TrainInputs& inputs, std::vector<Fact> numerics,
                             const Checkpoint& checkpoint) {
    Result<std::string> model = model_fingerprint(inputs, checkpoint);
    if (!model) return model.error();
    return Identity{.numerics = std::move(numerics),
                    .job = {fact("model", *model), fact("dtype", name_of(inputs.config.dtype)),
                            fact("train_data", data_fingerprint(inputs.train_data))},
                    .recipe = recipe_of(inputs.config)};
}

}  // namespace headrace::engine
