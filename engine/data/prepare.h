// From what people have (text, chats, prompts with completions) to what Dataset reads. Tokenising
// and chat templates belong to Python, where the model's own template runs as its authors meant it:
// this runs `scripts/prepare_data.py MODEL INPUT OUTPUT` as a child process and keeps the result.
//
// The result lies in cache_dir under a name made of the XXH3 of the input file, the tokenizer's
// files and the tool itself, so it is reused exactly as long as nothing that could change it has
// changed. It appears under its name only when complete. Blocks until the child is done.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "offload/result.h"

namespace headrace::engine {

// What a line of the file holds, told by the keys of its first line.
enum class DataKind : uint8_t { tokens, chat, prompt, text };
std::string_view name_of(DataKind kind);  // the keys: "input_ids", "messages", ...

// Error: bad_data where the file is empty, its first line no JSON object, or no key is known.
offload::Result<DataKind> detect_kind(const std::string& data_path);

struct PrepareOptions {
    std::string data_path;
    std::string model_dir;    // where the tokenizer is
    std::string cache_dir;    // made if missing, only when something is written to it
    std::string scripts_dir;  // where prepare_data.py is
    std::string python;       // the interpreter that has the tokenizers package
};

struct PreparedData {
    std::string path;  // a JSONL of input_ids; the input itself where it is one already
    DataKind kind = DataKind::tokens;
    bool from_cache = false;    // nothing had to be done now
    std::string messages = {};  // what the tool said, its last lines; may be empty
};

// Error: bad_data with the child's last lines where it failed, failed where it cannot be started.
offload::Result<PreparedData> prepare_data(const PrepareOptions& options);

}  // namespace headrace::engine
