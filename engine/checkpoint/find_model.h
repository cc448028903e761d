// Where a model is: what people type ("models/smollm2", a folder of the Hugging Face hub cache, or
// "org/name") becomes the folder that holds its config.json. Nothing is ever downloaded.
//
// The hub cache keeps   models--org--name/refs/main               the text of a revision
//                       models--org--name/snapshots/REVISION/...  links into ../../blobs
#pragma once

#include <functional>
#include <string>

#include "offload/result.h"

namespace headrace::engine {

// The folder of the local hub cache and the setting that chose it, for error texts.
struct HubCache {
    std::string folder;  // empty: none of the settings is there, not even HOME
    std::string chosen_by;
};

// The value of an environment variable, or null: std::getenv, called by whoever owns the process.
using ReadVariable = std::function<const char*(const char* name)>;

// First match: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
// HOME/.cache/huggingface/hub, as huggingface_hub has it.
HubCache hub_cache_from(const ReadVariable& read_variable);

// Error (bad_data): no such model, naming every place that was looked at; a cache entry without the
// revision or with half a download; a folder without config.json, with what it holds instead.
offload::Result<std::string> find_model(const std::string& text, const HubCache& cache);

}  // namespace headrace::engine
