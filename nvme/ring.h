// Ring: io_uring over one data file, and the loop that serves a drive's queue with it. Only this
// and uring_probe name io_uring. One thread uses a ring after it was made; the depth is the bound
// of what is in flight. Every completion's result is checked (block.h), short ones go on, and a
// ring that cannot be submitted to any more drains what is in flight and fails the rest, it never
// hangs and never drops a block. A request that never completes stays in flight: the watchdog of
// the store (watchdog.h) sees it in the queue. Its memory is the kernel's, so nobody comes to the
// destructor then.
//
// Registered buffers and files spare the kernel work per request (it matters with 4 KiB pages, and
// hardly with 2 MiB ones), so where the lock limit refuses them the ring goes on without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nvme/block_queue.h"
#include "nvme/direct_file.h"
#include "offload/result.h"

namespace headrace::nvme {

// required: an open that cannot register is an Error (strict mode); preferred: it is a note.
enum class Registration : uint8_t { preferred, required };

struct RingOptions {
    uint32_t depth = 8;                         // 1 to 4096
    std::vector<std::span<std::byte>> buffers;  // slabs that transfers come from; may be empty
    Registration registration = Registration::preferred;
};

class Ring {
  public:
    // `notes` gets a line for what was refused and is done without. The file outlives the ring.
    static offload::Result<Ring> make(const DirectFile& file, const RingOptions& options,
                                      std::vector<std::string>& notes);
    Ring(Ring&&) noexcept;
    Ring& operator=(Ring&&) = delete;
    ~Ring();  // CHECKs that nothing is in flight

    // Serves the queue until it is closed and empty and nothing is in flight. Blocks.
    void serve(BlockQueue& queue);

    uint64_t registered_bytes() const;

    // In a forked child: gives up the child's hold on the ring, and on the file that it holds.
    void let_go_in_child();

  private:
    struct State;  // liburing's types stay in ring.cc
    explicit Ring(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace headrace::nvme
