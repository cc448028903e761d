#include "engine/cli/loops.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "offload/check.h"

namespace headrace::engine {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

std::vector<double> rates_beside(std::span<const Loop> loops, double seconds_min) {
    CHECK(!loops.empty());
    CHECK_GE(seconds_min, 0.0);
    std::vector<double> rates(loops.size());
    std::atomic<size_t> begun_count = 0;
    std::atomic<size_t> ran_count = 0;  // that have run once
    const auto repeat = [&](size_t index) {
        begun_count.fetch_add(1);
        while (begun_count.load() < loops.size()) std::this_thread::yield();
        const auto begin = Clock::now();
        double work = loops[index]();
        ran_count.fetch_add(1);
        double seconds = seconds_since(begin);
        while (seconds < seconds_min || ran_count.load() < loops.size()) {
            work += loops[index]();
            seconds = seconds_since(begin);
        }
        CHECK_GT(seconds, 0.0);
        rates[index] = work / seconds;
    };
    {
        std::vector<std::jthread> threads;
        for (size_t index = 1; index < loops.size(); ++index) threads.emplace_back(repeat, index);
        repeat(0);
    }
    return rates;
}

double rate_alone(const Loop& loop, double seconds_min) {
    return rates_beside({&loop, 1}, seconds_min).front();
}

double rate_of_both(double one, double other) {
    return one > 0 && other > 0 ? 2 / (1 / one + 1 / other) : 0;
}

}  // namespace headrace::engine
