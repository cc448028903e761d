#include "engine/config/machine_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <vector>

#include "engine/checkpoint/file.h"
#include "engine/config/yaml_value.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;

namespace {

// Rates and times stand between bounds that no machine comes near: a step's time stays a number
// that a clock of nanoseconds can hold.
enum class Unit : uint8_t { bytes, rate, time, cores, count, factor };
enum class Need : uint8_t { always, may_be_absent };

// One key: a number times `factor`, or a size.
struct Field {
    std::string_view name;  // "gpu.tflops"
    Unit unit = Unit::rate;
    Need need = Need::always;
    double factor = 1;
    void (*set)(MachineFile&, double) = nullptr;
};

constexpr double tera = 1e12, giga = 1e9, milli = 1e-3, micro = 1e-6;
constexpr Unit bytes = Unit::bytes, rate = Unit::rate, time_unit = Unit::time, cores = Unit::cores,
               count = Unit::count, factor = Unit::factor;
constexpr Need must = Need::always, may = Need::may_be_absent;

uint64_t whole(double value) {
    return static_cast<uint64_t>(value);
}

constexpr Field fields[] = {
    {"gpu.memory", bytes, must, 1,
     [](MachineFile& f, double v) { f.ceilings.gpu_bytes = whole(v); }},
    {"gpu.tflops", rate, must, tera, [](MachineFile& f, double v) { f.machine.gpu_flops = v; }},
    {"gpu.fp32_tflops", rate, may, tera, [](MachineFile& f, double v) { f.fp32_flops = v; }},
    {"gpu.memory_gb_per_s", rate, must, giga,
     [](MachineFile& f, double v) { f.machine.gpu_memory_bytes_per_s = v; }},
    {"gpu.launch_us", time_unit, may, micro,
     [](MachineFile& f, double v) { f.machine.launch_s = v; }},
    {"gpu.cores", cores, may, 1, [](MachineFile& f, double v) { f.machine.compute_cores = v; }},
    {"link.h2d_gb_per_s", rate, must, giga,
     [](MachineFile& f, double v) { f.machine.link.h2d_bytes_per_s = v; }},
    {"link.d2h_gb_per_s", rate, must, giga,
     [](MachineFile& f, double v) { f.machine.link.d2h_bytes_per_s = v; }},
    {"link.latency_us", time_unit, may, micro,
     [](MachineFile& f, double v) { f.machine.link.latency_s = v; }},
    {"link.both_ways", factor, may, 1,
     [](MachineFile& f, double v) { f.machine.link.both_ways = v; }},
    {"link.cores", cores, may, 1, [](MachineFile& f, double v) { f.machine.copy_cores = v; }},
    {"ram.memory", bytes, must, 1,
     [](MachineFile& f, double v) { f.ceilings.ram_bytes = whole(v); }},
    {"ram.gb_per_s", rate, must, giga,
     [](MachineFile& f, double v) { f.machine.memory_bytes_per_s = v; }},
    {"cpu.cores", cores, must, 1, [](MachineFile& f, double v) { f.machine.core_count = v; }},
    {"cpu.update_cores", cores, must, 1,
     [](MachineFile& f, double v) { f.machine.update_cores = v; }},
    {"cpu.update_gparam_per_s", rate, must, giga,
     [](MachineFile& f, double v) { f.machine.update_parameters_per_s = v; }},
    {"drive.count", count, must, 1,
     [](MachineFile& f, double v) { f.drive_count = static_cast<uint32_t>(v); }},
    {"drive.space", bytes, may, 1,
     [](MachineFile& f, double v) { f.ceilings.nvme_bytes = whole(v); }},
    {"drive.read_gb_per_s", rate, must, giga,
     [](MachineFile& f, double v) { f.machine.drive.read_bytes_per_s = v; }},
    {"drive.write_gb_per_s", rate, must, giga,
     [](MachineFile& f, double v) { f.machine.drive.write_bytes_per_s = v; }},
    {"drive.burst_gb_per_s", rate, may, giga,
     [](MachineFile& f, double v) { f.machine.drive.burst_bytes_per_s = v; }},
    {"drive.burst", bytes, may, 1,
     [](MachineFile& f, double v) { f.machine.drive.burst_bytes = v; }},
    {"drive.latency_us", time_unit, may, micro,
     [](MachineFile& f, double v) { f.machine.drive.latency_s = v; }},
    {"drive.flush_ms", time_unit, may, milli,
     [](MachineFile& f, double v) { f.machine.drive.flush_s = v; }},
    {"drive.both_ways", factor, may, 1,
     [](MachineFile& f, double v) { f.machine.drive.both_ways = v; }},
    {"drive.written_in_life", bytes, may, 1,
     [](MachineFile& f, double v) { f.written_in_life_bytes = v; }},
};

constexpr std::string_view sections[] = {"gpu", "link", "ram", "cpu", "drive"};

// What numbers of a unit lie between, as they stand in the file.
struct Bounds {
    double least = 0;
    double most = 0;
};

Bounds bounds_of(const Field& field) {
    switch (field.unit) {
        case Unit::bytes: break;
        case Unit::rate: return {field.need == Need::always ? 1e-5 : 0, 1e9};
        case Unit::time: return {0, 1e6};
        case Unit::cores: return {field.need == Need::always ? 1e-3 : 0, 1e6};
        case Unit::count: return {1, 1024};
        case Unit::factor: return {1, 2};
    }
    CHECK(field.unit == Unit::bytes);
    return {};
}

std::string wanted_of(const Field& field) {
    if (field.unit == Unit::bytes) return "a size, such as 22GiB";
    const auto [least, most] = bounds_of(field);
    CHECK_LT(least, most);
    return fmt::format("{} from {} to {}",
                       field.unit == Unit::count ? "a whole number" : "a number", least, most);
}

std::optional<double> value_of(const YamlValue& value, const Field& field) {
    if (value.kind != YamlValue::Kind::scalar) return std::nullopt;
    if (field.unit == Unit::bytes) {
        const Result<uint64_t> size_bytes = offload::parse_bytes(value.text);
        if (!size_bytes) return std::nullopt;
        return static_cast<double>(*size_bytes);
    }
    double parsed = 0;
    const char* const end = value.text.data() + value.text.size();
    const auto [stop, error] = std::from_chars(value.text.data(), end, parsed);
    if (error != std::errc() || stop != end) return std::nullopt;
    const auto [least, most] = bounds_of(field);
    if (!(parsed >= least && parsed <= most)) return std::nullopt;
    if (field.unit == Unit::count && parsed != std::floor(parsed)) return std::nullopt;
    return parsed;
}

class Reader {
  public:
    Reader(const std::string& source, MachineFile& file) : source_(source), file_(file) {}

