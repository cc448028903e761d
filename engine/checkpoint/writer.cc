#include "engine/checkpoint/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/staging.h"
#include "engine/checkpoint/weight_recipe.h"
#include "engine/models/json.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using nlohmann::json;
using nlohmann::ordered_json;
using offload::Dtype;
using offload::Error;
using offload::ErrorCode;
using offload::LayerSpec;
using offload::Result;
using offload::Status;
using offload::TensorSpec;

namespace {

namespace fs = std::filesystem;

constexpr uint64_t copy_bytes = offload::mib;
constexpr uint64_t config_bytes_max = 16 * offload::mib;
constexpr size_t shard_count_max = 99'999;  // five digits in a name
constexpr std::string_view config_file = "config.json";

// What transformers asks for, and the mark by which a later export knows that it may replace this.
const std::map<std::string, std::string>& export_metadata() {
    static const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                                {"producer", "headrace"}};
    return metadata;
}

// model.safetensors, its index, or model-00001-of-00002.safetensors.
bool is_export_weights(std::string_view name) {
    if (name == weights_file || name == index_file) return true;
    constexpr std::string_view pattern = "model-#####-of-#####.safetensors";
    return name.size() == pattern.size() &&
           std::equal(name.begin(), name.end(), pattern.begin(), [](char have, char want) {
               return want == '#' ? have >= '0' && have <= '9' : have == want;
           });
}

// Weights, indexes and recipes in any format, and what training leaves beside them.
bool is_weights(const std::string& name) {
    static const std::set<std::string> extensions = {
        ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".ot"};
    return extensions.contains(fs::path(name).extension()) || name.ends_with(".index.json") ||
           name == recipe_file;
}

// Links are followed: in a hub cache every file is one. Sub-folders hold weights in other formats
// and are left. Sorted.
Result<std::vector<std::string>> companions_of(const std::string& source_folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(source_folder, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename();
        if (name.starts_with('.') || is_weights(name)) continue;
        // A link to nothing stays in the list: copying it says what is wrong.
        std::error_code ignored;
        const fs::file_type type = entry->status(ignored).type();
        if (type == fs::file_type::regular || type == fs::file_type::not_found) {
            names.push_back(name);
        }
    }
    if (error) {
        return system_error(fmt::format("listing the model folder {}", source_folder),
                            error.value());
    }
    std::sort(names.begin(), names.end());
    if (!std::binary_search(names.begin(), names.end(), config_file)) {
        return Error{ErrorCode::bad_data,
                     fmt::format("exporting a model: its source folder {} has no {}", source_folder,
                                 config_file),
                     ""};
    }
    return names;
}

// Copies `name` as it is.
Status copy_file(const std::string& source_folder, const std::string& target_folder,
                 const std::string& name) {
    const Result<InputFile> source = InputFile::open(fs::path(source_folder) / name);
    if (!source.ok()) return source.error();
    const Result<OutputFile> target =
        OutputFile::create(fs::path(target_folder) / name, source->size_bytes());
    if (!target.ok()) return target.error();
    std::vector<std::byte> buffer(std::min(copy_bytes, source->size_bytes()));
    for (uint64_t offset = 0; offset < source->size_bytes(); offset += copy_bytes) {
        const std::span<std::byte> chunk =
            std::span(buffer).first(std::min(copy_bytes, source->size_bytes() - offset));
        Status status = source->read(offset, chunk);
        if (status.ok()) status = target->write(offset, chunk);
        if (!status.ok()) return status;
    }
    return target->sync();
}

Status write_text(const std::string& path, std::string_view text) {
    const Result<OutputFile> file = OutputFile::create(path, text.size());
    if (!file.ok()) return file.error();
    const Status status = file->write(0, std::as_bytes(std::span(text)));
    return status.ok() ? file->sync() : status;
}

// config.json as it is, unless it names another dtype than the weights now have: newer
// transformers load in the dtype that it names.
Result<std::string> config_for(const std::string& source_folder, Dtype dtype) {
    const std::string path = fs::path(source_folder) / config_file;
    const Result<std::string> text = read_text(path, config_bytes_max);
    if (!text.ok()) return text;
    const Result<json> strict = parse_json(*text, path);
    if (!strict.ok()) return strict.error();
    ordered_json config = ordered_json::parse(*text, nullptr, false);
    CHECK(!config.is_discarded());
    bool is_changed = false;
    for (const char* key : {"dtype", "torch_dtype"}) {
        if (!config.is_object() || !config.contains(key) || !config[key].is_string()) continue;
        const Result<Dtype> named = offload::parse_dtype(config[key].get<std::string>());
        if (named.ok() && *named == dtype) continue;
        config[key] = dtype == Dtype::fp32   ? "float32"
                      : dtype == Dtype::bf16 ? "bfloat16"
                                             : "float16";
        is_changed = true;
    }
    return is_changed ? config.dump(2) + "\n" : *text;
}

