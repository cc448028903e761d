#include "engine/data/prepare.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "engine/data/child.h"
#include "offload/check.h"

namespace headrace::engine {

namespace fs = std::filesystem;
using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

// What the tool's result can depend on, beside the data and the tool itself.
constexpr std::array tokenizer_files = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "chat_template.jinja",
                                        "additional_chat_templates/tool_use.jinja",
                                        "config.json",
                                        "generation_config.json"};

// The tool's exit code for a fault of the data or the tokenizer; any other is a fault of the
// machine.
constexpr int tool_bad_data = 4;

// What a process that a signal ended leaves with, less the signal's number.
constexpr int signal_exit = 128;

constexpr size_t hash_chunk_bytes = 1024 * 1024;

Error cannot(ErrorCode code, std::string_view verb, const std::string& path, std::string cause) {
    return Error{code, fmt::format("cannot {} '{}'", verb, path), std::move(cause)};
}

// The first line that is not blank, or empty.
Result<std::string> first_line(const std::string& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        return cannot(ErrorCode::bad_data, "use the data", path,
                      "it is a folder; name a JSONL file in it");
    }
    if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
        return cannot(ErrorCode::bad_data, "use the data", path,
                      "it is a pipe or a device, and data is read more than once: write it to a "
                      "file first");
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) return cannot(ErrorCode::bad_data, "open the data file", path, std::strerror(errno));
    std::string line;
    while (std::getline(file, line)) {
        if (line.find_first_not_of(" \t\r") != std::string::npos) return line;
    }
    return std::string();
}

class Hash {
  public:
    Hash() : state_(XXH3_createState()) {
        CHECK(state_ != nullptr);
        CHECK_EQ(XXH3_64bits_reset(state_.get()), XXH_OK);
    }
    void add(const void* bytes, size_t size_bytes) {
        CHECK_EQ(XXH3_64bits_update(state_.get(), bytes, size_bytes), XXH_OK);
    }
    uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

  private:
    struct Free {
        void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
    };
    std::unique_ptr<XXH3_state_t, Free> state_;
};

// Adds the file's bytes and their number, so that two files never hash like one cut elsewhere.
Status add_file(Hash& hash, const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return cannot(ErrorCode::bad_data, "open", path, std::strerror(errno));
    std::vector<char> chunk(hash_chunk_bytes);
    uint64_t size_bytes = 0;
    while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) ||
           file.gcount() > 0) {
        hash.add(chunk.data(), file.gcount());
        size_bytes += file.gcount();
    }
    if (file.bad()) return cannot(ErrorCode::failed, "read", path, std::strerror(errno));
    hash.add(&size_bytes, sizeof size_bytes);
    return {};
}

Result<uint64_t> key_of(const PrepareOptions& options, const std::string& tool) {
    Hash hash;
    Status status = add_file(hash, options.data_path);
    if (status) status = add_file(hash, tool);
    for (const char* name : tokenizer_files) {
        const fs::path file = fs::path(options.model_dir) / name;
        if (status && fs::exists(file)) {
            hash.add(name, std::strlen(name));
            status = add_file(hash, file.string());
        }
    }
    if (!status) return status.error();
    return hash.value();
}

// Removes the unfinished file of a failed run; its absence is no fault.
void remove_quietly(const std::string& path) {
    std::error_code ignored;
    fs::remove(path, ignored);
}

// The tool's words, but for its counts of a file that is about to be renamed: who reads it counts.
std::string without_counts(const std::string& output, const std::string& file) {
    std::string kept;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(file + ": ")) kept += line + '\n';
    }
    return kept;
}

// Makes the folder; those that had to be made, outermost first.
std::vector<fs::path> make_folders(const fs::path& folder, std::error_code& failure) {
    std::vector<fs::path> missing;
    for (fs::path at = folder; !at.empty() && !fs::exists(at); at = at.parent_path()) {
        missing.insert(missing.begin(), at);
    }
    fs::create_directories(folder, failure);
    return missing;
}

