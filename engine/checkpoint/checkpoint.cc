#include "engine/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/weight_recipe.h"
#include "engine/models/json.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using nlohmann::json;
using offload::Dtype;
using offload::Error;
using offload::ErrorCode;
using offload::LayerSpec;
using offload::Result;
using offload::Status;
using offload::TensorSpec;

namespace {

namespace fs = std::filesystem;

constexpr uint64_t chunk_bytes_max = 4 * offload::mib;
constexpr uint64_t index_bytes_max = 100 * offload::mib;
constexpr size_t shard_count_max = 1000;  // each stays open, and 1024 is a usual limit of files
constexpr size_t names_shown_max = 8;

// Also true for a link whose target is missing: then opening it says so.
bool has_entry(const fs::path& path) {
    std::error_code error;
    return fs::symlink_status(path, error).type() != fs::file_type::not_found && !error;
}

Error bad_folder(const std::string& folder, const std::string& fault) {
    CHECK(!fault.empty());
    return Error{ErrorCode::bad_data, fmt::format("reading the model in {}: {}", folder, fault),
                 ""};
}

// "a, b, c and 12 more"
std::string listed(const std::vector<std::string>& names) {
    CHECK(!names.empty());
    const size_t shown_count = std::min(names.size(), names_shown_max);
    std::string text =
        fmt::format("{}", fmt::join(names.begin(), names.begin() + shown_count, ", "));
    if (names.size() > shown_count) {
        text += fmt::format(" and {} more", names.size() - shown_count);
    }
    return text;
}

// The names that are files of this folder and nothing else can be one.
bool is_plain_file_name(const std::string& name) {
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

// Reads {"weight_map": {tensor: file}}.
Result<std::map<std::string, std::string>> read_weight_map(const std::string& folder) {
    const std::string path = fs::path(folder) / index_file;
    const Result<std::string> text = read_text(path, index_bytes_max);
    if (!text.ok()) return text.error();
    const Result<json> index = parse_json(*text, path);
    if (!index.ok()) return index.error();
    if (!index->is_object() || !index->contains("weight_map") ||
        !(*index)["weight_map"].is_object()) {
        return Error{ErrorCode::bad_data,
                     fmt::format("reading {}: it has no weight_map, so it is no index of shards; "
                                 "download it again",
                                 path),
                     ""};
    }
    std::map<std::string, std::string> weight_map;
    for (const auto& [tensor, file] : (*index)["weight_map"].items()) {
        if (!file.is_string() || !is_plain_file_name(file.get<std::string>())) {
            return Error{ErrorCode::bad_data,
                         fmt::format("reading {}: weight_map places {} in {}, but only names of "
                                     "files beside the index are allowed, without path separators",
                                     path, shown(json(tensor)), shown(file)),
                         ""};
        }
        weight_map[tensor] = file.get<std::string>();
    }
    return weight_map;
}

bool is_ignored(std::string_view name, bool is_tied) {
    return name.ends_with("rotary_emb.inv_freq") || (is_tied && name == "lm_head.weight");
}

bool is_tied(std::span<const LayerSpec> layers) {
    return std::any_of(layers.begin(), layers.end(),
                       [](const LayerSpec& layer) { return !layer.borrowed_layers.empty(); });
}

// Empty if the stored tensor can serve as the model's.
std::string mismatch(const TensorSpec& wanted, const StoredTensor& stored) {
    if (wanted.shape != stored.shape) {
        return fmt::format("{} has shape [{}], the config asks for [{}]", wanted.name,
                           fmt::join(stored.shape, ", "), fmt::join(wanted.shape, ", "));
    }
    if (!stored.dtype) {
        return fmt::format("{} has dtype {}, and only F32, BF16 and F16 can be read", wanted.name,
                           stored.dtype_name);
    }
    CHECK_EQ(stored.element_count, offload::element_count_of(wanted));
    return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
    CHECK(!folder.empty());
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
        return bad_folder(folder, error ? error.message() : "it is not a folder");
    }
    Checkpoint checkpoint(folder);
    // As transformers does: the single file wins over an index beside it.
    Status status;
    if (has_entry(fs::path(folder) / weights_file)) {
        status = checkpoint.add_file(std::string(weights_file));
    } else if (has_entry(fs::path(folder) / index_file)) {
        status = checkpoint.add_shards();
    } else if (has_entry(fs::path(folder) / recipe_file)) {
        auto recipe = open_recipe(folder);
        if (!recipe) return recipe.error();
        status = checkpoint.add_source(std::move(*recipe));
    } else {
        return explain_missing_weights(folder);
    }
    if (!status.ok()) return status.error();
    if (checkpoint.places_.empty()) return bad_folder(folder, "its weights hold no tensor");
    return checkpoint;
}

Status Checkpoint::add_file(const std::string& file_name) {
    CHECK(is_plain_file_name(file_name));
    const fs::path path = fs::path(folder_) / file_name;
    if (!has_entry(path)) {
        return bad_folder(folder_,
                          fmt::format("the shard {} is missing; download it again", file_name));
    }
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file.ok()) return file.error();
    return add_source(std::make_unique<SafetensorsFile>(std::move(*file)));
}

