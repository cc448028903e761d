// Goal: any number of threads gives the bits of one, calls may come from several threads, and
// waiting costs no CPU time.
// Method: the same steps over pools of 1 to 7 threads; concurrent callers on parts of their own.
#include "cpu_adam/pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <system_error>
#include <thread>

#include "tests/cpu_adam/adam_reference.h"

namespace headrace::cpu_adam {

using offload::Dtype;

namespace {

struct PartMemory {
    PartMemory(uint64_t element_count, uint32_t seed)
        : weight(to_bf16(plain_values(element_count, 0.1f, seed))),
          gradient(to_bf16(plain_values(element_count, 0.1f, seed + 1))),
          state(div_ceil_4(offload::opt_bytes(Dtype::bf16, StateFormat::fp32, element_count))) {}

    static uint64_t div_ceil_4(uint64_t size_bytes) { return (size_bytes + 3) / 4; }

    PartUpdate update() {
        return {.element_count = weight.size(),
                .weight = std::as_writable_bytes(std::span(weight)),
                .state = std::as_writable_bytes(std::span(state)),
                .gradient = std::as_bytes(std::span(gradient))};
    }
    bool operator==(const PartMemory&) const = default;

    std::vector<uint16_t> weight, gradient;
    std::vector<uint32_t> state;
};

void run_steps(UpdatePool* pool, PartMemory* part, uint64_t step_count) {
    for (uint64_t t = 1; t <= step_count; ++t) {
        pool->update(best(), {.learning_rate = 1e-3, .adam_step = t}, part->update());
    }
}

double process_cpu_s() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// With no address space for another stack the system starts no thread: that is told, and those that
// were started are ended.
TEST(UpdatePoolDeathTest, threads_that_cannot_be_started_are_no_hang) {
    const auto make_too_many = [] {
        ::alarm(20);  // a hang ends the child by a signal
        uint64_t page_count = 0;
        std::ifstream("/proc/self/statm") >> page_count;
        // Two stacks of 8 MiB have room, the third has not.
        const rlimit little{.rlim_cur = page_count * 4096 + (20 << 20), .rlim_max = RLIM_INFINITY};
        CHECK_EQ(::setrlimit(RLIMIT_AS, &little), 0);
        try {
            UpdatePool(64);
        } catch (const std::system_error&) {
            ::_exit(7);
        }
        ::_exit(8);
    };
    EXPECT_EXIT(make_too_many(), testing::ExitedWithCode(7), "");
}

}  // namespace

TEST(UpdatePool, ranges_are_consecutive_blocks_that_cover_the_part) {
    for (const uint64_t element_count : {0, 1, 2047, 2048, 2049, 20480, 20481, 1 << 20}) {
        for (uint32_t thread_count = 1; thread_count <= 9; ++thread_count) {
            uint64_t next = 0;
            for (uint32_t index = 0; index < thread_count; ++index) {
                const ElementRange range =
                    range_of({.thread_index = index, .thread_count = thread_count}, element_count);
                EXPECT_EQ(range.first_element, next);
                next += range.element_count;
                EXPECT_TRUE(next == element_count || next % 2048 == 0);
            }
            EXPECT_EQ(next, element_count);
        }
    }
}

TEST(UpdatePool, every_thread_count_has_the_bits_of_one) {
    for (const uint64_t element_count : {uint64_t{0}, uint64_t{17}, uint64_t{2048 * 9 + 3}}) {
        PartMemory expected(element_count, 1);
        UpdatePool one(1);
        run_steps(&one, &expected, 20);
        for (const uint32_t thread_count : {2u, 3u, 7u}) {
            PartMemory actual(element_count, 1);
            UpdatePool pool(thread_count);
            EXPECT_EQ(pool.thread_count(), thread_count);
            run_steps(&pool, &actual, 20);
            EXPECT_EQ(actual, expected) << thread_count << " threads";
        }
    }
}

TEST(UpdatePool, callers_on_several_threads_wait_for_one_another) {
    UpdatePool pool(2), one(1);
    std::vector<PartMemory> parts, expected;
    for (uint32_t caller = 0; caller < 3; ++caller) parts.emplace_back(2048 * 3, 10 * caller);
    expected = parts;
    {
        std::vector<std::jthread> callers;
        for (PartMemory& part : parts) {
            callers.emplace_back([&pool, &part] { run_steps(&pool, &part, 50); });
        }
    }
    for (PartMemory& part : expected) run_steps(&one, &part, 50);
    EXPECT_EQ(parts, expected);
}

TEST(UpdatePool, waiting_threads_sleep) {
    PartMemory part(2048, 1);
    UpdatePool pool(4);
    run_steps(&pool, &part, 3);
    const double before_s = process_cpu_s();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_LT(process_cpu_s() - before_s, 0.02);
}

}  // namespace headrace::cpu_adam
