#include "offload/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <queue>

namespace headrace::offload {

namespace {

struct OpenPeriod {
    Period period;
    std::vector<uint32_t> waits_for;  // per op: edges not yet met
    std::vector<uint8_t> is_complete;
    size_t complete_count = 0;
    Verdict verdict = Verdict::skip;
};

// What the loop asks of an op again and again, side by side: the ops themselves lie far apart.
struct Glance {
    uint8_t lane = 0;
    bool needs_train = false;
    bool needs_applied = false;
    bool is_verdict = false;
};

constexpr uint32_t op_limit = (uint32_t{1} << 31) - 1;

class Loop {
  public:
    Loop(const Schedule& schedule, Backend& backend, const RunOptions& options)
        : schedule_(schedule),
          backend_(backend),
          options_(options),
          first_edge_(schedule.ops.size() + 1, 0),
          waits_for_(schedule.ops.size(), 0),
          lane_order_(lane_kind_count) {
        CHECK(std::ranges::is_sorted(schedule.edges));
        targets_.reserve(schedule.edges.size());
        for (const Edge& edge : schedule.edges) {
            CHECK_LE(edge.distance, 1);
            CHECK_LE(edge.target, op_limit);
            ++first_edge_[edge.source + 1];
            targets_.push_back({.op = edge.target & op_limit, .distance = edge.distance == 1});
            if (edge.distance == 0) ++waits_for_[edge.target];
        }
        for (size_t op = 0; op < schedule.ops.size(); ++op) first_edge_[op + 1] += first_edge_[op];
        glances_.reserve(schedule.ops.size());
        for (OpId op = 0; op < schedule.ops.size(); ++op) {
            const Op& one = schedule.ops[op];
            glances_.push_back({.lane = static_cast<uint8_t>(one.lane.kind),
                                .needs_train = one.guard.needs_train,
                                .needs_applied = one.guard.needs_applied,
                                .is_verdict = one.kind == OpKind::verdict});
            lane_order_[lane_of(op)].push_back(op);
        }
    }

    Result<Verdict> run() {
        verdict_before_ = options_.verdict_before;
        open_next();
        open_next();
        while (!open_.empty()) {
            if (!failure_ && !is_over_) start_what_is_ready();
            if (in_flight_ > 0) {
                reap(backend_.wait());
            } else if (failure_ || is_over_) {
                break;
            } else {
                // Nothing runs and nothing can start: the period must be through.
                CHECK_EQ(open_.front().complete_count, schedule_.ops.size());
            }
            close_finished();
        }
        if (failure_) return *failure_;
        return verdict_before_;
    }

  private:
    size_t lane_of(OpId op) const { return glances_[op].lane; }

    OpenPeriod& period_at(int64_t index) {
        const auto offset = static_cast<size_t>(index - open_.front().period.index);
        CHECK_LT(offset, open_.size());
        return open_[offset];
    }

    void open_next() {
        if (open_.size() == 2 || is_exhausted_ || failure_ || is_over_) return;
        std::optional<Period> period = options_.next_period();
        if (!period) {
            is_exhausted_ = true;
            return;
        }
        period->index = next_index_++;
        if (Status status = backend_.open(*period); !status) return fail(status.error());
        OpenPeriod open{.period = *period,
                        .waits_for = waits_for_,
                        .is_complete = std::vector<uint8_t>(schedule_.ops.size(), 0)};
        if (!open_.empty()) add_waits_for(open_.back(), open.waits_for);
        open_.push_back(std::move(open));
        for (OpId op = 0; op < schedule_.ops.size(); ++op) {
            if (open_.back().waits_for[op] == 0) make_ready({period->index, op});
        }
        for (size_t lane = 0; lane < lane_order_.size(); ++lane) {
            if (!is_in_order(static_cast<LaneKind>(lane))) continue;
            for (const OpId op : lane_order_[lane]) turns_[lane].push_back({period->index, op});
        }
    }

    // What the period after `before` must still wait for of it.
    void add_waits_for(const OpenPeriod& before, std::vector<uint32_t>& waits_for) const {
        for (OpId op = 0; op < schedule_.ops.size(); ++op) {
            if (before.is_complete[op]) continue;
            for (size_t i = first_edge_[op]; i < first_edge_[op + 1]; ++i) {
                if (targets_[i].distance == 1) ++waits_for[targets_[i].op];
            }
        }
    }

    void make_ready(const Ticket& ticket) { ready_[lane_of(ticket.op)].push(ticket); }

    // The op that the lane would start now, if any.
    const Ticket* next_of(size_t lane) const {
        if (ready_[lane].empty()) return nullptr;
        const Ticket& first = ready_[lane].top();
        const bool has_turn =
            !is_in_order(static_cast<LaneKind>(lane)) || turns_[lane].front() == first;
        return has_turn ? &first : nullptr;
    }

