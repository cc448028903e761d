// Workspace: the region that torch's CPU memory comes from while a layer computes. Inside a
// WorkspaceScope every allocation torch makes on this thread (and on its own kernel threads) is
// carved from the region, which is a slot of the gpu tier; one that does not fit throws torch's
// out-of-memory error inside the compute call. Outside a scope torch allocates from the heap.
// Each compute call leaves the workspace empty, so it cannot fragment from call to call.
// One kind of memory does not come from it: what a matrix library packs its operands into
// (LibraryMemory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "offload/result.h"

namespace headrace::engine {

// Installs the allocator hook in torch. Idempotent; called by start_torch().
void install_workspace_allocator();

// Runs `compute` with torch's memory carved from `region` (64-byte aligned). One at a time in the
// process (CHECK). Afterwards the region is empty (CHECK). Error (does_not_fit): an allocation did
// not fit; names its size, what was in use and the region's size. Other torch exceptions become
// ErrorCode::failed with torch's first line.
offload::Status with_workspace(std::span<std::byte> region, const std::function<void()>& compute);

// While one lives, torch allocates from a buffer beside the region, which grows and stays: for a
// product whose operands and result exist already, so that all that is asked for is what the matrix
// library packs them into. How much that is, is its own affair: it depends on the CPU and on the
// shapes, up to 1.8 MiB a thread where it was seen (oneDNN 3, AVX512-BF16), so that no formula
// could promise it. Not nested, on one thread at a time (CHECK).
class LibraryMemory {
  public:
    LibraryMemory();
    ~LibraryMemory();
    LibraryMemory(const LibraryMemory&) = delete;
    LibraryMemory& operator=(const LibraryMemory&) = delete;
};

// The most bytes any with_workspace since the last reset had in use, and where the highest
// allocation ended (at least as much; what the region must measure); and the largest piece of
// library memory.
struct WorkspacePeak {
    uint64_t in_use_bytes = 0;
    uint64_t extent_bytes = 0;
    uint64_t library_bytes = 0;
};
WorkspacePeak workspace_peak();
void reset_workspace_peak();

}  // namespace headrace::engine
