// What tensors are read from: a file of weights, or a recipe that makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "offload/dtype.h"
#include "offload/result.h"

namespace headrace::engine {

struct StoredTensor {
    std::string name;
    std::string dtype_name;               // as in the file: "BF16"
    std::optional<offload::Dtype> dtype;  // empty: valid, but not readable here (integers, fp8 ...)
    std::vector<int64_t> shape;
    uint64_t element_count = 0;
    uint64_t offset_bytes = 0;  // in the file
    uint64_t size_bytes = 0;
    bool operator==(const StoredTensor&) const = default;
};

class TensorSource {
  public:
    virtual ~TensorSource() = default;

    virtual const std::vector<StoredTensor>& tensors() const = 0;
    virtual const std::string& path() const = 0;  // of what was opened, for errors
    // Fills `target` from offset_bytes of the tensor's bytes, both whole elements. CHECKs the
    // range. Any threads at once.
    virtual offload::Status read(const StoredTensor& tensor, uint64_t offset_bytes,
                                 std::span<std::byte> target) const = 0;
};

}  // namespace headrace::engine
