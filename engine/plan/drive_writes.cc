#include "engine/plan/drive_writes.h"

#include <fmt/format.h>

#include "offload/build.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::format_bytes;
using offload::Kind;
using offload::Plan;
using offload::Purpose;
using offload::Workload;

namespace {

// In one period whose guards all hold, with as many micro-batches as a step can have.
uint64_t written_bytes(Workload workload, const Plan& plan, Purpose purpose) {
    workload.micro_batch_count = workload.micro_batch_count_max;
    workload.purpose = purpose;
    return moved_bytes(build(workload, plan).value(), offload::LaneKind::nvme_write);
}

}  // namespace

DriveWrites drive_writes_of(const Placement& placement, LoadedStates states,
                            int64_t evaluated_micro_batch_count) {
    CHECK_GE(evaluated_micro_batch_count, 0);
    const Workload& workload = placement.workload;
    const Plan& plan = placement.plan;
    const offload::SlotTable table = lay_slots(workload, plan);
    const bool saves = commit_of(plan) == offload::CommitAt::saves;
    DriveWrites writes{.step_bytes = written_bytes(workload, plan, Purpose::train)};
    for (uint32_t part = 0; part < plan.homes.size(); ++part) {
        const auto count = [&](Kind kind, offload::Tier home, offload::SlotId mirror) {
            const uint64_t part_bytes = bytes_of_value(workload, {.kind = kind, .of = part});
            const bool is_mirrored = mirror != offload::no_slot;
            const bool is_loaded = kind == Kind::hi || states == LoadedStates::written;
            if (is_loaded && (is_mirrored || home == offload::Tier::nvme)) {
                writes.load_bytes += part_bytes;
            }
            if (is_mirrored && saves) writes.save_bytes += part_bytes;
        };
        count(Kind::hi, plan.homes[part].hi, table.hi_mirror[part]);
        count(Kind::opt, plan.homes[part].opt, table.opt_mirror[part]);
    }
    if (evaluated_micro_batch_count > 0) {
        const uint64_t list_count = offload::div_ceil(
            static_cast<uint64_t>(evaluated_micro_batch_count), workload.micro_batch_count_max);
        writes.evaluation_bytes = list_count * written_bytes(workload, plan, Purpose::evaluate);
    }
    return writes;
}

uint64_t bytes_of_run(const DriveWrites& writes, int64_t step_count,
                      std::optional<int64_t> save_steps) {
    CHECK_GE(step_count, 0);
    CHECK_GT(save_steps.value_or(1), 0);
    if (step_count == 0) return writes.load_bytes;
    const auto steps = static_cast<uint64_t>(step_count);
    const uint64_t save_count =
        save_steps ? offload::div_ceil(steps, static_cast<uint64_t>(*save_steps)) : 1;
    return writes.load_bytes + steps * writes.step_bytes + save_count * writes.save_bytes;
}

offload::Status check_one_step_within(uint64_t limit_bytes, const DriveWrites& writes) {
    const uint64_t needed_bytes =
        writes.load_bytes + writes.step_bytes + writes.save_bytes + 2 * writes.evaluation_bytes;
    if (needed_bytes <= limit_bytes) return {};
    std::string of = fmt::format("{} to load, {} by the step", format_bytes(writes.load_bytes),
                                 format_bytes(writes.step_bytes));
    if (writes.save_bytes > 0) of += fmt::format(", {} to save", format_bytes(writes.save_bytes));
    if (writes.evaluation_bytes > 0) {
        of += fmt::format(", {} by each of two evaluations", format_bytes(writes.evaluation_bytes));
    }
    return offload::Error{
        offload::ErrorCode::does_not_fit,
        fmt::format("a run of one step writes {} to the drives ({}), and nvme_write_limit allows "
                    "{}",
                    format_bytes(needed_bytes), of, format_bytes(limit_bytes)),
        "raise it, or place less on nvme"};
}

}  // namespace headrace::engine
