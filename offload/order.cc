// The order check. It does not call derive_edges: it lists the accesses of each slot over two
// periods and asks, for each adjacent conflicting pair, whether the edges order it.

#include <fmt/format.h>

#include <algorithm>

#include "offload/find_fault.h"

namespace headrace::offload {

namespace {

// Ops over two periods are numbered op + period * op_count.
using Visit = uint32_t;

class Reach {
  public:
    explicit Reach(const Schedule& schedule)
        : op_count_(static_cast<uint32_t>(schedule.ops.size())), successors_(op_count_) {
        for (const Edge& edge : schedule.edges) {
            successors_[edge.source].push_back(edge);
        }
    }

    // Whether `source` is complete before `target` starts. Direct edges answer nearly always.
    bool orders(Visit source, Visit target) {
        CHECK_LT(source, target);
        CHECK_LT(target, 2 * op_count_);
        if (has_direct(source, target)) return true;
        seen_.assign(size_t{op_count_} * 2, false);
        stack_.assign(1, source);
        while (!stack_.empty()) {
            const Visit visit = stack_.back();
            stack_.pop_back();
            if (visit == target) return true;
            for (const Edge& edge : successors_[visit % op_count_]) {
                const uint32_t period = visit / op_count_ + edge.distance;
                const Visit next = edge.target + period * op_count_;
                if (period > 1 || next > target || seen_[next]) continue;
                seen_[next] = true;
                stack_.push_back(next);
            }
        }
        return false;
    }

  private:
    bool has_direct(Visit source, Visit target) const {
        const uint32_t distance = target / op_count_ - source / op_count_;
        return std::ranges::any_of(successors_[source % op_count_], [&](const Edge& edge) {
            return edge.target == target % op_count_ && edge.distance == distance;
        });
    }

    const uint32_t op_count_;
    std::vector<std::vector<Edge>> successors_;
    std::vector<bool> seen_;
    std::vector<Visit> stack_;
};

struct Touch {
    Visit visit = 0;
    bool writes = false;
};

// Per slot, the ops that touch it over two periods, in list order; an op counts once.
std::vector<std::vector<Touch>> touches_by_slot(const Schedule& schedule) {
    std::vector<std::vector<Touch>> slots(schedule.slots.size());
    const auto op_count = static_cast<uint32_t>(schedule.ops.size());
    for (Visit visit = 0; visit < 2 * op_count; ++visit) {
        for (const Access& access : schedule.ops[visit % op_count].accesses) {
            CHECK_LT(access.slot, slots.size());
            std::vector<Touch>& touches = slots[access.slot];
            if (touches.empty() || touches.back().visit != visit) touches.push_back({visit, false});
            touches.back().writes |= access.mode == Mode::write;
        }
    }
    return slots;
}

// An edge must point forward in time, or its target and what follows could never start.
Fault find_backward_edge(const Schedule& schedule) {
    const auto op_count = static_cast<uint32_t>(schedule.ops.size());
    for (const Edge& edge : schedule.edges) {
        CHECK_LT(edge.source, op_count);
        CHECK_LT(edge.target, op_count);
        const bool is_forward = edge.distance == 0 ? edge.source < edge.target : edge.distance == 1;
        if (is_forward) continue;
        return fmt::format(
            "op {} ({}) waits for op {} ({}) over {} periods, which is not before it", edge.target,
            describe(schedule, schedule.ops[edge.target]), edge.source,
            describe(schedule, schedule.ops[edge.source]), edge.distance);
    }
    return std::nullopt;
}

}  // namespace

Fault find_order_fault(const Schedule& schedule) {
    if (schedule.ops.empty()) return std::nullopt;
    if (Fault fault = find_backward_edge(schedule)) return fault;
    const auto op_count = static_cast<uint32_t>(schedule.ops.size());
    Reach reach(schedule);
    const auto slots = touches_by_slot(schedule);
    for (SlotId slot = 0; slot < slots.size(); ++slot) {
        const std::vector<Touch>& touches = slots[slot];
        for (size_t later = 0; later < touches.size(); ++later) {
            // Back to the last writer: it, and every reader since if this one writes.
            for (size_t earlier = later; earlier-- > 0;) {
                const bool conflict = touches[earlier].writes || touches[later].writes;
                if (conflict && !reach.orders(touches[earlier].visit, touches[later].visit)) {
                    const Op& source = schedule.ops[touches[earlier].visit % op_count];
                    const Op& target = schedule.ops[touches[later].visit % op_count];
                    return fmt::format("nothing orders op {} ({}) before op {} ({}) on slot {}",
                                       touches[earlier].visit % op_count,
                                       describe(schedule, source), touches[later].visit % op_count,
                                       describe(schedule, target), slot);
                }
                if (touches[earlier].writes) break;
            }
        }
    }
    return std::nullopt;
}

}  // namespace headrace::offload
