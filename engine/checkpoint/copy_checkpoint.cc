#include "engine/checkpoint/copy_checkpoint.h"

#include <algorithm>
#include <string>

#include "engine/checkpoint/writer.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Status;

namespace {

constexpr uint64_t piece_elements_max = offload::mib;

Status copy_tensor(const Checkpoint& source, CheckpointWriter& writer,
                   const offload::TensorSpec& tensor, offload::Dtype dtype,
                   std::vector<std::byte>& buffer) {
    const uint64_t element_count = element_count_of(tensor);
    for (uint64_t first = 0; first < element_count; first += piece_elements_max) {
        const uint64_t piece_elements = std::min(piece_elements_max, element_count - first);
        buffer.resize(bytes_of(dtype, piece_elements));
        Status status =
            source.read_elements(tensor.name, first, {.dtype = dtype, .weights = buffer, .lo = {}});
        if (status) status = writer.write(tensor.name, first, buffer);
        if (!status) return status;
    }
    return {};
}

}  // namespace

Status copy_checkpoint(const Checkpoint& source, CopyOptions options) {
    if (Status status = source.check_against(options.layers); !status) return status;
    auto writer = CheckpointWriter::create({.folder = options.target_folder,
                                            .source_folder = source.folder(),
                                            .layers = options.layers,
                                            .dtype = options.dtype});
    if (!writer) return writer.error();
    std::vector<std::byte> buffer;
    for (const offload::LayerSpec& layer : options.layers) {
        for (const offload::TensorSpec& tensor : layer.tensors) {
            if (const int number = options.stop_signal ? options.stop_signal() : 0; number != 0) {
                return offload::Error{offload::ErrorCode::stopped,
                                      "exporting to " + options.target_folder +
                                          ": stopped by signal " + std::to_string(number) +
                                          "; nothing was changed",
                                      ""};
            }
            const Status status = copy_tensor(source, *writer, tensor, options.dtype, buffer);
            if (!status) return status;
        }
    }
    return writer->finish();
}

}  // namespace headrace::engine
