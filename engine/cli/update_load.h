// UpdateLoad: an update that can be run again and again, as a bench's load: parameters in bf16 with
// fp32 states and bf16 gradients, in memory of huge pages. Or a loop that only moves the same bytes
// (adam_stream.h), on all threads: what memory can carry.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu_adam/pool.h"
#include "kernels/host/slab.h"
#include "offload/result.h"

namespace headrace::engine {

class UpdateLoad {
  public:
    struct Options {
        uint64_t part_count = 8;  // of 2^20 parameters, 16 MiB, each
        uint32_t update_thread_count = 1;
        uint32_t stream_thread_count = 1;
    };
    // Error: no memory.
    static offload::Result<std::unique_ptr<UpdateLoad>> make(const Options& options);

    double update();  // of the next part; returns the parameters updated
    double stream();  // of the next part; returns the bytes moved

    static uint64_t wanted_bytes(const Options& options);

  private:
    explicit UpdateLoad(const Options& options);

    Options options_;
    kernels::HostMemory memory_;
    cpu_adam::UpdatePool update_pool_;
    cpu_adam::UpdatePool stream_pool_;
    std::span<std::byte> slab_;
    std::vector<cpu_adam::PartUpdate> parts_;
    size_t next_part_ = 0;
};

}  // namespace headrace::engine
