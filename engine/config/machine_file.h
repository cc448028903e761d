// A machine file: what a machine has and how fast it is, as YAML; what a plan is made for. One
// section each for gpu, link, ram, cpu and, where there is one, drive (all drives of the store
// together). Rates are those a step reaches; configs/hardware holds some, each number with its
// source. The format, with units:
//
//   name: rtx4090-desktop
//   gpu:   {memory: 22GiB, tflops: 150, memory_gb_per_s: 900, launch_us: 5, cores: 0}
//   link:  {h2d_gb_per_s: 25, d2h_gb_per_s: 25, latency_us: 10, both_ways: 2, cores: 0}
//   ram:   {memory: 56GiB, gb_per_s: 70}
//   cpu:   {cores: 16, update_cores: 8, update_gparam_per_s: 2.2}
//   drive: {count: 2, space: 3.6TB, read_gb_per_s: 14, write_gb_per_s: 3.2, burst_gb_per_s: 11,
//           burst: 400GB, latency_us: 100, flush_ms: 1, both_ways: 1, written_in_life: 2400TB}
//
// gpu.memory, ram.memory: what a run may take.
// gpu.tflops: products of bf16; gpu.fp32_tflops: of fp32 and fp16, where they are slower.
// gpu.cores and link.cores: processor cores that computing and copying keep busy, 0 on a card.
// Without drive.space a run may take whatever it needs there.
// Strict as a run file: unknown keys, keys given twice, missing ones, numbers out of range: one
// error lists them all.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/run_config.h"
#include "offload/dtype.h"
#include "offload/machine.h"
#include "offload/planner.h"
#include "offload/result.h"

namespace headrace::engine {

// A ceiling that nobody gave and nothing sets: also of drives whose file does not tell their space.
inline constexpr uint64_t unlimited_bytes = std::numeric_limits<int64_t>::max();

struct MachineFile {
    offload::Machine machine;
    double fp32_flops = 0;             // 0: as many as of bf16
    offload::TierBytes ceilings;       // what a run may take
    uint32_t drive_count = 0;          // 0: no drive
    double written_in_life_bytes = 0;  // of all drives together; 0: not known
};

// The file as a run in `dtype` finds it: machine.gpu_flops is the rate of its products, the only
// one.
MachineFile in_dtype(MachineFile file, offload::Dtype dtype);

// `source` names the text in errors. Error: usage, listing every fault.
offload::Result<MachineFile> parse_machine(const std::string& text, const std::string& source);

// Error: usage; a file that cannot be read names those that lie beside it.
offload::Result<MachineFile> load_machine(const std::string& path);

// The card that the run file wants emulated, if it does. Error: the machine file's.
offload::Result<std::optional<MachineFile>> emulated_card(const RunConfig& config);

// Where what was measured of this very machine is kept, in the folder of what Headrace remembers
// between runs; "" where there is no such folder. One file for each kind of processor
// (Machine::cpu_kind) and number of its cores that may be used: unlike machines that share a home,
// or an image, do not plan by each other's rates. Written by whoever measures, whole or not at all.
std::string measured_machine_path(const std::string& cache_folder, const std::string& cpu_kind,
                                  int64_t core_count);

// Rates of other machines that lie beside that file, by name: measured under another kind of
// processor or number of cores, or by an earlier version. None of them is planned by.
std::vector<std::string> measured_elsewhere(const std::string& path);

// The machine measured there; nothing: none was. Error: usage, for a file that cannot be used.
offload::Result<std::optional<MachineFile>> load_measured_machine(const std::string& path);

}  // namespace headrace::engine
