#include "engine/torch/parallel.h"

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <algorithm>
#include <atomic>

#ifndef _OPENMP
#error "compiled without OpenMP at::parallel_for runs on one thread"
#endif

namespace headrace::engine {

int64_t parallel_workers() {
    return std::max<int64_t>(1, at::get_num_threads());
}

void parallel_blocks(int64_t block_count,
                     const std::function<void(int64_t block, int64_t worker)>& body) {
    CHECK_GE(block_count, 0);
    const int64_t worker_count = std::min(block_count, parallel_workers());
    if (worker_count <= 1) {
        for (int64_t block = 0; block < block_count; ++block) body(block, 0);
        return;
    }
    std::atomic<int64_t> next = 0;
    // One thread may get several workers (fewer threads than asked for); the first takes all.
    at::parallel_for(0, worker_count, 1, [&](int64_t worker, int64_t last_worker) {
        CHECK_LT(worker, last_worker);
        for (int64_t block = next++; block < block_count; block = next++) body(block, worker);
    });
}

void parallel_rows(int64_t row_count, int64_t block_row_count,
                   const std::function<void(int64_t first_row, int64_t last_row)>& body) {
    CHECK_GE(row_count, 0);
    CHECK_GT(block_row_count, 0);
    const int64_t block_count = (row_count + block_row_count - 1) / block_row_count;
    parallel_blocks(block_count, [&](int64_t block, int64_t) {
        const int64_t first_row = block * block_row_count;
        body(first_row, std::min(row_count, first_row + block_row_count));
    });
}

}  // namespace headrace::engine
