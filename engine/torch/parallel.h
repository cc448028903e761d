// Loops over torch's threads (at::parallel_for, which is serial in a file compiled without OpenMP;
// parallel.cc is the one file compiled with it). Work is cut into blocks that do not depend on the
// thread count, and a block belongs to one thread, so whatever a block computes has the same bits
// on any number of threads. Threads take the next block when they are done with one: blocks may
// differ in cost. Called from within such a loop, or with one thread, it runs on the caller.
#pragma once

#include <cstdint>
#include <functional>

namespace headrace::engine {

// The most workers that parallel_blocks may use, at least 1: torch's thread count.
int64_t parallel_workers();

// Calls body(block, worker) once for every block of [0, block_count). `worker` is in
// [0, parallel_workers()) and no two calls at the same time share it: the index of scratch memory.
// Blocks until all are done. The body must not throw.
void parallel_blocks(int64_t block_count,
                     const std::function<void(int64_t block, int64_t worker)>& body);

// Calls body(first_row, last_row), the last excluded, for consecutive blocks of `block_row_count`
// rows; the last block may be shorter. row_count may be 0.
void parallel_rows(int64_t row_count, int64_t block_row_count,
                   const std::function<void(int64_t first_row, int64_t last_row)>& body);

}  // namespace headrace::engine