    void read(const YamlValue& root) {
        if (root.kind != YamlValue::Kind::map) return fault(root, "must have sections: gpu, link");
        for (size_t i = 0; i < root.items.size(); ++i) {
            const std::string& name = root.keys[i];
            const YamlValue& item = root.items[i];
            if (name == "name" && item.kind == YamlValue::Kind::scalar) {
                file_.machine.name = item.text;
            } else if (std::ranges::find(sections, name) == std::end(sections)) {
                fault(item, fmt::format("unknown key '{}'; known are name, {}", name,
                                        fmt::join(sections, ", ")));
            } else if (item.kind != YamlValue::Kind::map) {
                fault(item, fmt::format("'{}' must be a section with keys of its own", name));
            } else {
                read_section(name, item);
            }
        }
        for (const Field& field : fields) check_present(field);
        const offload::Machine& read = file_.machine;
        if (faults.empty() && read.update_cores > read.core_count) {
            faults.push_back(
                fmt::format("{}: 'cpu.update_cores' ({}) are more than 'cpu.cores' "
                            "({})",
                            source_, read.update_cores, read.core_count));
        }
        const bool has_space = std::ranges::find(given_, "drive.space") != given_.end();
        if (has_drive_ && !has_space) file_.ceilings.nvme_bytes = unlimited_bytes;
    }

    std::vector<std::string> faults;

  private:
    void read_section(const std::string& section, const YamlValue& items) {
        has_drive_ |= section == "drive";
        for (size_t i = 0; i < items.items.size(); ++i) {
            const std::string name = section + "." + items.keys[i];
            const YamlValue& item = items.items[i];
            const auto field = std::ranges::find(fields, name, &Field::name);
            if (field == std::end(fields)) {
                fault(item, fmt::format("unknown key '{}'", name));
                continue;
            }
            given_.push_back(field->name);
            const std::optional<double> value = value_of(item, *field);
            if (value) {
                field->set(file_, *value * field->factor);
            } else {
                fault(item, fmt::format("'{}' must be {}, but is {}", name, wanted_of(*field),
                                        item.description()));
            }
        }
    }

    void check_present(const Field& field) {
        if (field.need == Need::may_be_absent) return;
        if (field.name.starts_with("drive.") && !has_drive_) return;
        if (std::ranges::find(given_, field.name) != given_.end()) return;
        faults.push_back(fmt::format("{}: '{}' is missing", source_, field.name));
    }

