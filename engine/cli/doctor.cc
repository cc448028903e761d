#include "engine/cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/cli/run_inputs.h"
#include "engine/config/machine_file.h"
#include "engine/data/child.h"
#include "kernels/cuda_module.h"
#include "nvme/file_system.h"
#include "nvme/uring_probe.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::format_bytes;
using State = DoctorRow::State;

namespace {

// Registered I/O buffers count as locked memory for users who are not root (kernels before 5.12
// count every ring, too). Below this a small run already cannot register.
constexpr uint64_t memlock_wanted_bytes = 512 * offload::mib;

DoctorRow memlock_row(const Machine& machine) {
    DoctorRow row{.name = "locked memory", .fact = "unlimited", .remedy = {}};
    if (!machine.memlock_limit_bytes) return row;
    row.fact = format_bytes(*machine.memlock_limit_bytes);
    if (*machine.memlock_limit_bytes >= memlock_wanted_bytes) return row;
    row.state = State::slower;
    row.remedy =
        "large I/O buffers may not be registered: raise it with `ulimit -l unlimited`, or "
        "memlock in /etc/security/limits.conf";
    return row;
}

DoctorRow huge_page_row(const Machine& machine) {
    const std::string& mode = machine.transparent_huge_pages;
    DoctorRow row{
        .name = "huge pages",
        .fact = fmt::format("transparent: {}, reserved: {}", mode.empty() ? "not there" : mode,
                            machine.reserved_huge_page_count),
        .remedy = {}};
    if (mode == "always" || mode == "madvise" || machine.reserved_huge_page_count > 0) return row;
    row.state = State::slower;
    row.remedy =
        "I/O is up to twice as fast on huge pages: "
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    return row;
}

DoctorRow cpu_row(const Machine& machine) {
    DoctorRow row{
        .name = "processor",
        .fact = fmt::format(
            "{} ({}), {} logical; {}", machine.cpu_model, machine.cpu_kind, machine.cpu_count,
            machine.cpu_features.empty() ? "no AVX2"
                                         : fmt::format("{}", fmt::join(machine.cpu_features, " "))),
        .remedy = {}};
    const auto has = [&machine](const char* feature) {
        return std::ranges::find(machine.cpu_features, feature) != machine.cpu_features.end();
    };
    if (!has("avx2") || !has("fma")) {
        row.state = State::slower;
        row.remedy = "the optimizer runs one element at a time here";
    } else if (!has("avx512_bf16")) {
        row.fact += " (no bf16 arithmetic: device host multiplies in fp32)";
    }
    return row;
}

DoctorRow memory_row(const Machine& machine) {
    std::string fact = fmt::format("{}, {} free", format_bytes(machine.ram_bytes),
                                   format_bytes(machine.ram_free_bytes()));
    if (machine.ram_limit_bytes) {
        fact += fmt::format(" (limited to {} by a memory cgroup)",
                            format_bytes(*machine.ram_limit_bytes));
    }
    return {.name = "memory", .fact = fact, .remedy = {}};
}

State state_of(nvme::Verdict verdict) {
    if (verdict == nvme::Verdict::works) return State::good;
    return verdict == nvme::Verdict::refused ? State::missing : State::slower;
}

// Folders on one drive: striping over them gains nothing.
void mark_shared_drives(const std::vector<std::string>& folders, std::vector<DoctorRow>& rows) {
    CHECK_EQ(rows.size(), folders.size());
    std::map<std::string, std::string> first_on;
    for (size_t i = 0; i < folders.size(); i++) {
        for (const std::string& drive : nvme::drives_of(folders[i])) {
            const auto [found, is_new] = first_on.emplace(drive, folders[i]);
            if (is_new || rows[i].state == State::missing) continue;
            rows[i].state = State::slower;
            rows[i].fact += fmt::format("; on {}, as is {}", drive, found->second);
            rows[i].remedy += rows[i].remedy.empty() ? "" : "; ";
            rows[i].remedy += "name one folder per drive: two on one are no faster";
        }
    }
}

std::string first_line_of(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

DoctorRow python_row(const std::string& python) {
    DoctorRow row{.name = "python", .fact = python, .remedy = {}};
    const auto child =
        run_child({python, "-c", "import tokenizers, jinja2; print(tokenizers.__version__)"});
    if (child && child->exit_code == 0) {
        row.fact += ", tokenizers " + first_line_of(child->output);
        return row;
    }
    row.state = State::missing;
    row.fact += child ? " has no tokenizers" : " does not run";
    row.remedy = "text and chats cannot be prepared: ./scripts/setup, or HEADRACE_PYTHON=...";
    return row;
}

}  // namespace

std::vector<DoctorRow> rows_of(const Machine& machine) {
    return {{.name = "kernel", .fact = machine.kernel, .remedy = {}},
            cpu_row(machine),
            memory_row(machine),
            memlock_row(machine),
            huge_page_row(machine)};
}

std::vector<DoctorRow> rows_of_drives(const std::vector<std::string>& folders) {
    std::vector<DoctorRow> rows;
    for (const std::string& folder : folders) {
        DoctorRow row{.name = "drive", .fact = folder, .remedy = {}};
        const std::optional<DriveSpace> space = read_drive_space(folder);
        if (!space) {
            row.state = State::missing;
            row.fact += " is not there";
            row.remedy = "make the folder, or name another";
        } else {
            const nvme::FileSystem& found = nvme::file_system_at(folder);
            const bool is_known = found.name != "unknown";
            row.fact += fmt::format(": {}, {} free; {}",
                                    is_known ? std::string(found.name) : space->file_system,
                                    format_bytes(space->free_bytes), found.sentence);
            row.state = state_of(found.verdict);
            if (row.state != State::good) row.remedy = found.remedy;
        }
        rows.push_back(row);
    }
    CHECK_EQ(rows.size(), folders.size());
    if (folders.size() > 1) mark_shared_drives(folders, rows);
    return rows;
}

std::vector<DoctorRow> rows_of_software(const Environment& environment) {
    DoctorRow uring{.name = "io_uring", .fact = "works", .remedy = {}};
    const nvme::UringFacts facts = nvme::look_at_io_uring();
    if (facts.failed_call != nvme::UringFacts::Call::none) {
        uring.state = State::slower;
        uring.fact = "forbidden, up to eight threads per drive instead: " + nvme::ban_of(facts);
        uring.remedy = nvme::remedy_of(facts);
    }
    DoctorRow cuda{.name = "cuda", .fact = {}, .remedy = {}};
    const auto described = kernels::describe_cuda(kernels::cuda_module_path());
    if (described) {
        cuda.fact = *described + ": train does not use it yet, device host is used";
    } else {
        cuda.state = State::missing;
        cuda.fact = "device host is used";
        cuda.remedy = described.error().text();
    }
    return {uring, cuda, python_row(environment.python)};
}

DoctorRow row_of_rates(const Environment& environment) {
    const std::string& path = environment.measured_machine;
    DoctorRow row{.name = "rates", .fact = "measured, " + path, .remedy = {}};
    const auto measured = load_measured_machine(path);
    if (measured && *measured) return row;
    row.state = measured ? State::slower : State::missing;
    row.remedy = "headrace doctor --probe --nvme FOLDER measures them, for plans and placements";
    row.fact = measured
                   ? "not measured: train places by nominal ones" + say_rates_elsewhere(environment)
                   : measured.error().text();
    return row;
}

std::string table_of(const std::vector<DoctorRow>& rows) {
    std::string text;
    for (const DoctorRow& row : rows) {
        CHECK(row.state == State::good || !row.remedy.empty());
        const char* const mark = row.state == State::good     ? "ok"
                                 : row.state == State::slower ? "slower"
                                                              : "missing";
        text += fmt::format("{:<14} {:<8} {}\n", row.name, mark, row.fact);
        if (!row.remedy.empty()) text += fmt::format("{:<23} -> {}\n", "", row.remedy);
    }
    return text;
}

}  // namespace headrace::engine
