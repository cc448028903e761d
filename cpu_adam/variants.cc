#include "cpu_adam/variants.h"

#include <array>
#include <string>

#include "offload/check.h"

namespace headrace::cpu_adam {

using offload::Error;
using offload::ErrorCode;

namespace {

constexpr std::array<Row, 3> table = {{
    {"avx512", Isa::avx512f_bw, &update_avx512},
    {"avx2", Isa::avx2_fma_f16c, &update_avx2},
    {"scalar", Isa::baseline, &update_scalar},
}};
static_assert(table.back().required_isa == Isa::baseline);

std::string supported_names() {
    std::string names;
    for (const Row& row : table) {
        if (!is_supported(row)) continue;
        if (!names.empty()) names += ", ";
        names += row.name;
    }
    return names;
}

}  // namespace

std::span<const Row> rows() {
    return table;
}

bool is_supported(const Row& row) {
    switch (row.required_isa) {
        case Isa::baseline: return true;
        case Isa::avx2_fma_f16c:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                   __builtin_cpu_supports("f16c");
        case Isa::avx512f_bw:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    }
    CHECK(false);
    return false;
}

const Row& best() {
    for (const Row& row : table) {
        if (is_supported(row)) return row;
    }
    CHECK(false);
    return table.back();
}

offload::Result<const Row*> by_name(std::string_view name) {
    for (const Row& row : table) {
        if (row.name != name) continue;
        if (is_supported(row)) return &row;
        return Error{ErrorCode::usage,
                     "the update row " + std::string(name) +
                         " needs an instruction set that this machine does not have; it can run: " +
                         supported_names(),
                     ""};
    }
    return Error{ErrorCode::usage,
                 "there is no update row \"" + std::string(name) +
                     "\"; this machine can run: " + supported_names(),
                 ""};
}

}  // namespace headrace::cpu_adam
