#include "engine/config/names.h"

#include <algorithm>
#include <numeric>
#include <utility>
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
    // Row i, column j: distance between the first i letters of `left` and the first j of `right`.
    // Only the last three rows are kept.
    std::vector<int> before_last(right.size() + 1);
    std::vector<int> last(right.size() + 1);
    std::vector<int> row(right.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 1; i <= left.size(); ++i) {
        std::swap(before_last, last);
        std::swap(last, row);
        row[0] = static_cast<int>(i);
        for (size_t j = 1; j <= right.size(); ++j) {
            const char here = folded(left[i - 1]);
            const int replaced = last[j - 1] + (here == folded(right[j - 1]) ? 0 : 1);
            row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
            const bool is_swap = i > 1 && j > 1 && here == folded(right[j - 2]) &&
                                 folded(left[i - 2]) == folded(right[j - 1]);
            if (is_swap) row[j] = std::min(row[j], before_last[j - 2] + 1);
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
