// One safetensors file, read strictly, and the header of one that is to be written.
//
//   offset 0      u64, little-endian: header_bytes, at most 100,000,000
//   offset 8      header_bytes of JSON, beginning with '{', may end in spaces:
//                 {"__metadata__": {"format": "pt"},
//                  "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
//   then          the data, row-major, little-endian; data_offsets [begin, end) count from here
//
// A file is valid only if the tensors, sorted by offset, lie side by side from 0 with no hole and
// no overlap; each has the size of its shape and dtype; the last one ends where the file ends; and
// no name stands twice. Each is checked, and the offender named. Empty tensors (a side of 0) and
// scalars (no side) are valid.
//
// Files written here pad the header with spaces so that the data begins on a 4096-byte boundary,
// and order it by alignment, so that every big matrix can be read with O_DIRECT.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/file.h"
#include "engine/checkpoint/tensor_source.h"
#include "offload/dtype.h"
#include "offload/part.h"
#include "offload/result.h"

namespace headrace::engine {

struct SafetensorsHeader {
    std::map<std::string, std::string> metadata;
    std::vector<StoredTensor> tensors;  // by offset
    bool operator==(const SafetensorsHeader&) const = default;
};

// Checks the JSON of a header against the size of its file. `source` names the file in errors.
// Error (bad_data): any rule above, naming tensor and numbers.
offload::Result<SafetensorsHeader> parse_safetensors_header(std::string_view header,
                                                            uint64_t file_size_bytes,
                                                            const std::string& source);

// Move-only. Holds the header and an open file, never data. Reads may come from any threads.
class SafetensorsFile final : public TensorSource {
  public:
    static offload::Result<SafetensorsFile> open(const std::string& path);

    const SafetensorsHeader& header() const { return header_; }
    const std::vector<StoredTensor>& tensors() const override { return header_.tensors; }
    const std::string& path() const override { return file_.path(); }
    const StoredTensor* find(std::string_view name) const;

    offload::Status read(const StoredTensor& tensor, uint64_t offset_bytes,
                         std::span<std::byte> target) const override;

  private:
    SafetensorsFile(InputFile file, SafetensorsHeader header);

    InputFile file_;
    SafetensorsHeader header_;
    std::map<std::string, size_t, std::less<>> by_name_;
};

// The first bytes of a file that will hold these tensors in `dtype`: length, JSON, padding.
struct SafetensorsLayout {
    std::string head;                   // a multiple of 4096 bytes
    std::vector<StoredTensor> tensors;  // in the order of `tensors`, offsets in the file
    uint64_t file_size_bytes = 0;
};
SafetensorsLayout lay_out_safetensors(std::span<const offload::TensorSpec> tensors,
                                      offload::Dtype dtype,
                                      const std::map<std::string, std::string>& metadata);

}  // namespace headrace::engine
