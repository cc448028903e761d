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
    std::vector<bool> is_complete;
    size_t complete_count = 0;
    Verdict verdict = Verdict::skip;
};

class Loop {
  public:
    Loop(const Schedule& schedule, Backend& backend, const RunOptions& options)
        : schedule_(schedule),
          backend_(backend),
          options_(options),
          first_edge_(schedule.ops.size() + 1, 0),
          lane_order_(lane_kind_count) {
        CHECK(std::ranges::is_sorted(schedule.edges));
        for (const Edge& edge : schedule.edges) ++first_edge_[edge.source + 1];
        for (size_t op = 0; op < schedule.ops.size(); ++op) first_edge_[op + 1] += first_edge_[op];
        for (OpId op = 0; op < schedule.ops.size(); ++op) {
            lane_order_[lane_of(op)].push_back(op);
        }
    }

    Result<Verdict> run() {
        verdict_before_ = options_.verdict_before;
        open_next();
        open_next();
        while (!open_.empty()) {
            if (!failure_) start_what_is_ready();
            if (in_flight_ > 0) {
                reap(backend_.wait());
            } else if (failure_) {
                return *failure_;
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
    size_t lane_of(OpId op) const { return static_cast<size_t>(schedule_.ops[op].lane.kind); }

    OpenPeriod& period_at(int64_t index) {
        const auto offset = static_cast<size_t>(index - open_.front().period.index);
        CHECK_LT(offset, open_.size());
        return open_[offset];
    }

    void open_next() {
        if (open_.size() == 2 || is_exhausted_ || failure_) return;
        std::optional<Period> period = options_.next_period();
        if (!period) {
            is_exhausted_ = true;
            return;
        }
        period->index = next_index_++;
        if (Status status = backend_.open(*period); !status) return fail(status.error());
        OpenPeriod open{.period = *period,
                        .waits_for = std::vector<uint32_t>(schedule_.ops.size(), 0),
                        .is_complete = std::vector<bool>(schedule_.ops.size(), false)};
        for (const Edge& edge : schedule_.edges) {
            const bool is_met =
                edge.distance == 1 && (open_.empty() || open_.back().is_complete[edge.source]);
            if (!is_met) ++open.waits_for[edge.target];
        }
        open_.push_back(std::move(open));
        for (OpId op = 0; op < schedule_.ops.size(); ++op) {
            if (open_.back().waits_for[op] == 0) make_ready({period->index, op});
        }
        for (size_t lane = 0; lane < lane_order_.size(); ++lane) {
            if (!is_in_order(static_cast<LaneKind>(lane))) continue;
            for (const OpId op : lane_order_[lane]) turns_[lane].push_back({period->index, op});
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
        const Guard& guard = schedule_.ops[ticket.op].guard;
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
    }

    void complete(const Ticket& ticket, Verdict verdict) {
        OpenPeriod& open = period_at(ticket.period);
        CHECK(!open.is_complete[ticket.op]);
        open.is_complete[ticket.op] = true;
        ++open.complete_count;
        if (schedule_.ops[ticket.op].kind == OpKind::verdict) open.verdict = verdict;
        for (size_t i = first_edge_[ticket.op]; i < first_edge_[ticket.op + 1]; ++i) {
            const Edge& edge = schedule_.edges[i];
            const int64_t index = ticket.period + edge.distance;
            if (index > open_.back().period.index) continue;  // met when that period opens
            uint32_t& waits_for = period_at(index).waits_for[edge.target];
            CHECK_GT(waits_for, 0u);
            if (--waits_for == 0) make_ready({index, edge.target});
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
    std::vector<size_t> first_edge_;  // of each op, in the sorted edges
    std::vector<std::vector<OpId>> lane_order_;
    std::deque<OpenPeriod> open_;
    // Each op once: the first in list order on top.
    using Ready = std::priority_queue<Ticket, std::vector<Ticket>, std::greater<>>;
    std::array<Ready, lane_kind_count> ready_;
    std::array<std::deque<Ticket>, lane_kind_count> turns_;  // in-order lanes: what comes next
    int64_t next_index_ = 0;
    int in_flight_ = 0;
    bool is_exhausted_ = false;
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
