#include "offload/edges.h"

#include <algorithm>
#include <optional>

namespace headrace::offload {

namespace {

// An op of one of the two copies of the list.
struct Visit {
    OpId op = 0;
    uint8_t copy = 0;
};

struct SlotHistory {
    std::optional<Visit> writer;
    std::vector<Visit> readers;  // since `writer`
};

// Edges come with their targets ascending, so that one counting pass by source is enough; those of
// one target stand together in each source's stretch.
std::vector<Edge> sorted_by_source(const std::vector<Edge>& edges, size_t op_count) {
    std::vector<size_t> ends(op_count + 1, 0);
    for (const Edge& edge : edges) ++ends[edge.source + 1];
    for (size_t op = 0; op < op_count; ++op) ends[op + 1] += ends[op];
    std::vector<Edge> sorted(edges.size());
    for (const Edge& edge : edges) sorted[ends[edge.source]++] = edge;
    // Now ends[op] is where the stretch of op ends.
    size_t first = 0;
    size_t kept = 0;
    for (size_t op = 0; op < op_count; ++op) {
        for (size_t i = first; i < ends[op];) {
            size_t stop = i + 1;
            while (stop < ends[op] && sorted[stop].target == sorted[i].target) ++stop;
            std::sort(sorted.begin() + static_cast<std::ptrdiff_t>(i),
                      sorted.begin() + static_cast<std::ptrdiff_t>(stop));
            for (; i < stop; ++i) {
                if (kept == 0 || sorted[kept - 1] != sorted[i]) sorted[kept++] = sorted[i];
            }
        }
        first = ends[op];
    }
    CHECK_EQ(first, edges.size());
    CHECK_LE(kept, first);
    sorted.resize(kept);
    return sorted;
}

}  // namespace

std::vector<Edge> derive_edges(const std::vector<Op>& ops, size_t slot_count) {
    std::vector<SlotHistory> slots(slot_count);
    std::vector<Edge> edges;
    for (uint8_t copy = 0; copy < 2; ++copy) {
        for (OpId op = 0; op < ops.size(); ++op) {
            auto wait_for = [&](const Visit& source) {
                // Within the first copy an edge is also one of the second: recorded once, there.
                if (copy == 0 || (source.op == op && source.copy == copy)) return;
                edges.push_back({.source = source.op,
                                 .target = op,
                                 .distance = static_cast<uint8_t>(copy - source.copy)});
            };
            for (const Access& access : ops[op].accesses) {
                CHECK_LT(access.slot, slot_count);
                const SlotHistory& history = slots[access.slot];
                if (access.mode == Mode::read || history.readers.empty()) {
                    if (history.writer) wait_for(*history.writer);
                } else {
                    for (const Visit& reader : history.readers) wait_for(reader);
                }
            }
            for (const Access& access : ops[op].accesses) {
                if (access.mode != Mode::write) continue;
                slots[access.slot].writer = Visit{op, copy};
                slots[access.slot].readers.clear();
            }
            // Who also writes the slot is its writer; no scan of the op tells, since a commit reads
            // thousands of slots.
            for (const Access& access : ops[op].accesses) {
                if (access.mode != Mode::read) continue;
                SlotHistory& history = slots[access.slot];
                const bool writes_it =
                    history.writer && history.writer->op == op && history.writer->copy == copy;
                if (!writes_it) history.readers.push_back({op, copy});
            }
        }
    }
    return sorted_by_source(edges, ops.size());
}

}  // namespace headrace::offload
