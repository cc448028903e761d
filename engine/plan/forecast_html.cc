#include <fmt/format.h>

#include "engine/models/effort.h"
#include "engine/plan/forecast.h"
#include "offload/build.h"
#include "offload/drawing.h"
#include "offload/simulate.h"
#include "offload/step_recorder.h"

namespace headrace::engine {

std::string html_of(const RunForecast& forecast, const Prices& prices) {
    const Placement& placement = forecast.placement;
    const offload::Result<offload::Schedule> schedule =
        offload::build(placement.workload, placement.plan);
    CHECK(schedule.ok());  // it has been simulated
    offload::StepRecorder recorder(1);
    recorder.begin(*schedule);
    simulate(*schedule, forecast.machine.machine,
             effort_of(forecast.model, forecast.job.row_count_max, forecast.job.column_count_max),
             {.on_span = [&](const offload::Span& span) { recorder.add(span); }});
    const std::optional<offload::Window> step = recorder.median_step();
    CHECK(step.has_value());
    return html_of(*schedule, recorder.timeline(),
                   {.title = fmt::format("One step of {:.2f} billion parameters on {}",
                                         static_cast<double>(forecast.parameter_count) / 1e9,
                                         forecast.machine.machine.name),
                    .lines = describe(forecast, prices),
                    .begin_ns = step->begin_ns,
                    .end_ns = step->end_ns});
}

}  // namespace headrace::engine
