// copy_model SOURCE TARGET DTYPE SHARD_BYTES: reads a model folder and exports it again, through
// the master in two halves where DTYPE is bf16. For the Python test beside this file, which opens
// what comes out. Exit code 0: done; 1: refused, with the reason on stderr.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/writer.h"
#include "engine/models/llama.h"
#include "offload/dtype.h"
#include "offload/units.h"

namespace headrace::engine {
namespace {

using offload::Dtype;
using offload::LayerSpec;
using offload::Result;
using offload::Status;
using offload::TensorSpec;

constexpr uint64_t config_bytes_max = 16 * offload::mib;
constexpr uint64_t piece_elements = 1000;  // odd pieces, so that tensors are cut anywhere

Status copy_tensor(const Checkpoint& source, CheckpointWriter& target, const TensorSpec& tensor,
                   Dtype dtype) {
    const uint64_t element_count = offload::element_count_of(tensor);
    for (uint64_t first = 0; first < element_count; first += piece_elements) {
        const uint64_t count = std::min(piece_elements, element_count - first);
        std::vector<std::byte> bytes(offload::bytes_of(dtype, count));
        std::vector<uint16_t> lo(dtype == Dtype::bf16 ? count : 0);
        Status status =
            source.read_elements(tensor.name, first, {.dtype = dtype, .weights = bytes, .lo = lo});
        if (status.ok()) status = target.write(tensor.name, first, bytes);
        if (!status.ok()) return status;
    }
    return {};
}

Status copy_model(const std::string& source, const std::string& target, Dtype dtype,
                  uint64_t shard_bytes_max) {
    const Result<std::string> text = read_text(source + "/config.json", config_bytes_max);
    if (!text.ok()) return text.error();
    const Result<LlamaConfig> config = parse_llama_config(*text, source + "/config.json");
    if (!config.ok()) return config.error();
    const Result<Checkpoint> checkpoint = Checkpoint::open(source);
    if (!checkpoint.ok()) return checkpoint.error();
    const std::vector<LayerSpec> layers = layers_of(*config);
    Status status = checkpoint->check_against(layers);
    if (!status.ok()) return status;
    Result<CheckpointWriter> writer =
        CheckpointWriter::create({.folder = target,
                                  .source_folder = source,
                                  .layers = layers,
                                  .dtype = dtype,
                                  .shard_bytes_max = shard_bytes_max});
    if (!writer.ok()) return writer.error();
    for (const LayerSpec& layer : layers) {
        for (const TensorSpec& tensor : layer.tensors) {
            status = copy_tensor(*checkpoint, *writer, tensor, dtype);
            if (!status.ok()) return status;
        }
    }
    return writer->finish();
}

}  // namespace
}  // namespace headrace::engine

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    const auto dtype = headrace::offload::parse_dtype(argv[3]);
    const auto shard_bytes = headrace::offload::parse_bytes(argv[4]);
    if (!dtype.ok() || !shard_bytes.ok()) return 2;
    const auto status = headrace::engine::copy_model(argv[1], argv[2], *dtype, *shard_bytes);
    if (!status.ok()) fmt::print(stderr, "{}\n", status.error().text());
    return status.ok() ? 0 : 1;
}
