// The rows of the update: one rule (cpu_adam/adamw.h), several instruction sets, the same bits.
// A row can be forced by name, so that tests and bug reports can pin it.
#pragma once

#include <span>
#include <string_view>

#include "cpu_adam/adamw.h"
#include "offload/result.h"

namespace headrace::cpu_adam {

enum class Isa : uint8_t { baseline, avx2_fma_f16c, avx512f_bw };

struct Row {
    std::string_view name;
    Isa required_isa = Isa::baseline;
    void (*update)(const StepFactors& factors, const Operands& operands) = nullptr;
};

// All rows, best first; the last one, scalar, runs everywhere.
std::span<const Row> rows();

// This machine and its operating system have the row's instruction set.
bool is_supported(const Row& row);

// The first supported row.
const Row& best();

// "avx512", "avx2", "scalar". Error (usage): no such row, or one that this machine cannot run.
offload::Result<const Row*> by_name(std::string_view name);

}  // namespace headrace::cpu_adam
