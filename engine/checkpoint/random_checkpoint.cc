#include "engine/checkpoint/random_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "engine/checkpoint/file.h"
#include "engine/checkpoint/staging.h"
#include "engine/checkpoint/weight_recipe.h"
#include "engine/checkpoint/writer.h"
#include "engine/models/json.h"
#include "engine/models/shape.h"
#include "offload/check.h"
#include "offload/dtype.h"
#include "offload/units.h"

namespace headrace::engine {

namespace fs = std::filesystem;
using nlohmann::json;
using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

constexpr double deviation = 0.02;
constexpr uint64_t piece_elements_max = offload::mib;
constexpr size_t quantile_count = size_t{1} << 16;

// x with a share p of a standard normal below it, by bisection of its distribution.
double quantile_of(double p) {
    double low = -8;
    double high = 8;
    for (int i = 0; i < 48; ++i) {
        const double middle = (low + high) / 2;
        (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
    }
    return (low + high) / 2;
}

// Equally likely values: 16 random bits choose one. Half of them, mirrored, so that the mean is 0.
const std::vector<uint16_t>& quantiles() {
    static const std::vector<uint16_t> table = [] {
        std::vector<uint16_t> made(quantile_count);
        for (size_t i = 0; i < quantile_count / 2; ++i) {
            const double p = (static_cast<double>(i) + 0.5) / quantile_count;
            const auto value = static_cast<float>(deviation * quantile_of(p));
            made[i] = offload::float_to_bf16(value);
            made[quantile_count - 1 - i] = offload::float_to_bf16(-value);
        }
        return made;
    }();
    return table;
}

// A hash whose every output bit depends on every input bit (splitmix64's finish).
uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t key_of(uint64_t seed, std::string_view tensor) {
    uint64_t key = mixed(seed);
    for (const char letter : tensor) key = mixed(key ^ static_cast<unsigned char>(letter));
    return key;
}

bool is_norm(const offload::TensorSpec& tensor) {
    return tensor.shape.size() == 1 && tensor.name.find("norm") != std::string::npos;
}

Error config_error(const RandomCheckpointOptions& options, const std::string& what) {
    return {ErrorCode::bad_data,
            fmt::format("making a random model of {}: {}", options.source, what), ""};
}

// The config that the folder will have.
Result<json> config_of(const RandomCheckpointOptions& options) {
    Result<json> config = parse_json(options.config_text, options.source);
    if (!config) return config.error();
    if (!config->is_object()) return config_error(options, "it is not a JSON object");
    if (options.block_count > 0) (*config)["num_hidden_layers"] = options.block_count;
    if (config->contains("layer_types") && (*config)["layer_types"].is_array()) {
        json& types = (*config)["layer_types"];
        if (options.block_count > static_cast<int64_t>(types.size())) {
            return config_error(options, fmt::format("it has layer_types for {} blocks, not {}",
                                                     types.size(), options.block_count));
        }
        if (options.block_count > 0) {
            types.erase(types.begin() + static_cast<std::ptrdiff_t>(options.block_count),
                        types.end());
        }
    }
    config->erase("dtype");
    (*config)["torch_dtype"] = "bfloat16";
    (*config)["bos_token_id"] = 256;
    (*config)["eos_token_id"] = 257;
    return config;
}

Status check_room(const RandomCheckpointOptions& options, uint64_t needed_bytes) {
    std::error_code failure;
    const fs::path above = nearest_existing(options.target_folder, failure);
    const fs::space_info space = fs::space(above, failure);
    if (failure || space.available >= needed_bytes) return {};
    return Error{ErrorCode::does_not_fit,
                 fmt::format("the model of {} takes {} in '{}', and {} are free there",
                             options.source, offload::format_bytes(needed_bytes),
                             options.target_folder, offload::format_bytes(space.available)),
                 "free space, name another folder, or write fewer blocks with --layers"};
}

Status write_text(const fs::path& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (file) return {};
    return Error{ErrorCode::failed, fmt::format("cannot write '{}'", path.string()), ""};
}

// What stands beside the weights, in a folder for the writer to copy from.
Status write_companions(const fs::path& folder, const json& config, int64_t vocabulary_size) {
    const json tokenizer_config = {
        {"tokenizer_class", "PreTrainedTokenizerFast"},
        {"bos_token", "<|begin|>"},
        {"eos_token", "<|end|>"},
        {"chat_template",
         "{% for m in messages %}{{ '<|begin|>' + m['role'] + '\n' + m['content'] + '<|end|>' }}"
         "{% endfor %}{% if add_generation_prompt %}{{ '<|begin|>assistant\n' }}{% endif %}"}};
    if (Status status = write_text(folder / "config.json", config.dump(1) + "\n"); !status) {
        return status;
    }
    if (vocabulary_size < byte_tokenizer_size) return {};
    Status status = write_text(folder / "tokenizer.json", byte_tokenizer());
    if (!status) return status;
    return write_text(folder / "tokenizer_config.json", tokenizer_config.dump(1) + "\n");
}

// The folder with a recipe in the place of weights.
Status write_recipe(const RandomCheckpointOptions& options, const json& config,
                    const Shape& shape) {
    std::error_code absent;
    if (fs::exists(options.target_folder, absent) && !fs::is_empty(options.target_folder, absent)) {
        return Error{
            ErrorCode::usage,
            fmt::format("writing a recipe to '{}': there is something", options.target_folder),
            "name a folder that is not there yet"};
    }
    Result<StagingFolder> staging = StagingFolder::create(options.target_folder);
    if (!staging) return staging.error();
    const fs::path folder = staging->path();
    Status written = write_companions(folder, config, shape.config.vocabulary_size);
    if (written) written = write_text(folder / recipe_file, recipe_of(options.seed));
    return written ? staging->publish() : written;
}

Status write_tensor(const RandomCheckpointOptions& options, const offload::TensorSpec& tensor,
                    CheckpointWriter& writer, std::vector<uint16_t>& buffer) {
    const uint64_t element_count = element_count_of(tensor);
    for (uint64_t first = 0; first < element_count; first += piece_elements_max) {
        if (const int number = options.stop_signal ? options.stop_signal() : 0; number != 0) {
            return Error{ErrorCode::stopped,
                         fmt::format("writing {}: stopped by signal {}; nothing was changed",
                                     options.target_folder, number),
                         ""};
        }
        buffer.resize(std::min(piece_elements_max, element_count - first));
        made_up_elements(options.seed, tensor, first, buffer);
        Status status = writer.write(tensor.name, first, std::as_bytes(std::span(buffer)));
        if (!status) return status;
    }
    return {};
}

Status write_weights(const RandomCheckpointOptions& options,
                     const std::vector<offload::LayerSpec>& layers, CheckpointWriter& writer) {
    std::vector<uint16_t> buffer;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
        if (options.say && layer % 8 == 0) {
            options.say(fmt::format("{} of {} layers", layer, layers.size()));
        }
        for (const offload::TensorSpec& tensor : layers[layer].tensors) {
            if (Status status = write_tensor(options, tensor, writer, buffer); !status) {
                return status;
            }
        }
    }
    return writer.finish();
}

}  // namespace