Error refuse_target(const std::string& folder, const std::string& fault) {
    return Error{ErrorCode::usage,
                 fmt::format("exporting to {}: {}; nothing was changed, choose another folder",
                             folder, fault),
                 ""};
}

bool is_our_weights(const fs::path& path) {
    if (path.extension() != ".safetensors") return false;
    const Result<SafetensorsFile> file = SafetensorsFile::open(path);
    return file.ok() && file->header().metadata == export_metadata();
}

// Absent, empty, or a folder that holds an earlier export and nothing else.
Status check_target(const std::string& folder, const std::vector<std::string>& companions) {
    std::error_code error;
    const fs::file_status facts = fs::symlink_status(folder, error);
    if (facts.type() == fs::file_type::not_found) return {};
    if (error) return system_error(fmt::format("looking at {}", folder), error.value());
    if (facts.type() == fs::file_type::symlink) return refuse_target(folder, "it is a link");
    if (facts.type() != fs::file_type::directory)
        return refuse_target(folder, "it is not a folder");
    bool is_empty = true;
    bool has_our_weights = false;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename();
        const bool is_file = entry->symlink_status(error).type() == fs::file_type::regular;
        const bool is_companion = std::binary_search(companions.begin(), companions.end(), name);
        if (!is_file || (!is_companion && !is_export_weights(name))) {
            return refuse_target(folder, fmt::format("it holds {}, which no export of this model "
                                                     "writes",
                                                     name));
        }
        is_empty = false;
        has_our_weights = has_our_weights || is_our_weights(entry->path());
    }
    if (error) return system_error(fmt::format("listing {}", folder), error.value());
    if (is_empty || has_our_weights) return {};
    return refuse_target(folder, "it is not empty and no earlier export of this program");
}

// Element ranges of one tensor that are written, merged where they touch.
class Coverage {
  public:
    // CHECKs that nothing of it was there.
    void add(uint64_t first, uint64_t count) {
        if (count == 0) return;
        auto next = ends_by_first_.lower_bound(first);
        CHECK_TEXT(next == ends_by_first_.end() || first + count <= next->first,
                   "elements are written twice");
        auto before = next == ends_by_first_.begin() ? ends_by_first_.end() : std::prev(next);
        CHECK_TEXT(before == ends_by_first_.end() || before->second <= first,
                   "elements are written twice");
        uint64_t end = first + count;
        if (next != ends_by_first_.end() && next->first == end) {
            end = next->second;
            ends_by_first_.erase(next);
        }
        if (before != ends_by_first_.end() && before->second == first) {
            before->second = end;
        } else {
            ends_by_first_.emplace(first, end);
        }
    }

    bool is_whole(uint64_t element_count) const {
        if (element_count == 0) return ends_by_first_.empty();
        return ends_by_first_.size() == 1 && ends_by_first_.begin()->first == 0 &&
               ends_by_first_.begin()->second == element_count;
    }

  private:
    std::map<uint64_t, uint64_t> ends_by_first_;
};

std::string index_text(const std::vector<ShardPlan>& shards, Dtype dtype) {
    CHECK_GT(shards.size(), 1u);
    json weight_map = json::object();
    uint64_t element_count = 0;
    for (const ShardPlan& shard : shards) {
        for (const TensorSpec& tensor : shard.tensors) {
            weight_map[tensor.name] = shard.file_name;
            element_count += offload::element_count_of(tensor);
        }
    }
    const json index = {{"metadata",
                         {{"total_parameters", element_count},
                          {"total_size", offload::bytes_of(dtype, element_count)}}},
                        {"weight_map", weight_map}};
    return index.dump(2) + "\n";
}

}  // namespace

struct CheckpointWriter::State {
    struct Tensor {
        size_t file = 0;
        StoredTensor place;
        Coverage written;
    };

    Options options;
    std::vector<std::string> companions;
    StagingFolder staging;
    std::vector<OutputFile> files;
    std::map<std::string, Tensor, std::less<>> tensors;

    // Takes the blocks of one file of weights and writes its header.
    Status add_shard(const ShardPlan& shard) {
        const SafetensorsLayout layout =
            lay_out_safetensors(shard.tensors, options.dtype, export_metadata());
        Result<OutputFile> file =
            OutputFile::create(fs::path(staging.path()) / shard.file_name, layout.file_size_bytes);
        if (!file.ok()) return file.error();
        for (const StoredTensor& place : layout.tensors) {
            const bool is_new = tensors.emplace(place.name, Tensor{files.size(), place, {}}).second;
            CHECK_TEXT(is_new, place.name + " is owned twice");
        }
        const Status status = file->write(0, std::as_bytes(std::span(layout.head)));
        if (!status.ok()) return status;
        files.push_back(std::move(*file));
        return {};
    }

