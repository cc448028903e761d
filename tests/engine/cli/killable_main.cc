// The program with torch and more arguments, for tests:
//   --kill-at-op N         kills itself, as kill -9 does, when N ops of its training are done
//   --kill-at-request N    the same before request N to a drive: also in a load, repack or export
//   --lose-request N       request N never ends; what has not ended for a second counts as stuck
//   --fail-request N       request N and all after it fail with EIO, as on a drive that is gone
//   --fill-request N       the same with ENOSPC, as on one that is full
//   --slow-requests MS     every request takes so long
//   --stuck-after MS       a request that has not ended by then counts as stuck
//   --tell-waits MS        how often a wait is told of
// Requests are reads and writes of data, from 1, on all paths together.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/cli/program.h"

namespace {

struct Faults {
    int64_t kill_at_op = 0;
    int64_t kill_at_request = 0;
    int64_t lose_request = 0;
    int64_t fail_request = 0;
    int64_t fill_request = 0;
    int64_t slow_ms = 0;
    int64_t stuck_ms = 0;
    int64_t tell_ms = 0;
};

struct Argument {
    std::string_view name;
    int64_t Faults::*value;
};
constexpr std::array<Argument, 8> arguments_of_faults = {{
    {"--kill-at-op", &Faults::kill_at_op},
    {"--kill-at-request", &Faults::kill_at_request},
    {"--lose-request", &Faults::lose_request},
    {"--fail-request", &Faults::fail_request},
    {"--fill-request", &Faults::fill_request},
    {"--slow-requests", &Faults::slow_ms},
    {"--stuck-after", &Faults::stuck_ms},
    {"--tell-waits", &Faults::tell_ms},
}};

// Takes its own arguments away from those of the program.
Faults take_faults(std::vector<char*>& arguments) {
    Faults faults;
    for (const Argument& argument : arguments_of_faults) {
        for (size_t i = 1; i + 1 < arguments.size(); ++i) {
            if (argument.name != arguments[i]) continue;
            faults.*argument.value = std::strtoll(arguments[i + 1], nullptr, 10);
            const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
            arguments.erase(at, at + 2);
            break;
        }
    }
    return faults;
}

std::optional<headrace::nvme::Fault> fault_of(const Faults& faults, int64_t request) {
    if (request == faults.kill_at_request) std::raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(faults.slow_ms));
    if (request == faults.lose_request) return headrace::nvme::Fault{.is_lost = true};
    if (faults.fail_request > 0 && request >= faults.fail_request) {
        return headrace::nvme::Fault{.result = -EIO};
    }
    if (faults.fill_request > 0 && request >= faults.fill_request) {
        return headrace::nvme::Fault{.result = -ENOSPC};
    }
    return std::nullopt;
}

}  // namespace

int main(int argument_count, char** argument_values) {
    std::vector<char*> arguments(argument_values, argument_values + argument_count);
    const Faults faults = take_faults(arguments);
    arguments.push_back(nullptr);
    headrace::engine::ProgramHooks hooks;
    hooks.op_done = [faults](int64_t op_count) {
        if (op_count == faults.kill_at_op) std::raise(SIGKILL);
    };
    std::atomic<int64_t> request_count = 0;
    hooks.drives.operations.before_request = [&](const headrace::nvme::Request&) {
        return fault_of(faults, ++request_count);
    };
    if (faults.lose_request > 0) hooks.drives.stuck_after = std::chrono::seconds(1);
    if (faults.stuck_ms > 0) hooks.drives.stuck_after = std::chrono::milliseconds(faults.stuck_ms);
    if (faults.tell_ms > 0) {
        hooks.drives.wait_told_every = std::chrono::milliseconds(faults.tell_ms);
    }
    return headrace::engine::run_torch_program(static_cast<int>(arguments.size()) - 1,
                                               arguments.data(), hooks);
}
