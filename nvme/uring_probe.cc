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

using Call = UringFacts::Call;

// Plain values: a forked child returns them by pipe.
struct Attempt {
    Call failed_call = Call::none;
    int error_number = 0;
    bool was_killed = false;
};
constexpr std::array<std::string_view, 4> call_names = {"", "io_uring_setup", "io_uring_register",
                                                        "io_uring_enter"};

Attempt attempt_here() {
    io_uring ring{};
    const int made = io_uring_queue_init(4, &ring, 0);
    if (made < 0) return {.failed_call = Call::io_uring_setup, .error_number = -made};
    Attempt attempt;
    const int file = eventfd(0, EFD_CLOEXEC);
    const int registered = io_uring_register_files(&ring, &file, 1);
    if (registered < 0) {
        attempt = {.failed_call = Call::io_uring_register, .error_number = -registered};
    }
    if (attempt.failed_call == Call::none) {
        io_uring_prep_nop(io_uring_get_sqe(&ring));
        const int submitted = io_uring_submit_and_wait(&ring, 1);
        if (submitted < 0) {
            attempt = {.failed_call = Call::io_uring_enter, .error_number = -submitted};
        }
    }
    io_uring_queue_exit(&ring);
    if (file >= 0) close(file);
    return attempt;
}

// The child does nothing but system calls between fork and _exit.
Attempt attempt_in_child() {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) {
        return {.failed_call = Call::io_uring_setup, .error_number = errno};
    }
    const pid_t child = fork();
    if (child < 0) {
        const int error_number = errno;
        close(ends[0]);
        close(ends[1]);
        return {.failed_call = Call::io_uring_setup, .error_number = error_number};
    }
    if (child == 0) {
        const Attempt attempt = attempt_here();
        const ssize_t written = write(ends[1], &attempt, sizeof(attempt));
        _exit(written == sizeof(attempt) ? 0 : 1);
    }
    close(ends[1]);
    // What silence means.
    Attempt attempt{.failed_call = Call::io_uring_setup, .error_number = EPERM, .was_killed = true};
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

// Of /proc/sys/kernel; `absent` where the kernel does not know it.
int64_t setting_of(const std::string& name, int64_t absent) {
    std::ifstream setting("/proc/sys/kernel/" + name);
    int64_t value = 0;
    return setting >> value ? value : absent;
}

bool is_disabled(const UringFacts& facts) {
    return facts.disabled_setting > 0 && facts.failed_call == Call::io_uring_setup &&
           facts.error_number == EPERM && !facts.was_killed;
}

}  // namespace

offload::Result<IoEngine> parse_io_engine(std::string_view name) {
    if (name == "auto") return IoEngine::automatic;
    if (name == "uring") return IoEngine::uring;
    if (name == "threads") return IoEngine::threads;
    return Error{ErrorCode::usage, fmt::format("'{}' is not an I/O engine", name),
                 "the engines are auto, uring and threads"};
}

UringFacts look_at_io_uring() {
    UringFacts facts;
    facts.is_filtered = has_seccomp_filter();
    const Attempt attempt = facts.is_filtered ? attempt_in_child() : attempt_here();
    facts.failed_call = attempt.failed_call;
    facts.error_number = attempt.error_number;
    facts.was_killed = attempt.was_killed;
    facts.disabled_setting = static_cast<int>(setting_of("io_uring_disabled", 0));
    facts.allowed_group = setting_of("io_uring_group", -1);
    facts.user_group = getegid();
    return facts;
}

std::string ban_of(const UringFacts& facts) {
    CHECK(facts.failed_call != Call::none);
    const std::string_view call = call_names[static_cast<size_t>(facts.failed_call)];
    const std::string met =
        facts.was_killed ? fmt::format("{} killed the process that tried", call)
                         : fmt::format("{} gave {}", call, describe_errno(facts.error_number));
    if (is_disabled(facts)) {
        return fmt::format("{}; kernel.io_uring_disabled is {}", met, facts.disabled_setting);
    }
    if (facts.is_filtered) return met + "; a seccomp filter is in force, as in containers";
    if (facts.error_number == ENOSYS) return met + "; the kernel has no io_uring";
    return met;
}

std::string remedy_of(const UringFacts& facts) {
    CHECK(facts.failed_call != Call::none);
    if (is_disabled(facts)) {
        const std::string lift = "as root, on the host: sysctl -w kernel.io_uring_disabled=0";
        if (facts.disabled_setting >= 2) return lift + " (2 forbids it to root as well)";
        return fmt::format(
            "{}; or for one group, of which this user then must be: sysctl -w "
            "kernel.io_uring_group={} (now {})",
            lift, facts.user_group, facts.allowed_group);
    }
    if (facts.is_filtered) {
        return "docker or podman: run --security-opt seccomp=unconfined, or --security-opt "
               "seccomp=PROFILE.json, the default profile with io_uring_setup, io_uring_enter and "
               "io_uring_register among its allowed names; Kubernetes: securityContext: "
               "{seccompProfile: {type: Unconfined}}, or Localhost with that profile; systemd: "
               "SystemCallFilter=@aio";
    }
    switch (facts.error_number) {
        case ENOSYS:
            return "Linux 5.6 or later with CONFIG_IO_URING=y; sandboxes such as gVisor have none: "
                   "docker run --runtime=runc";
        case ENOMEM:
            return "before Linux 5.12 rings count as locked memory: ulimit -l unlimited, or "
                   "memlock "
                   "in /etc/security/limits.conf";
        case EMFILE:
        case ENFILE: return "too many open files: raise ulimit -n";
        default:
            return "a security module (SELinux, AppArmor) may forbid it: see journalctl -k, or "
                   "ausearch -m avc";
    }
}

Status probe_io_uring() {
    const UringFacts facts = look_at_io_uring();
    if (facts.failed_call == Call::none) return {};
    return Error{ErrorCode::failed, "io_uring cannot be used here",
                 fmt::format("{}; {}", ban_of(facts), remedy_of(facts))};
}

}  // namespace headrace::nvme
