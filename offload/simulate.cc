#include "offload/simulate.h"

#include <algorithm>
#include <vector>

#include "offload/simulated.h"

namespace headrace::offload {

namespace {

Burst burst_of(const DriveRates& drive) {
    if (drive.burst_bytes_per_s <= drive.write_bytes_per_s) return {};
    return {.work_s = drive.burst_bytes / drive.write_bytes_per_s,
            .speed = drive.burst_bytes_per_s / drive.write_bytes_per_s};
}

// What happened in the periods: when each was decided, and each lane's spans.
class Watch {
  public:
    Watch(const Schedule& schedule, int period_count)
        : schedule_(schedule), decided_ns_(static_cast<size_t>(period_count), 0) {}

    void add(const Span& span) {
        const Op& op = schedule_.ops[span.ticket.op];
        now_ns_ = span.end_ns;
        if (op.kind == OpKind::verdict) {
            decided_ns_[static_cast<size_t>(span.ticket.period)] = span.end_ns;
        }
        spans_[static_cast<size_t>(op.lane.kind)].push_back(span);
    }

    // Whether the step that is told of is over.
    bool has_seen_all() const { return decided_ns_[decided_ns_.size() - 2] > 0; }

    // Seconds that the step has taken so far.
    double so_far_s() const {
        const int64_t begin_ns = decided_ns_[decided_ns_.size() - 3];
        return begin_ns == 0 ? 0 : static_cast<double>(now_ns_ - begin_ns) * 1e-9;
    }

    // Of the step, as far as it was seen.
    Forecast forecast() const {
        const int64_t end_ns = has_seen_all() ? decided_ns_[decided_ns_.size() - 2] : now_ns_;
        const int64_t begin_ns = decided_ns_[decided_ns_.size() - 3];
        Forecast forecast{.step_s = static_cast<double>(end_ns - begin_ns) * 1e-9};
        for (size_t lane = 0; lane < spans_.size(); ++lane) {
            for (const Span& span : spans_[lane]) {
                const int64_t start_ns = std::max(span.start_ns, begin_ns);
                const int64_t stop_ns = std::min(span.end_ns, end_ns);
                if (stop_ns > start_ns) {
                    forecast.busy_s[lane] += static_cast<double>(stop_ns - start_ns) * 1e-9;
                }
            }
        }
        return forecast;
    }

  private:
    const Schedule& schedule_;
    std::vector<int64_t> decided_ns_;
    int64_t now_ns_ = 0;
    std::array<std::vector<Span>, lane_kind_count> spans_;
};

}  // namespace

Forecast simulate(const Schedule& schedule, const Machine& machine, const Effort& effort,
                  const SimulateOptions& options) {
    CHECK_GE(options.period_count, 3);
    CHECK_EQ(schedule.workload.purpose, Purpose::train);
    std::vector<Demand> demands = demands_of(schedule, machine, effort);
    std::array<double, lane_kind_count> alone_s = {};
    for (OpId op = 0; op < schedule.ops.size(); ++op) {
        alone_s[static_cast<size_t>(schedule.ops[op].lane.kind)] += demands[op].work_s;
    }
    SimulatedBackend backend(schedule, std::move(demands), options.verdict,
                             options.bursts ? burst_of(machine.drive) : Burst{});
    Watch watch(schedule, options.period_count);
    int opened = 0;
    const auto next_period = [&]() -> std::optional<Period> {
        if (opened == options.period_count) return {};
        ++opened;
        return Period{};
    };
    const auto is_enough = [&] {
        return !options.on_span && (watch.has_seen_all() || watch.so_far_s() >= options.worth_s);
    };
    const Result<Verdict> ended = run(schedule, backend,
                                      {.next_period = next_period,
                                       .verdict_before = options.verdict,
                                       .on_span =
                                           [&](const Span& span) {
                                               watch.add(span);
                                               if (options.on_span) options.on_span(span);
                                           },
                                       .is_enough = is_enough});
    CHECK(ended.ok());  // nothing fails where nothing is done
    Forecast forecast = watch.forecast();
    CHECK_GE(forecast.step_s, 0.0);
    forecast.alone_s = alone_s;
    for (const LaneKind lane :
         {LaneKind::nvme_read, LaneKind::nvme_write, LaneKind::h2d, LaneKind::d2h}) {
        forecast.moved_bytes[static_cast<size_t>(lane)] = moved_bytes(schedule, lane);
    }
    return forecast;
}

}  // namespace headrace::offload
