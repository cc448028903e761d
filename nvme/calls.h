// The thread engine: pread and pwrite, for machines where io_uring is forbidden. Each thread of a
// drive runs serve_with_calls and holds one block at a time, so the number of threads is the depth.
// With 4 to 8 threads it reaches 0.9 of the ring and more, at two to three times its CPU time.
#pragma once

#include "nvme/block_queue.h"
#include "nvme/direct_file.h"

namespace headrace::nvme {

// Takes blocks until the queue is closed and empty. Blocks.
void serve_with_calls(BlockQueue& queue, const DirectFile& file);

}  // namespace headrace::nvme
