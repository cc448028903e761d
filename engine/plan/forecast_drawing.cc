#include <fmt/format.h>

#include "engine/models/effort.h"
#include "engine/plan/forecast.h"
#include "offload/build.h"
#include "offload/drawing.h"
#include "offload/numbers.h"
#include "offload/simulate.h"
#include "offload/step_recorder.h"

namespace headrace::engine {

namespace {

// What ran when in some steps of the plan; into `recorder`, which keeps the schedule's address.
void turn(const RunForecast& forecast, const offload::Schedule& schedule,
          offload::StepRecorder& recorder) {
    recorder.begin(schedule);
    simulate(schedule, forecast.machine.machine,
             effort_of(forecast.model, forecast.job.row_count_max, forecast.job.column_count_max),
             {.on_span = [&](const offload::Span& span) { recorder.add(span); }});
}

offload::Schedule schedule_of(const RunForecast& forecast) {
    offload::Result<offload::Schedule> schedule =
        offload::build(forecast.placement.workload, forecast.placement.plan);
    CHECK(schedule.ok());  // it has been simulated
    return std::move(*schedule);
}

}  // namespace

std::string html_of(const RunForecast& forecast, const Prices& prices) {
    const offload::Schedule schedule = schedule_of(forecast);
    offload::StepRecorder recorder(1);
    turn(forecast, schedule, recorder);
    const std::optional<offload::Window> step = recorder.median_step();
    CHECK(step.has_value());
    return html_of(schedule, recorder.timeline(),
                   {.title = fmt::format("One step of {} parameters on {}",
                                         offload::format_parameters(forecast.parameter_count),
                                         forecast.machine.machine.name),
                    .lines = describe(forecast, prices),
                    .begin_ns = step->begin_ns,
                    .end_ns = step->end_ns});
}

std::string trace_of(const RunForecast& forecast) {
    const offload::Schedule schedule = schedule_of(forecast);
    offload::StepRecorder recorder(1);
    turn(forecast, schedule, recorder);
    const offload::TracedRun planned{.title = "planned: " + forecast.machine.machine.name,
                                     .schedule = &schedule,
                                     .timeline = recorder.timeline()};
    return offload::trace_of({&planned, 1});
}

}  // namespace headrace::engine
