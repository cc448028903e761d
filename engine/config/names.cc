#include "engine/config/names.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "offload/check.h"

namespace headrace::engine {

namespace {

char folded(char c) {
    if (c == '-') return '_';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

int edit_distance(std::string_view left, std::string_view right) {
    // row[j]: distance between the letters of `left` so far and the first j of `right`.
    std::vector<int> row(right.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 0; i < left.size(); ++i) {
        int diagonal = row[0];
        row[0] = static_cast<int>(i) + 1;
        for (size_t j = 0; j < right.size(); ++j) {
            const int replaced = diagonal + (folded(left[i]) == folded(right[j]) ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
        }
    }
    CHECK_GE(row.back(), 0);
    return row.back();
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
    std::string_view best;
    int best_distance = std::max(1, static_cast<int>(name.size()) / 3) + 1;
    for (const std::string_view candidate : candidates) {
        CHECK(!candidate.empty());
        const int distance = edit_distance(name, candidate);
        if (distance >= best_distance) continue;
        best = candidate;
        best_distance = distance;
    }
    return best;
}

}  // namespace headrace::engine