Status Checkpoint::add_source(std::unique_ptr<TensorSource> source) {
    const std::vector<StoredTensor>& tensors = source->tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
        const auto [place, is_new] = places_.emplace(tensors[i].name, Place{sources_.size(), i});
        if (!is_new) {
            return bad_folder(
                folder_, fmt::format("{} is in two shards, {} and {}; remove the one that does not "
                                     "belong to the model",
                                     tensors[i].name, sources_[place->second.source]->path(),
                                     fs::path(source->path()).filename().string()));
        }
    }
    sources_.push_back(std::move(source));
    return {};
}

Status Checkpoint::add_shards() {
    const auto weight_map = read_weight_map(folder_);
    if (!weight_map.ok()) return weight_map.error();
    std::set<std::string> file_names;
    for (const auto& [tensor, file_name] : *weight_map) file_names.insert(file_name);
    if (file_names.size() > shard_count_max) {
        return bad_folder(folder_, fmt::format("its index names {} shards, and at most {} can be "
                                               "open at once; save it in larger shards",
                                               file_names.size(), shard_count_max));
    }
    for (const std::string& file_name : file_names) {
        const Status status = add_file(file_name);
        if (!status.ok()) return status;
    }
    for (const auto& [tensor, file_name] : *weight_map) {
        const auto place = places_.find(tensor);
        const std::string path = fs::path(folder_) / file_name;
        if (place == places_.end() || sources_[place->second.source]->path() != path) {
            return bad_folder(folder_, fmt::format("{} places {} in {}, which does not hold it; "
                                                   "index and shards are of two different models, "
                                                   "download both again",
                                                   index_file, tensor, file_name));
        }
    }
    return {};
}

Status Checkpoint::check_against(std::span<const LayerSpec> layers) const {
    CHECK(!layers.empty());
    std::vector<std::string> missing;
    std::vector<std::string> misfits;
    std::vector<std::string> unexpected;
    std::set<std::string_view> wanted_names;
    for (const LayerSpec& layer : layers) {
        for (const TensorSpec& wanted : layer.tensors) {
            const bool is_new = wanted_names.insert(wanted.name).second;
            CHECK_TEXT(is_new, wanted.name + " is owned twice");
            const StoredTensor* stored = find(wanted.name);
            if (stored == nullptr) {
                missing.push_back(wanted.name);
            } else if (std::string text = mismatch(wanted, *stored); !text.empty()) {
                misfits.push_back(std::move(text));
            }
        }
    }
    for (const auto& [name, place] : places_) {
        const bool is_known = wanted_names.contains(name) || is_ignored(name, is_tied(layers));
        if (!is_known) unexpected.push_back(name);
    }
    std::string faults;
    auto add = [&](const char* title, const std::vector<std::string>& names) {
        if (names.empty()) return;
        faults += fmt::format("{}{} ({}): {}", faults.empty() ? "" : "; ", title, names.size(),
                              listed(names));
    };
    add("missing tensors", missing);
    add("tensors that do not fit", misfits);
    add("tensors that the model does not have", unexpected);
    if (faults.empty()) return {};
    const bool lacks_head =
        std::find(missing.begin(), missing.end(), "lm_head.weight") != missing.end();
    if (lacks_head) faults += "; config.json says that the head is not tied (tie_word_embeddings)";
    return bad_folder(folder_, faults + "; config.json and weights must be of the same model");
}

