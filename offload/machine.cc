#include "offload/machine.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

namespace headrace::offload {

std::string find_fault(const Machine& machine) {
    using Field = std::pair<std::string_view, double>;
    const bool has_drive = machine.drive.read_bytes_per_s != 0;
    const std::array positive = {
        Field{"gpu_flops", machine.gpu_flops},
        Field{"gpu_memory_bytes_per_s", machine.gpu_memory_bytes_per_s},
        Field{"link.h2d_bytes_per_s", machine.link.h2d_bytes_per_s},
        Field{"link.d2h_bytes_per_s", machine.link.d2h_bytes_per_s},
        Field{"update_parameters_per_s", machine.update_parameters_per_s},
        Field{"memory_bytes_per_s", machine.memory_bytes_per_s},
        Field{"core_count", machine.core_count},
        Field{"update_cores", machine.update_cores},
        Field{"drive.read_bytes_per_s", has_drive ? machine.drive.read_bytes_per_s : 1},
        Field{"drive.write_bytes_per_s", has_drive ? machine.drive.write_bytes_per_s : 1}};
    for (const auto& [name, value] : positive) {
        if (!(value > 0) || std::isinf(value)) {
            return fmt::format("{}: {} is no rate, it must be above 0", name, value);
        }
    }
    const std::array not_negative = {
        Field{"launch_s", machine.launch_s},
        Field{"link.latency_s", machine.link.latency_s},
        Field{"drive.latency_s", machine.drive.latency_s},
        Field{"drive.flush_s", machine.drive.flush_s},
        Field{"drive.burst_bytes_per_s", machine.drive.burst_bytes_per_s},
        Field{"drive.burst_bytes", machine.drive.burst_bytes},
        Field{"compute_cores", machine.compute_cores},
        Field{"copy_cores", machine.copy_cores}};
    for (const auto& [name, value] : not_negative) {
        if (!(value >= 0) || std::isinf(value)) {
            return fmt::format("{}: {} must be 0 or more", name, value);
        }
    }
    for (const auto& [name, value] : {Field{"link.both_ways", machine.link.both_ways},
                                      Field{"drive.both_ways", machine.drive.both_ways}}) {
        if (!(value >= 1 && value <= 2)) {
            return fmt::format("{}: {} is not between 1 (in turns) and 2 (at once)", name, value);
        }
    }
    return "";
}

}  // namespace headrace::offload
