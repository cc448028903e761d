// `headrace doctor --probe`: this machine as a machine file: its rates measured in about 20 s, with
// the same loops as the benches, each number with how it was measured. The host device's card is
// memory and cores of this machine, so its memory is half of what is free, and computing and
// copying keep cores busy.
//
// What cannot be found out so quickly is said beside the number: a drive that slows down after some
// hundred GB needs `headrace bench nvme`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/machine_file.h"
#include "engine/models/llama.h"
#include "offload/result.h"

namespace headrace::engine {

struct MeasureOptions {
    std::vector<std::string> nvme_paths;  // the drives; none: the machine has none
    LlamaConfig shape;                    // whose products are measured, of one block and the head
    std::string shape_name;
    int64_t token_count = 512;  // of the micro-batch
    int compute_thread_count = 1;
    uint32_t update_thread_count = 1;
    double seconds = 20;
    std::string when;  // "2026-11-30 02:40 UTC"
    std::function<bool()> should_stop{};
    std::function<void(const std::string& line)> say{};
    std::function<void(std::string why)> on_stuck{};  // nvme/store_options.h
};

struct MeasuredMachine {
    MachineFile file;
    // "link.h2d_gb_per_s" and how it was measured; of every number that has a story.
    std::vector<std::pair<std::string, std::string>> notes;
    std::string when;
};

// Errors: does_not_fit (memory, room on a drive), the drives', stopped. What it writes is removed.
offload::Result<MeasuredMachine> measure_machine(const MeasureOptions& options);

// As a machine file: parse_machine reads the same machine, to six digits.
std::string yaml_of(const MeasuredMachine& machine);

// Whole or not at all; makes the folder. Error: failed, naming the path.
offload::Status write_machine(const MeasuredMachine& machine, const std::string& path);

}  // namespace headrace::engine
