// What the program says when it cannot go on because the system gives it no more: memory, address
// space (ulimit -v), threads. Nothing above such an allocation could do without it, so it is not
// passed up as an Error; but it is a fact of the world and no bug, and is told in one line.
#pragma once

#include <cstdint>

namespace headrace::engine {

// From here on, where memory or a thread is refused, on any thread: "headrace: ..." on stderr with
// the limit that is set, and the process leaves with 1; a run has its last commit. Other exceptions
// that nobody catches abort as ever.
void tell_what_was_refused();

// How many bytes of addresses this process may have: a limit that is set, else the largest number.
uint64_t address_limit_bytes();

}  // namespace headrace::engine
