// Threads of torch's kernels. The wheel's OpenMP runtime spins for 4 to 11 ms of CPU after every
// parallel region, which it takes from the update and I/O lanes that share the cores: a layer
// beside an AdamW thread takes 183 ms spinning and 88 ms not. The runtime reads its settings from
// the environment before main() begins, so a process that wants it quiet must start over.
#pragma once

#include "offload/result.h"

namespace headrace::engine {

// Call first thing in main(). Starts this program over, once, with OMP_WAIT_POLICY=passive and
// GOMP_SPINCOUNT=0 in its environment (execve of /proc/self/exe; a guard variable tells the second
// start). Does nothing if the user chose either of them. Returns only where there was nothing to
// do or the system refused: then the Error says why, and the program may go on, slower.
// `argument_values` is main's, of argument_count + 1 entries, the last one null.
offload::Status reexec_without_spinning(int argument_count, char** argument_values);

// One matrix product, so that torch has loaded and set up what it needs for any: what the process
// holds afterwards is what it costs before a model is there. After start_torch().
void warm_up_torch();

}  // namespace headrace::engine
