// Copies the weights of one model folder into another, as an export: shards, index and everything
// else of the source folder, through a buffer of a few MiB.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "offload/dtype.h"
#include "offload/part.h"

namespace headrace::engine {

struct CopyOptions {
    std::string target_folder;
    std::vector<offload::LayerSpec> layers;
    offload::Dtype dtype = offload::Dtype::bf16;  // of the copy
    // The number of the signal that asks to stop, or 0; asked before each tensor. May be empty.
    std::function<int()> stop_signal = {};
};

// Error: what Checkpoint and CheckpointWriter refuse; stopped. The target is whole or as it was.
offload::Status copy_checkpoint(const Checkpoint& source, CopyOptions options);

}  // namespace headrace::engine
