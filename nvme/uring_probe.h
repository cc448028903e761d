// Whether io_uring may be used here. Containers forbid it by seccomp (Docker's and containerd's
// default profile), administrators by kernel.io_uring_disabled, old kernels lack it.
#pragma once

#include <cstdint>
#include <string_view>

#include "offload/result.h"

namespace headrace::nvme {

// automatic: io_uring, or threads where it is forbidden.
enum class IoEngine : uint8_t { automatic, uring, threads };
offload::Result<IoEngine> parse_io_engine(std::string_view name);

// Sets up a small ring, registers a file and runs a NOP: each of the three system calls can be
// forbidden alone. Under a seccomp filter, which may kill instead of refusing, a forked child tries
// first. The Error names what forbade it and the remedy.
offload::Status probe_io_uring();

}  // namespace headrace::nvme
