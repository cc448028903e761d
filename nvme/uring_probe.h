// Whether io_uring may be used here, what forbids it, and what exactly lifts the ban. Containers
// forbid it by seccomp (Docker's and containerd's default profile), administrators by
// kernel.io_uring_disabled, old kernels lack it. Looking and telling are apart, so that each ban
// can be told by test.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "offload/result.h"

namespace headrace::nvme {

// automatic: io_uring, or threads where it is forbidden.
enum class IoEngine : uint8_t { automatic, uring, threads };
offload::Result<IoEngine> parse_io_engine(std::string_view name);

// What the attempt met, and what may be to blame.
struct UringFacts {
    enum class Call : uint8_t { none, io_uring_setup, io_uring_register, io_uring_enter };
    Call failed_call = Call::none;  // none: it works
    int error_number = 0;           // what the call said
    bool was_killed = false;        // instead of an answer
    bool is_filtered = false;       // a seccomp filter is in force
    int disabled_setting = 0;       // kernel.io_uring_disabled: 0, 1 (but for a group), 2 (all)
    int64_t allowed_group = -1;     // kernel.io_uring_group; -1: none
    uint32_t user_group = 0;        // of this process
};

// Sets up a small ring, registers a file and runs a NOP: each of the three system calls can be
// forbidden alone. Under a seccomp filter, which may kill instead of refusing, a forked child does.
UringFacts look_at_io_uring();

// Who forbids it, in a few words, and the flags or commands that lift it. Only of facts that say
// that it does not work (CHECK).
std::string ban_of(const UringFacts& facts);
std::string remedy_of(const UringFacts& facts);

// Both in one Error.
offload::Status probe_io_uring();

}  // namespace headrace::nvme
