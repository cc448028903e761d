#include "engine/plan/nominal_host.h"

#include <algorithm>

#include "engine/torch/ops/matmul_sizes.h"
#include "offload/check.h"

namespace headrace::engine {

namespace {

// Of a core with AVX2: fp32 products, and an update that the memory does not yet hold up. With
// arithmetic of bf16 there are twice as many products of it.
constexpr double flops_per_core = 50e9;
constexpr double flops_per_bf16_core = 100e9;
constexpr double updates_per_core = 0.8e9;
// Of a desktop or a small server: memory, and copies within it.
constexpr double memory_bytes_per_s = 20e9;
constexpr double copy_bytes_per_s = 6e9;
// Of one PCIe 3.0 drive.
constexpr offload::DriveRates drive{.read_bytes_per_s = 2.5e9,
                                    .write_bytes_per_s = 1.5e9,
                                    .latency_s = 100e-6,
                                    .flush_s = 1e-3,
                                    .both_ways = 1.2};

}  // namespace

offload::Machine with_threads(offload::Machine machine, const HostThreads& threads) {
    CHECK_GE(threads.compute_threads, 1);
    CHECK_GE(threads.update_threads, 1);
    machine.core_count = std::max(1, threads.core_count);
    if (machine.compute_cores > 0) {
        machine.compute_cores = std::min<double>(threads.compute_threads, machine.core_count);
    }
    machine.update_cores = std::min<double>(threads.update_threads, machine.core_count);
    return machine;
}

offload::Machine with_card(offload::Machine host, const offload::Machine& card) {
    host.name = card.name + " (emulated)";
    host.gpu_flops = card.gpu_flops;
    host.gpu_memory_bytes_per_s = card.gpu_memory_bytes_per_s;
    host.launch_s = card.launch_s;
    host.link = card.link;
    host.compute_cores = card.compute_cores;
    host.copy_cores = card.copy_cores;
    return host;
}

offload::Machine nominal_host(const HostThreads& threads, offload::Dtype dtype) {
    const bool has_bf16 = work_dtype(dtype) == offload::Dtype::bf16;
    offload::Machine machine{
        .name = "nominal host",
        .gpu_flops = (has_bf16 ? flops_per_bf16_core : flops_per_core) * threads.compute_threads,
        .gpu_memory_bytes_per_s = memory_bytes_per_s / 2,
        .link = {.h2d_bytes_per_s = copy_bytes_per_s, .d2h_bytes_per_s = copy_bytes_per_s},
        .drive = drive,
        .update_parameters_per_s =
            std::min(updates_per_core * threads.update_threads, memory_bytes_per_s / 28),
        .memory_bytes_per_s = memory_bytes_per_s,
        .compute_cores = 1,
        .copy_cores = 1};
    return with_threads(machine, threads);
}

}  // namespace headrace::engine
