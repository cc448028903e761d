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

bool touches(const Op& op, SlotId slot, Mode mode) {
    return std::ranges::any_of(op.accesses, [&](const Access& access) {
        return access.slot == slot && access.mode == mode;
    });
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
                SlotHistory& history = slots[access.slot];
                if (access.mode == Mode::write) {
                    history.writer = Visit{op, copy};
                    history.readers.clear();
                } else if (!touches(ops[op], access.slot, Mode::write)) {
                    history.readers.push_back({op, copy});
                }
            }
        }
    }
    std::ranges::sort(edges);
    const auto repeated = std::ranges::unique(edges);
    edges.erase(repeated.begin(), repeated.end());
    return edges;
}

}  // namespace headrace::offload