Error refusal_of(const PrepareOptions& options, const ChildOutcome& child) {
    CHECK(child.exit_code != 0);
    const std::string what = fmt::format("cannot prepare '{}' with the tokenizer of '{}'",
                                         options.data_path, options.model_dir);
    if (child.exit_code > signal_exit) {
        const int number = child.exit_code - signal_exit;
        const bool was_asked = number == SIGINT || number == SIGTERM;  // not a kill for memory
        return Error{was_asked ? ErrorCode::stopped : ErrorCode::failed,
                     fmt::format("{}: stopped by signal {}", what, number), child.output};
    }
    if (child.exit_code == tool_bad_data) {
        return Error{ErrorCode::bad_data, fmt::format("{} (exit code {})", what, child.exit_code),
                     "\n" + child.output};
    }
    return Error{ErrorCode::failed,
                 fmt::format("{} (exit code {}); ./scripts/setup makes a Python that has what is "
                             "needed, HEADRACE_PYTHON names another",
                             what, child.exit_code),
                 "\n" + child.output};
}

Status run_tool(const PrepareOptions& options, const std::string& tool, const std::string& target,
                std::string* messages) {
    const std::string unfinished = fmt::format("{}.{}.tmp", target, ::getpid());
    const Result<ChildOutcome> child =
        run_child({options.python, tool, options.model_dir, options.data_path, unfinished});
    if (!child) {
        return wrap(child.error(),
                    "cannot prepare the data: no Python runs; ./scripts/setup installs "
                    "one, or HEADRACE_PYTHON names one");
    }
    if (child->exit_code != 0) {
        remove_quietly(unfinished);
        return refusal_of(options, *child);
    }
    *messages = without_counts(child->output, unfinished);
    std::error_code failure;
    fs::rename(unfinished, target, failure);
    if (failure) {
        remove_quietly(unfinished);
        return cannot(ErrorCode::failed, "keep the prepared data as", target, failure.message());
    }
    CHECK(fs::exists(target));
    return {};
}

}  // namespace

std::string_view name_of(DataKind kind) {
    switch (kind) {
        case DataKind::tokens: return "input_ids";
        case DataKind::chat: return "messages";
        case DataKind::prompt: return "prompt + completion";
        case DataKind::text: return "text";
    }
    CHECK(false);
}

Result<DataKind> detect_kind(const std::string& data_path) {
    const Result<std::string> line = first_line(data_path);
    if (!line) return line.error();
    if (line->empty()) {
        return Error{ErrorCode::bad_data, fmt::format("'{}' holds no sample", data_path),
                     "the file is empty"};
    }
    const nlohmann::json object = nlohmann::json::parse(*line, nullptr, false);
    if (!object.is_object()) {
        return Error{ErrorCode::bad_data,
                     fmt::format("'{}' is no JSONL: its first line is no JSON object", data_path),
                     "write one object per line, such as {\"text\": \"...\"}"};
    }
    if (object.contains("input_ids")) return DataKind::tokens;
    if (object.contains("messages")) return DataKind::chat;
    if (object.contains("prompt") && object.contains("completion")) return DataKind::prompt;
    if (object.contains("text")) return DataKind::text;
    std::vector<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.push_back(key);
    return Error{
        ErrorCode::bad_data,
        fmt::format("the samples of '{}' have none of the keys known: messages, prompt and "
                    "completion, text, or input_ids",
                    data_path),
        fmt::format("the first line has: {}", fmt::join(keys, ", "))};
}

Result<PreparedData> prepare_data(const PrepareOptions& options) {
    CHECK(!options.python.empty());
    CHECK(!options.cache_dir.empty());
    const Result<DataKind> kind = detect_kind(options.data_path);
    if (!kind) return kind.error();
    PreparedData prepared{.path = options.data_path, .kind = *kind};
    if (*kind == DataKind::tokens) return prepared;

    const std::string tool = (fs::path(options.scripts_dir) / "prepare_data.py").string();
    const Result<uint64_t> key = key_of(options, tool);
    if (!key) return key.error();
    const std::string stem = fs::path(options.data_path).stem().string();
    const fs::path target =
        fs::path(options.cache_dir) / fmt::format("{}-{:016x}.jsonl", stem, *key);
    prepared.path = target.string();
    prepared.from_cache = fs::exists(target);
    if (prepared.from_cache) return prepared;

    std::error_code failure;
    const std::vector<fs::path> made = make_folders(options.cache_dir, failure);
    if (failure)
        return cannot(ErrorCode::failed, "make the folder", options.cache_dir, failure.message());
    const Status status = run_tool(options, tool, prepared.path, &prepared.messages);
    if (status) return prepared;
    for (auto folder = made.rbegin(); folder != made.rend(); ++folder) {
        fs::remove(*folder, failure);  // only if it is empty
    }
    return status.error();
}

}  // namespace headrace::engine
