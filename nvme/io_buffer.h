// IoBuffer: memory for the transfers of this folder's own tools (a rollback, a check, a move), on
// 2 MiB pages where the kernel has them. A resource; the memory goes with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::nvme {

class IoBuffer {
  public:
    explicit IoBuffer(uint64_t size_bytes);  // at least 1
    IoBuffer(const IoBuffer&) = delete;
    IoBuffer& operator=(const IoBuffer&) = delete;
    ~IoBuffer();

    std::span<std::byte> first(uint64_t size_bytes) const;  // at most its own size (CHECK)

  private:
    std::byte* bytes_ = nullptr;
    uint64_t size_bytes_ = 0;
};

}  // namespace headrace::nvme
