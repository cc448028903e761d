#include "nvme/calls.h"

#include <optional>
#include <utility>

#include "offload/check.h"

namespace headrace::nvme {

namespace {

offload::Status serve_block(Block block, const DirectFile& file) {
    CHECK(!block.memory.empty());
    const uint64_t offset_bytes = block.offset_bytes;
    const uint64_t size_bytes = block.memory.size();
    while (true) {
        const int64_t result = execute(file.operations(), {.direction = block.direction,
                                                           .descriptor = file.descriptor(),
                                                           .offset_bytes = block.offset_bytes,
                                                           .memory = block.memory});
        const offload::Result<Progress> progress = advance(block, result, file.path());
        if (!progress) return progress.error();
        if (*progress == Progress::finished) break;
        pause_before_retry(block);
    }
    return file.drop_cache(block.direction, offset_bytes, size_bytes);
}

}  // namespace

void serve_with_calls(BlockQueue& queue, const DirectFile& file) {
    while (const std::optional<Block> block = queue.wait_and_take()) {
        CHECK(block->transfer != nullptr);
        queue.finish(*block, block->memory.size(), serve_block(*block, file));
    }
    CHECK(queue.is_closed());
}

}  // namespace headrace::nvme
