// What a bench prints: one list of rows, for people as a table and for programs as JSON. Every row
// says what was achieved beside what could be.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/rehearse/rounds.h"
#include "offload/result.h"

namespace headrace::engine {

// More that a row has to say, in JSON only: {"path": "/mnt/a", "depth": 8, ...}.
using BenchFact = std::variant<std::string, double, uint64_t, bool>;

struct BenchRow {
    std::string name;
    std::string unit;               // "GB/s"
    std::vector<double> samples{};  // of each round
    double achieved = 0;            // their median
    double ceiling = 0;             // 0: none is known
    std::string against{};          // what the ceiling is
    std::vector<std::pair<std::string, BenchFact>> facts{};

    double ratio() const { return ceiling > 0 ? achieved / ceiling : 0; }
};

// [{"name", "unit", "achieved", "ceiling", "ratio", "against", "rounds", "samples", facts...},
// ...], and a line end. What is not known is null.
std::string json_of(const std::vector<BenchRow>& rows);

// A group of rows of one unit as aligned lines, `columns` being facts to show as well.
struct BenchColumn {
    std::string fact;
    std::string title;
    int decimals = 3;  // of a number; bytes are shown as such where the fact ends in _bytes
};
std::string table_of(const std::vector<BenchRow>& rows, const std::vector<BenchColumn>& columns);

// Of a bench that was asked to stop between two measurements.
offload::Error stopped_bench();

}  // namespace headrace::engine