    // Everything but the elements.
    Status begin() {
        const std::string config_path = fs::path(staging.path()) / config_file;
        const Result<std::string> config = config_for(options.source_folder, options.dtype);
        if (!config.ok()) return config.error();
        Status status = write_text(config_path, *config);
        for (const std::string& name : companions) {
            if (!status.ok()) return status;
            if (name == config_file) continue;
            status = copy_file(options.source_folder, staging.path(), name);
        }
        const std::vector<ShardPlan> shards =
            plan_shards(options.layers, options.dtype, options.shard_bytes_max);
        for (const ShardPlan& shard : shards) {
            if (!status.ok()) return status;
            status = add_shard(shard);
        }
        if (!status.ok() || shards.size() == 1) return status;
        return write_text(fs::path(staging.path()) / index_file, index_text(shards, options.dtype));
    }
};

Result<CheckpointWriter> CheckpointWriter::create(Options options) {
    CHECK(!options.folder.empty());
    CHECK(!options.source_folder.empty());
    CHECK_GT(options.shard_bytes_max, 0u);
    Result<std::vector<std::string>> companions = companions_of(options.source_folder);
    if (!companions.ok()) return companions.error();
    // "out/" and "out" are one target; a link must not hide behind the slash.
    while (options.folder.size() > 1 && options.folder.ends_with('/')) options.folder.pop_back();
    Status status = check_target(options.folder, *companions);
    if (!status.ok()) return status.error();
    Result<StagingFolder> staging = StagingFolder::create(options.folder);
    if (!staging.ok()) return staging.error();
    auto state = std::make_unique<State>(
        State{std::move(options), std::move(*companions), std::move(*staging), {}, {}});
    status = state->begin();
    if (!status.ok()) return wrap(status.error(), "exporting to " + state->options.folder);
    return CheckpointWriter(std::move(state));
}

CheckpointWriter::CheckpointWriter(std::unique_ptr<State> state) : state_(std::move(state)) {
    CHECK(state_ != nullptr);
    CHECK(!state_->files.empty());
}
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter& CheckpointWriter::operator=(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

Status CheckpointWriter::write(std::string_view tensor, uint64_t first_element,
                               std::span<const std::byte> elements) {
    CHECK(state_ != nullptr);
    const auto place = state_->tensors.find(tensor);
    CHECK_TEXT(place != state_->tensors.end(), std::string(tensor) + " is not in this export");
    State::Tensor& target = place->second;
    const uint64_t element_bytes = offload::element_bytes(state_->options.dtype);
    const uint64_t element_count = offload::div_exact(elements.size(), element_bytes);
    CHECK_LE(first_element, target.place.element_count);
    CHECK_LE(element_count, target.place.element_count - first_element);
    target.written.add(first_element, element_count);
    return state_->files[target.file].write(
        target.place.offset_bytes + first_element * element_bytes, elements);
}

Status CheckpointWriter::finish() {
    CHECK(state_ != nullptr);
    for (const auto& [name, tensor] : state_->tensors) {
        CHECK_TEXT(tensor.written.is_whole(tensor.place.element_count),
                   name + " was not written whole");
    }
    const std::unique_ptr<State> state = std::move(state_);  // on an error it cleans up
    for (const OutputFile& file : state->files) {
        const Status status = file.sync();
        if (!status.ok()) return status;
    }
    // Again: the folder may have been filled meanwhile.
    const Status status = check_target(state->options.folder, state->companions);
    return status.ok() ? state->staging.publish() : status;
}

std::vector<ShardPlan> plan_shards(std::span<const LayerSpec> layers, Dtype dtype,
                                   uint64_t shard_bytes_max) {
    CHECK(!layers.empty());
    std::vector<ShardPlan> shards;
    uint64_t shard_bytes = 0;
    for (const LayerSpec& layer : layers) {
        for (const TensorSpec& tensor : layer.tensors) {
            const uint64_t size_bytes = offload::bytes_of(dtype, offload::element_count_of(tensor));
            const bool is_full = shard_bytes > 0 && shard_bytes + size_bytes > shard_bytes_max;
            if (shards.empty() || is_full) {
                shards.emplace_back();
                shard_bytes = 0;
            }
            shards.back().tensors.push_back(tensor);
            shard_bytes += size_bytes;
        }
    }
    CHECK(!shards.empty());
    CHECK_LE(shards.size(), shard_count_max);
    for (size_t i = 0; i < shards.size(); ++i) {
        shards[i].file_name = shards.size() == 1 ? std::string(weights_file)
                                                 : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                               i + 1, shards.size());
    }
    return shards;
}

}  // namespace headrace::engine