const StoredTensor* Checkpoint::find(std::string_view tensor) const {
    const auto place = places_.find(tensor);
    if (place == places_.end()) return nullptr;
    CHECK_LT(place->second.source, sources_.size());
    return &sources_[place->second.source]->tensors()[place->second.tensor];
}

std::vector<std::string> Checkpoint::names() const {
    std::vector<std::string> names;
    for (const auto& [name, place] : places_) names.push_back(name);
    return names;
}

Status Checkpoint::read_elements(std::string_view tensor, uint64_t first_element,
                                 const ElementTarget& target) const {
    const StoredTensor* stored = find(tensor);
    CHECK_TEXT(stored != nullptr, std::string(tensor) + " is not in the checkpoint");
    CHECK_LE(first_element, stored->element_count);
    CHECK_LE(target.element_count(), stored->element_count - first_element);
    const TensorSource& file = *sources_[places_.find(tensor)->second.source];
    if (!stored->dtype) {
        return Error{
            ErrorCode::bad_data,
            fmt::format("reading {} of {}: its dtype is {}, and only F32, BF16 and F16 can "
                        "be read; save the model in one of them",
                        tensor, file.path(), stored->dtype_name),
            ""};
    }
    const Dtype source = *stored->dtype;
    const bool in_place = source == target.dtype;  // no buffer: read to where it is wanted
    const uint64_t chunk_elements = chunk_bytes_max / offload::element_bytes(source);
    std::vector<std::byte> buffer(
        in_place ? 0 : offload::bytes_of(source, std::min(chunk_elements, target.element_count())));
    uint64_t done_elements = 0;
    while (done_elements < target.element_count()) {
        const uint64_t count = std::min(chunk_elements, target.element_count() - done_elements);
        const ElementTarget piece = target.piece(done_elements, count);
        const std::span<std::byte> bytes =
            in_place ? piece.weights : std::span(buffer).first(offload::bytes_of(source, count));
        const Status status =
            file.read(*stored, offload::bytes_of(source, first_element + done_elements), bytes);
        if (!status.ok()) return status;
        convert_elements(source, bytes, piece);
        done_elements += count;
    }
    CHECK_EQ(done_elements, target.element_count());
    return {};
}

Error explain_missing_weights(const std::string& folder) {
    CHECK(!folder.empty());
    std::map<std::string, std::string> first_by_extension;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename();
        first_by_extension.emplace(entry->path().extension(), name);
    }
    const auto first = [&](const char* extension) -> const std::string* {
        const auto place = first_by_extension.find(extension);
        return place == first_by_extension.end() ? nullptr : &place->second;
    };
    const std::string expected =
        fmt::format("there is neither {} nor {}", weights_file, index_file);
    if (error) return bad_folder(folder, error.message());
    if (const std::string* name = first(".safetensors"); name != nullptr) {
        const bool is_adapter = name->starts_with("adapter");
        return bad_folder(
            folder,
            fmt::format("{}, only {}; {}", expected, *name,
                        is_adapter ? "an adapter: merge it into its model first (peft: "
                                     "merge_and_unload, then save_pretrained)"
                                   : "download the whole folder, with the index of its shards"));
    }
    if (const std::string* name = first(".gguf"); name != nullptr) {
        return bad_folder(
            folder,
            fmt::format("{}, only {}; convert it with transformers: "
                        "AutoModelForCausalLM.from_pretrained('{}', gguf_file='{}', "
                        "quantization_config=GgufConfig(dequantize=True)).save_pretrained('OUT'), "
                        "and the same for AutoTokenizer",
                        expected, *name, folder, *name));
    }
    for (const char* extension : {".bin", ".pt", ".pth"}) {
        const std::string* name = first(extension);
        if (name == nullptr) continue;
        const bool is_meta = name->starts_with("consolidated");
        return bad_folder(
            folder, is_meta ? fmt::format("{}, only {}; convert it with python -m transformers."
                                          "models.llama.convert_llama_weights_to_hf",
                                          expected, *name)
                            : fmt::format("{}, only {}; convert it with transformers: "
                                          "AutoModelForCausalLM.from_pretrained('{}')."
                                          "save_pretrained('OUT'), and the same for AutoTokenizer",
                                          expected, *name, folder));
    }
    return bad_folder(folder, expected + "; is the download complete?");
}

}  // namespace headrace::engine
