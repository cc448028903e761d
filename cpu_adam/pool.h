// UpdatePool: the threads that update one part together.
//
// The part is cut into one range per thread, by count alone, at multiples of page_elements (2048,
// in int8 32768: offload/state_format.h); the rule works on each element alone, so the bits do not
// depend on the cut or on who was faster. Waiting threads sleep on a condition variable: nothing
// spins beside the compute threads. Threads are not bound to NUMA nodes: the memory they update
// lies on all of them alike (kernels/host/numa.h).
//
// Any thread may call update; calls wait for one another.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu_adam/state.h"

namespace headrace::cpu_adam {

// The elements that thread `thread_index` of thread_count updates: consecutive over the threads,
// together the whole part; whole units of unit_elements, the larger ranges first.
struct ThreadShare {
    uint32_t thread_index = 0;
    uint32_t thread_count = 1;
    uint64_t unit_elements = 2048;
};
ElementRange range_of(ThreadShare share, uint64_t element_count);

class UpdatePool {
  public:
    // thread_count, at least 1 (CHECK), counts the caller of update: one less is started.
    // Where the system refuses, its std::system_error passes; those that run are ended first.
    explicit UpdatePool(uint32_t thread_count);
    ~UpdatePool();
    UpdatePool(const UpdatePool&) = delete;
    UpdatePool& operator=(const UpdatePool&) = delete;

    // Blocks until the whole part is updated. Allocates nothing. What update_range (state.h) CHECKs
    // of a thread is CHECKed on every thread.
    void update(const Row& row, const AdamStep& step, const PartUpdate& part);

    uint32_t thread_count() const { return thread_count_; }

  private:
    struct Task {
        const Row* row = nullptr;
        StepFactors factors;
        PartUpdate part;
    };

    void work(std::stop_token stop, uint32_t thread_index);
    void do_share(const Task& task, uint32_t thread_index) const;

    const uint32_t thread_count_;
    std::mutex calls_;  // held through one update

    std::mutex mutex_;  // guards all below
    std::condition_variable_any task_given_;
    std::condition_variable task_done_;
    Task task_;
    uint64_t task_number_ = 0;    // tasks given so far
    uint32_t working_count_ = 0;  // workers that have not finished the current one

    std::vector<std::jthread> workers_;  // last: stopped and joined before what they use goes
};

}  // namespace headrace::cpu_adam
