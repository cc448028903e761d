#include "nvme/uring_probe.h"

#include <fmt/core.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "nvme/io_error.h"
#include "offload/check.h"

namespace headrace::nvme {

using offload::Error;
using offload::ErrorCode;
using offload::Status;

namespace {

// What the attempt met: stage 0 is success. Plain integers: a forked child returns them by pipe.
struct Attempt {
    int stage = 0;  // 1 io_uring_setup, 2 io_uring_register, 3 io_uring_enter, 4 killed
    int error_number = 0;
};
constexpr std::array<const char*, 5> stage_names = {"", "io_uring_setup", "io_uring_register",
                                                    "io_uring_enter", "io_uring_setup"};

Attempt attempt_here() {
    io_uring ring{};
    const int made = io_uring_queue_init(4, &ring, 0);
    if (made < 0) return {.stage = 1, .error_number = -made};
    Attempt attempt;
    const int file = eventfd(0, EFD_CLOEXEC);
    const int registered = io_uring_register_files(&ring, &file, 1);
    if (registered < 0) attempt = {.stage = 2, .error_number = -registered};
    if (attempt.stage == 0) {
        io_uring_prep_nop(io_uring_get_sqe(&ring));
        const int submitted = io_uring_submit_and_wait(&ring, 1);
        if (submitted < 0) attempt = {.stage = 3, .error_number = -submitted};
    }
    io_uring_queue_exit(&ring);
    if (file >= 0) close(file);
    return attempt;
}

// The child does nothing but system calls between fork and _exit.
Attempt attempt_in_child() {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return {.stage = 1, .error_number = errno};
    const pid_t child = fork();
    if (child < 0) {
        const int error_number = errno;
        close(ends[0]);
        close(ends[1]);
        return {.stage = 1, .error_number = error_number};
    }
    if (child == 0) {
        const Attempt attempt = attempt_here();
        const ssize_t written = write(ends[1], &attempt, sizeof(attempt));
        _exit(written == sizeof(attempt) ? 0 : 1);
    }
    close(ends[1]);
    Attempt attempt{.stage = 4, .error_number = EPERM};  // what silence means
    Attempt answer;
    if (read(ends[0], &answer, sizeof(answer)) == sizeof(answer)) attempt = answer;
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return attempt;
}

bool has_seccomp_filter() {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
        if (line.rfind("Seccomp:", 0) == 0) return line.find('2') != std::string::npos;
    }
    return false;
}

int io_uring_disabled() {
    std::ifstream setting("/proc/sys/kernel/io_uring_disabled");
    int value = 0;
    setting >> value;
    return value;
}

}  // namespace

offload::Result<IoEngine> parse_io_engine(std::string_view name) {
    if (name == "auto") return IoEngine::automatic;
    if (name == "uring") return IoEngine::uring;
    if (name == "threads") return IoEngine::threads;
    return Error{ErrorCode::usage, fmt::format("'{}' is not an I/O engine", name),
                 "the engines are auto, uring and threads"};
}

Status probe_io_uring() {
    const bool is_filtered = has_seccomp_filter();
    const Attempt attempt = is_filtered ? attempt_in_child() : attempt_here();
    CHECK_LT(static_cast<size_t>(attempt.stage), stage_names.size());
    if (attempt.stage == 0) return {};
    std::string cause = attempt.stage == 4 ? "the process that tried was killed"
                                           : describe_errno(attempt.error_number);
    const int disabled = io_uring_disabled();
    if (disabled > 0 && attempt.stage == 1 && attempt.error_number == EPERM) {
        cause += fmt::format(
            "; kernel.io_uring_disabled is {}: sysctl kernel.io_uring_disabled=0 "
            "allows it",
            disabled);
    } else if (is_filtered) {
        cause +=
            "; a seccomp filter is in force, as in containers: a profile that allows "
            "io_uring_setup, io_uring_enter and io_uring_register lifts it";
    } else if (attempt.error_number == ENOSYS) {
        cause += "; the kernel has no io_uring";
    }
    return Error{ErrorCode::failed,
                 fmt::format("io_uring cannot be used here, {} failed",
                             stage_names[static_cast<size_t>(attempt.stage)]),
                 cause};
}

}  // namespace headrace::nvme
