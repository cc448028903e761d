#include "nvme/block.h"

#include <fmt/core.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "nvme/io_error.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::Error;
using offload::ErrorCode;

namespace {

std::string attempt_of(const Block& block, const std::string& path) {
    const bool is_read = block.direction == offload::Direction::read;
    return fmt::format("cannot {} {} bytes at offset {} of {}", is_read ? "read" : "write",
                       block.memory.size(), block.offset_bytes, path);
}

}  // namespace

offload::Result<Progress> advance(Block& block, int64_t result, const std::string& path) {
    CHECK(!block.memory.empty());
    CHECK_LE(result, static_cast<int64_t>(block.memory.size()));
    const bool is_transient = result == -EINTR || result == -EAGAIN;
    if (result < 0 && !is_transient) {
        return io_error(attempt_of(block, path), path, static_cast<int>(-result));
    }
    if (result == 0) {
        return Error{ErrorCode::failed, attempt_of(block, path),
                     "0 bytes were moved: the file ends there; something cut it, or its file "
                     "system is damaged"};
    }
    const uint64_t moved_bytes =
        result > 0 ? static_cast<uint64_t>(result) / offload::page_bytes * offload::page_bytes : 0;
    if (moved_bytes == 0) {
        if (block.retry_count == retries_in_a_row_max) {
            const std::string last = result < 0 ? describe_errno(static_cast<int>(-result))
                                                : fmt::format("{} bytes", result);
            return Error{ErrorCode::failed, attempt_of(block, path),
                         fmt::format("no progress in {} tries, the last one gave {}",
                                     retries_in_a_row_max + 1, last)};
        }
        block.retry_count++;
        return Progress::again;
    }
    block.retry_count = 0;
    block.offset_bytes += moved_bytes;
    block.memory = block.memory.subspan(moved_bytes);
    return block.memory.empty() ? Progress::finished : Progress::again;
}

void pause_before_retry(const Block& block) {
    CHECK_LE(block.retry_count, retries_in_a_row_max);
    if (block.retry_count < 8) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace headrace::nvme
