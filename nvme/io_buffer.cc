#include "nvme/io_buffer.h"

#include <sys/mman.h>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

IoBuffer::IoBuffer(uint64_t size_bytes)
    : size_bytes_(offload::align_up(size_bytes, 2 * offload::mib)) {
    CHECK_GT(size_bytes, 0u);
    void* mapped =
        mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_TEXT(mapped != MAP_FAILED, "no memory for an I/O buffer");
    bytes_ = static_cast<std::byte*>(mapped);
    static_cast<void>(madvise(mapped, size_bytes_, MADV_HUGEPAGE));
}

IoBuffer::~IoBuffer() {
    munmap(bytes_, size_bytes_);
}

std::span<std::byte> IoBuffer::first(uint64_t size_bytes) const {
    CHECK_LE(size_bytes, size_bytes_);
    return {bytes_, size_bytes};
}

}  // namespace headrace::nvme
