// Becoming the program that computes, with threads that do not spin. The OpenMP runtime of torch's
// wheel spins for 4 to 11 ms of CPU after every parallel region, which it takes from the update and
// I/O lanes that share the cores: a layer beside an AdamW thread takes 183 ms spinning and 88 ms
// not. The runtime reads its settings from the environment before main() begins, so they are set
// before a program starts.
#pragma once

#include <filesystem>

#include "offload/result.h"

namespace headrace::engine {

// The executable of this process, links followed.
std::filesystem::path running_program();

// Whether the environment says already how threads wait: as start_quietly left it, or as the user
// wants it.
bool has_chosen_how_to_wait();

// Replaces this process by `program` (execve), with OMP_WAIT_POLICY=passive and GOMP_SPINCOUNT=0 in
// its environment unless has_chosen_how_to_wait(). `argument_values` is main's: the last one is
// null. Returns only where the system refused, and why.
offload::Error start_quietly(const std::filesystem::path& program, char** argument_values);

}  // namespace headrace::engine
