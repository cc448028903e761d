#include "engine/cli/last_words.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <new>
#include <system_error>

#include "offload/check.h"
#include "offload/result.h"
#include "offload/units.h"

namespace headrace::engine {

namespace {

// No memory may be asked for here.
[[noreturn]] void leave(const char* refused) {
    std::array<char, 400> line{};
    const uint64_t limit_bytes = address_limit_bytes();
    int length = 0;
    if (limit_bytes < std::numeric_limits<uint64_t>::max()) {
        length = std::snprintf(
            line.data(), line.size(),
            "headrace: the system refused %s: this process may have %.0f MiB of "
            "addresses (ulimit -v), which is too little: raise the limit\n",
            refused, static_cast<double>(limit_bytes) / static_cast<double>(offload::mib));
    } else {
        length =
            std::snprintf(line.data(), line.size(),
                          "headrace: the system refused %s: memory is used up, or a limit of "
                          "this user or container is reached (ulimit -a); lower the budgets, or "
                          "end what else runs\n",
                          refused);
    }
    CHECK_GT(length, 0);
    static_cast<void>(!::write(STDERR_FILENO, line.data(), static_cast<size_t>(length)));
    ::_exit(static_cast<int>(offload::ErrorCode::failed));
}

// What was installed before: it says what an exception holds, and aborts.
std::terminate_handler usual = nullptr;

[[noreturn]] void tell() {
    if (const std::exception_ptr thrown = std::current_exception()) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::bad_alloc&) {
            leave("memory");
        } catch (const std::system_error& error) {
            if (error.code() == std::errc::resource_unavailable_try_again) leave("a thread");
        } catch (...) {
        }
    }
    usual();
    std::abort();
}

}  // namespace

void tell_what_was_refused() {
    const std::terminate_handler before = std::set_terminate(tell);
    if (before != tell) usual = before;
    CHECK(usual != nullptr);
}

uint64_t address_limit_bytes() {
    rlimit limit{};
    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<uint64_t>::max() : limit.rlim_cur;
}

}  // namespace headrace::engine