    void fault(const YamlValue& at, const std::string& text) {
        faults.push_back(fmt::format("{}:{}: {}", source_, at.line, text));
    }

    const std::string& source_;
    MachineFile& file_;
    std::vector<std::string_view> given_;
    bool has_drive_ = false;
};

// Far more than any machine file has, and little enough to be read whole.
constexpr uint64_t machine_file_bytes_max = offload::mib;

// By name; none where the folder cannot be read.
std::vector<std::filesystem::path> yaml_files_in(const std::filesystem::path& folder) {
    CHECK(!folder.empty());
    std::vector<std::filesystem::path> paths;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    return paths;
}

// "; there are a.yaml, b.yaml" of the folder where the file was looked for.
std::string files_beside(const std::filesystem::path& path) {
    const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    std::vector<std::string> names;
    for (const std::filesystem::path& file : yaml_files_in(folder)) names.push_back(file.string());
    if (names.empty()) return "; name its path, such as configs/hardware/rtx4090.yaml";
    return fmt::format("; there are {}", fmt::join(names, ", "));
}

}  // namespace

MachineFile in_dtype(MachineFile file, offload::Dtype dtype) {
    if (dtype != offload::Dtype::bf16 && file.fp32_flops > 0) {
        file.machine.gpu_flops = file.fp32_flops;
    }
    file.fp32_flops = 0;
    return file;
}

Result<MachineFile> parse_machine(const std::string& text, const std::string& source) {
    Result<ParsedYaml> parsed = parse_yaml(text, source);
    if (!parsed) return parsed.error();
    MachineFile file;
    Reader reader(source, file);
    for (const std::string& fault : parsed->faults) {
        reader.faults.push_back(fmt::format("{}: {}", source, fault));
    }
    reader.read(parsed->root);
    if (reader.faults.empty()) {
        const std::string fault = find_fault(file.machine);
        if (!fault.empty()) reader.faults.push_back(fmt::format("{}: {}", source, fault));
    }
    if (reader.faults.empty()) return file;
    return Error{ErrorCode::usage, "the machine file cannot be used",
                 fmt::format("{}", fmt::join(reader.faults, "\n  "))};
}

Result<MachineFile> load_machine(const std::string& path) {
    const Result<std::string> text = read_text(path, machine_file_bytes_max);
    if (!text) {
        return Error{ErrorCode::usage, fmt::format("cannot read the machine file '{}'", path),
                     text.error().text() + files_beside(path)};
    }
    Result<MachineFile> file = parse_machine(*text, path);
    if (file && file->machine.name.empty()) {
        file->machine.name = std::filesystem::path(path).stem().string();
    }
    return file;
}

Result<std::optional<MachineFile>> emulated_card(const RunConfig& config) {
    if (config.emulate.empty()) return std::optional<MachineFile>{};
    Result<MachineFile> card = load_machine(config.emulate);
    if (!card) return card.error();
    return std::optional(std::move(*card));
}

std::string measured_machine_path(const std::string& cache_folder, const std::string& cpu_kind,
                                  int64_t core_count) {
    CHECK_GE(core_count, 1);
    if (cache_folder.empty()) return "";
    const std::string name =
        fmt::format("machine-{}-{}cores.yaml", cpu_kind.empty() ? "unknown" : cpu_kind, core_count);
    return (std::filesystem::path(cache_folder) / name).string();
}

std::vector<std::string> measured_elsewhere(const std::string& path) {
    std::vector<std::string> names;
    if (path.empty()) return names;
    const std::filesystem::path own(path);
    CHECK(own.has_parent_path());
    std::error_code ignored;
    for (const std::filesystem::path& file : yaml_files_in(own.parent_path())) {
        const std::string name = file.filename().string();
        const bool is_rates = (name.starts_with("machine-") || name == "machine.yaml") &&
                              std::filesystem::is_regular_file(file, ignored);
        if (is_rates && name != own.filename()) names.push_back(name);
    }
    return names;
}

Result<std::optional<MachineFile>> load_measured_machine(const std::string& path) {
    std::error_code ignored;
    if (path.empty() || !std::filesystem::exists(path, ignored)) {
        return std::optional<MachineFile>();
    }
    Result<MachineFile> file = load_machine(path);
    if (file) return std::optional<MachineFile>(std::move(*file));
    Error error = wrap(file.error(), "the rates measured of this machine");
    error.cause +=
        "; headrace doctor --probe measures them anew, without the file they are not known";
    return error;
}

}  // namespace headrace::engine
