// Goal: every block is done once, by a worker of its own, on any number of torch's threads; and
// the runtime under it is the one that torch loaded.
// Method: counters per block and per worker; blocks that wait for each other, which one thread
// alone could never do; the libraries of this process.
#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/torch/parallel.h"

namespace headrace::engine {
namespace {

TEST(Parallel, EveryBlockOnceAndNoWorkerTwiceAtATime) {
    for (const int thread_count : {1, 2, 3}) {
        at::set_num_threads(thread_count);
        for (const int64_t block_count : {0, 1, 2, 7, 1000}) {
            std::vector<std::atomic<int>> done(static_cast<size_t>(block_count));
            std::array<std::atomic<int>, 3> busy{};
            parallel_blocks(block_count, [&](int64_t block, int64_t worker) {
                ASSERT_LT(worker, parallel_workers());
                EXPECT_EQ(busy.at(static_cast<size_t>(worker))++, 0);
                ++done[static_cast<size_t>(block)];
                --busy[static_cast<size_t>(worker)];
            });
            for (const std::atomic<int>& count : done) EXPECT_EQ(count, 1);
        }
    }
}

TEST(Parallel, TwoBlocksRunAtTheSameTime) {
    at::set_num_threads(2);
    std::atomic<int> arrived = 0;
    parallel_blocks(2, [&](int64_t, int64_t) {
        ++arrived;
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (arrived < 2 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
        EXPECT_EQ(arrived, 2);
    });
}

TEST(Parallel, RowsAreCutInFixedBlocks) {
    at::set_num_threads(2);
    std::array<std::atomic<int>, 10> owner{};
    parallel_rows(10, 4, [&](int64_t first_row, int64_t last_row) {
        EXPECT_EQ(first_row % 4, 0);
        for (int64_t row = first_row; row < last_row; ++row) {
            owner.at(static_cast<size_t>(row)) += static_cast<int>(first_row) + 1;
        }
    });
    for (size_t row = 0; row < 10; ++row) EXPECT_EQ(owner[row], static_cast<int>(row / 4 * 4) + 1);
    parallel_rows(0, 4, [](int64_t, int64_t) { FAIL(); });
}

TEST(Parallel, OneOpenMpRuntimeIsLoaded) {
    std::ifstream maps("/proc/self/maps");
    std::set<std::string> runtimes;
    for (std::string line; std::getline(maps, line);) {
        const size_t begin = line.find('/');
        if (begin == std::string::npos) continue;
        const std::string path = line.substr(begin);
        const bool is_runtime = path.find("libgomp") != std::string::npos ||
                                path.find("libomp") != std::string::npos ||
                                path.find("libiomp") != std::string::npos;
        if (is_runtime) runtimes.insert(path);
    }
    EXPECT_EQ(runtimes.size(), 1u);
}

}  // namespace
}  // namespace headrace::engine
