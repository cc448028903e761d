// `headrace bench nvme`: what the drives behind some folders can do for a run, measured through the
// run's own store (nvme/probe.h): reads, writes and a step's mix of them, with the ring and with
// threads, on a few buffers and on a pool that goes round, what a burst and what lasts, and over
// several paths their striped sum beside each alone.
//
// In the same rounds the file is also read by plain calls, from its beginning to its end: the
// yardstick of the reads. No root is needed to know what was measured: by the kernel's account of
// this process, how much of the reads no drive served, which is then no drive's speed and is said
// to be none; and in the end every block is read back and its checksum compared.
//
// Rounds are interleaved, every other one backwards, and medians are shown, so that a slow minute
// of the machine hits all rows. What it writes is removed, also when it is stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/cli/bench_rows.h"
#include "engine/cli/command_line.h"
#include "nvme/drive.h"
#include "offload/result.h"

namespace headrace::engine {

struct NvmeBenchContext {
    std::string drive_cache;                             // nvme/drive_cache.h; empty: none is kept
    int64_t now_unix_s = 0;                              // for that file
    std::function<bool()> should_stop{};                 // asked often
    std::function<void(const std::string& line)> say{};  // progress, for people
    // A drive hangs: to be told and left with _exit (nvme/store_options.h).
    std::function<void(std::string why)> on_stuck{};
};

// One path, or all of them together (the last group where there are several).
struct NvmeBenchGroup {
    std::string title;  // the folder and what the system says of it
    std::vector<BenchRow> rows;
    std::vector<std::string> notes;  // one line each
};

// Errors: a usage the probe refuses; no room or no right, before anything is measured; the drive's;
// stopped.
offload::Result<std::vector<NvmeBenchGroup>> bench_nvme(const BenchNvmeCommand& command,
                                                        const NvmeBenchContext& context);

// As the table for people.
std::string text_of(const std::vector<NvmeBenchGroup>& groups);

}  // namespace headrace::engine