void random_elements(uint64_t seed, std::string_view tensor, uint64_t first_element,
                     std::span<uint16_t> elements) {
    const uint64_t key = key_of(seed, tensor);
    const std::vector<uint16_t>& table = quantiles();
    // Four elements share the 64 bits of one hash.
    for (uint64_t i = 0; i < elements.size(); ++i) {
        const uint64_t element = first_element + i;
        const uint64_t bits = mixed(key + element / 4);
        elements[i] = table[(bits >> (16 * (element % 4))) & 0xffff];
    }
}

void made_up_elements(uint64_t seed, const offload::TensorSpec& tensor, uint64_t first_element,
                      std::span<uint16_t> elements) {
    if (is_norm(tensor)) {
        std::ranges::fill(elements, offload::float_to_bf16(1.0f));
    } else {
        random_elements(seed, tensor.name, first_element, elements);
    }
}

std::string byte_tokenizer() {
    json vocabulary = json::object();
    const auto utf8 = [](uint32_t code) {
        CHECK_LT(code, 0x800u);
        if (code < 0x80) return std::string(1, static_cast<char>(code));
        return std::string{static_cast<char>(0xc0 | (code >> 6)),
                           static_cast<char>(0x80 | (code & 0x3f))};
    };
    // As GPT-2 writes bytes: those that can be seen are themselves, the others follow from 256.
    uint32_t unseen_count = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        const bool is_seen = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
                             (byte >= 174 && byte <= 255);
        vocabulary[utf8(is_seen ? byte : 256 + unseen_count++)] = byte;
    }
    json added = json::array();
    for (const auto& [name, id] : {std::pair{"<|begin|>", 256}, std::pair{"<|end|>", 257}}) {
        vocabulary[name] = id;
        added.push_back({{"id", id},
                         {"content", name},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
    }
    CHECK_EQ(vocabulary.size(), size_t{byte_tokenizer_size});
    const json bytes = {{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", true}};
    const json tokenizer = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", added},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", bytes},
                            {"post_processor", nullptr},
                            {"decoder", bytes},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"vocab", vocabulary},
                              {"merges", json::array()}}}};
    return tokenizer.dump(1) + "\n";
}

Status write_random_checkpoint(const RandomCheckpointOptions& options) {
    CHECK_GE(options.block_count, 0);
    const Result<json> config = config_of(options);
    if (!config) return config.error();
    const Result<Shape> shape = parse_shape(config->dump(), options.source);
    if (!shape) return shape.error();
    if (shape->config.extras.output_norms) {
        return config_error(options, fmt::format("model_type {} names its tensors in a way that is "
                                                 "not written here; llama, mistral, qwen2 and "
                                                 "qwen3 are",
                                                 shape->model_type));
    }
    if (options.is_recipe) return write_recipe(options, *config, *shape);
    const uint64_t needed_bytes =
        bytes_of(offload::Dtype::bf16, parameter_count(shape->config)) + 16 * offload::mib;
    if (Status status = check_room(options, needed_bytes); !status) return status;
    // Beside the target, removed when this returns.
    const Result<StagingFolder> companions =
        StagingFolder::create(options.target_folder + ".companions");
    if (!companions) return companions.error();
    Status written = write_companions(companions->path(), *config, shape->config.vocabulary_size);
    if (!written) return written;
    const std::vector<offload::LayerSpec> layers = layers_of(shape->config);
    Result<CheckpointWriter> writer = CheckpointWriter::create({.folder = options.target_folder,
                                                                .source_folder = companions->path(),
                                                                .layers = layers,
                                                                .dtype = offload::Dtype::bf16});
    if (!writer) return writer.error();
    return write_weights(options, layers, *writer);
}

}  // namespace headrace::engine