    void start_what_is_ready() {
        while (!failure_) {
            // The earliest op in list order of all lanes that can move: the serial backend takes
            // one at a time and so follows the list exactly.
            size_t best_lane = lane_kind_count;
            for (size_t lane = 0; lane < lane_kind_count; ++lane) {
                const Ticket* ticket = next_of(lane);
                if (ticket == nullptr) continue;
                if (guard_holds(*ticket) && !backend_.can_start(static_cast<LaneKind>(lane))) {
                    continue;
                }
                if (best_lane == lane_kind_count || *ticket < *next_of(best_lane)) best_lane = lane;
            }
            if (best_lane == lane_kind_count) return;
            start(best_lane);
        }
    }

    void start(size_t lane) {
        const Ticket ticket = *next_of(lane);
        ready_[lane].pop();
        if (is_in_order(static_cast<LaneKind>(lane))) turns_[lane].pop_front();
        if (!guard_holds(ticket)) return complete(ticket, Verdict::skip);
        ++in_flight_;
        backend_.start(ticket);
    }

    // Called for ready ops only: an op that needs the verdict reads it, so it is known by then.
    bool guard_holds(const Ticket& ticket) {
        const Glance& guard = glances_[ticket.op];
        const OpenPeriod& open = period_at(ticket.period);
        if (guard.needs_train && !open.period.trains) return false;
        if (!guard.needs_applied) return true;
        const bool is_first = &open == &open_.front();
        const Verdict verdict = is_first ? verdict_before_ : open_.front().verdict;
        return verdict == Verdict::apply;
    }

    void reap(const Completion& completion) {
        CHECK_GT(in_flight_, 0);
        --in_flight_;
        if (!completion.status) {
            return fail(wrap(completion.status.error(),
                             fmt::format("{} failed in period {}",
                                         describe(schedule_, schedule_.ops[completion.ticket.op]),
                                         completion.ticket.period)));
        }
        if (options_.on_span) {
            options_.on_span({completion.ticket, completion.start_ns, completion.end_ns});
        }
        complete(completion.ticket, completion.verdict);
        if (options_.is_enough) is_over_ |= options_.is_enough();
    }

    void complete(const Ticket& ticket, Verdict verdict) {
        OpenPeriod& open = period_at(ticket.period);
        CHECK(!open.is_complete[ticket.op]);
        open.is_complete[ticket.op] = true;
        ++open.complete_count;
        if (glances_[ticket.op].is_verdict) open.verdict = verdict;
        // Of a period that is not open yet it is met when that one opens.
        OpenPeriod* const next =
            ticket.period < open_.back().period.index ? &period_at(ticket.period + 1) : nullptr;
        for (size_t i = first_edge_[ticket.op]; i < first_edge_[ticket.op + 1]; ++i) {
            const Target& target = targets_[i];
            OpenPeriod* const waiting = target.distance == 0 ? &open : next;
            if (waiting == nullptr) continue;
            uint32_t& waits_for = waiting->waits_for[target.op];
            CHECK_GT(waits_for, 0u);
            if (--waits_for == 0) make_ready({ticket.period + target.distance, target.op});
        }
    }

    void close_finished() {
        while (!open_.empty() && open_.front().complete_count == schedule_.ops.size()) {
            verdict_before_ = open_.front().verdict;
            if (Status status = backend_.close(open_.front().period); !status) {
                fail(status.error());
            }
            // Opened before the front goes, so that distance-1 edges find what they wait for.
            open_next();
            open_.pop_front();
        }
        open_next();
    }

    void fail(const Error& error) {
        if (!failure_) failure_ = error;
    }

    const Schedule& schedule_;
    Backend& backend_;
    const RunOptions& options_;
    struct Target {
        OpId op : 31;
        uint32_t distance : 1;
    };
    std::vector<Target> targets_;      // of the edges, by source
    std::vector<size_t> first_edge_;   // of each op, in targets_
    std::vector<uint32_t> waits_for_;  // per op: edges of its own period
    std::vector<Glance> glances_;      // per op
    std::vector<std::vector<OpId>> lane_order_;
    std::deque<OpenPeriod> open_;
    // Each op once: the first in list order on top.
    using Ready = std::priority_queue<Ticket, std::vector<Ticket>, std::greater<>>;
    std::array<Ready, lane_kind_count> ready_;
    std::array<std::deque<Ticket>, lane_kind_count> turns_;  // in-order lanes: what comes next
    int64_t next_index_ = 0;
    int in_flight_ = 0;
    bool is_exhausted_ = false;
    bool is_over_ = false;
    Verdict verdict_before_ = Verdict::skip;
    std::optional<Error> failure_;
};

}  // namespace

Result<Verdict> run(const Schedule& schedule, Backend& backend, const RunOptions& options) {
    CHECK(options.next_period);
    CHECK(!schedule.ops.empty());
    return Loop(schedule, backend, options).run();
}

}  // namespace headrace::offload
