// CheckpointWriter: streams an export, the model folder that people and transformers open: weights
// in safetensors (one file, or shards with an index), and everything else of the source folder
// (config.json, tokenizer, chat template, generation config, licence) as it was.
//
// All is written into a folder of another name beside the target, made durable, and then renamed,
// so that the target is whole or absent at every moment; a writer that goes without finish() leaves
// nothing behind. (What a kill left is removed by the next writer of that target.) The blocks of
// all files are taken at the start, so a full drive is told before the first byte is streamed.
//
// A tied weight is one tensor of one layer, so it is written once; config.json keeps its tie flag.
// Only the dtype that config.json names is changed, and only if the export has another one.
// Memory: the caller's span, nothing more. Move-only; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/file.h"
#include "engine/checkpoint/safetensors.h"
#include "offload/dtype.h"
#include "offload/part.h"
#include "offload/result.h"

namespace headrace::engine {

class CheckpointWriter {
  public:
    struct Options {
        std::string folder;         // the target: absent, empty, or an earlier export, replaced
        std::string source_folder;  // where everything but the weights is copied from
        std::vector<offload::LayerSpec> layers;
        offload::Dtype dtype = offload::Dtype::bf16;  // of all tensors
        // A shard takes tensors in model order until the next one would pass this many bytes; a
        // tensor that is larger has a shard of its own. The default is that of transformers 4.
        uint64_t shard_bytes_max = 5'000'000'000;
    };
    // Error (failed): not writable, the drive is full; (usage): the target is a link, a file, or a
    // folder with files that no export writes (the first is named); (bad_data): no config.json in
    // the source folder.
    static offload::Result<CheckpointWriter> create(Options options);

    CheckpointWriter(CheckpointWriter&&) noexcept;
    CheckpointWriter& operator=(CheckpointWriter&&) noexcept;
    ~CheckpointWriter();  // without finish(): removes what was written

    // Elements of one tensor in the export's dtype, in any order and any pieces; CHECKs that the
    // tensor exists and no element is written twice.
    offload::Status write(std::string_view tensor, uint64_t first_element,
                          std::span<const std::byte> elements);

    // CHECKs that every element was written; makes all durable and puts the folder in its place.
    // Blocks. Afterwards the writer can only go. On an error the target is as it was before.
    offload::Status finish();

  private:
    struct State;
    explicit CheckpointWriter(std::unique_ptr<State> state);

    std::unique_ptr<State> state_;
};

// The files that an export of these tensors has, in model order, with the tensors of each.
struct ShardPlan {
    std::string file_name;
    std::vector<offload::TensorSpec> tensors;
};
std::vector<ShardPlan> plan_shards(std::span<const offload::LayerSpec> layers, offload::Dtype dtype,
                                   uint64_t shard_bytes_max);

}  // namespace headrace::engine
