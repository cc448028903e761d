// What `headrace doctor` says: one row per fact, and for what is in the way the remedy.
#pragma once

#include <string>
#include <vector>

#include "engine/cli/environment.h"
#include "engine/config/machine.h"

namespace headrace::engine {

struct DoctorRow {
    enum class State : uint8_t { good, slower, missing };
    std::string name;
    State state = State::good;
    std::string fact;
    std::string remedy;  // empty where the state is good
};

// From facts alone: kernel, processor, memory and its limits, huge pages.
std::vector<DoctorRow> rows_of(const Machine& machine);

// One row per folder: its file system, what that is worth, free space, and whether another of the
// folders lies on the same drive.
std::vector<DoctorRow> rows_of_drives(const std::vector<std::string>& folders);

// Asks the system: io_uring (and what lifts a ban of it), the CUDA module, Python.
std::vector<DoctorRow> rows_of_software(const Environment& environment);

// Whether the rates of this machine were measured, which plans need.
DoctorRow row_of_rates(const Environment& environment);

// The rows as aligned lines.
std::string table_of(const std::vector<DoctorRow>& rows);

}  // namespace headrace::engine
