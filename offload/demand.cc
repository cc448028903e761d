#include "offload/demand.h"

#include <algorithm>

#include "offload/check.h"

namespace headrace::offload {

namespace {

double& share_of(Demand& demand, Resource resource) {
    return demand.shares[static_cast<size_t>(resource)];
}

// Slows an op down until no resource is asked for more than it has.
Demand within_limits(Demand demand) {
    CHECK_GE(demand.work_s, 0.0);
    CHECK_GE(std::ranges::min(demand.shares), 0.0);
    const double most = std::ranges::max(demand.shares);
    if (most <= 1) return demand;
    demand.work_s *= most;
    for (double& share : demand.shares) share /= most;
    return demand;
}

class DemandMaker {
  public:
    DemandMaker(const Schedule& schedule, const Machine& machine, const Effort& effort)
        : schedule_(schedule), machine_(machine), effort_(effort) {}

    Demand demand_of(const Op& op) const {
        switch (op.kind) {
            case OpKind::fetch:
            case OpKind::evict: return copy(op);
            case OpKind::compute: return compute(op);
            case OpKind::reduce: return reduce(op);
            case OpKind::update: return update(op);
            case OpKind::verdict: return {};
            case OpKind::sync:
            case OpKind::record:
            case OpKind::seal: return {.latency_s = machine_.drive.flush_s};
        }
        CHECK(false);
    }

  private:
    bool is_on_cores() const { return machine_.compute_cores > 0; }

    double written_bytes(const Op& op) const {
        double size_bytes = 0;
        for (const Access& access : op.accesses) {
            if (access.mode != Mode::write) continue;
            size_bytes += static_cast<double>(bytes_of_value(schedule_.workload, access.value));
        }
        return size_bytes;
    }

    Demand copy(const Op& op) const {
        const double size_bytes = written_bytes(op);
        const bool is_drive = is_nvme(op.lane.kind);
        const DriveRates& drive = machine_.drive;
        const LinkRates& link = machine_.link;
        double rate = 0;
        switch (op.lane.kind) {
            case LaneKind::nvme_read: rate = drive.read_bytes_per_s; break;
            case LaneKind::nvme_write: rate = drive.write_bytes_per_s; break;
            case LaneKind::h2d: rate = link.h2d_bytes_per_s; break;
            case LaneKind::d2h: rate = link.d2h_bytes_per_s; break;
            default: CHECK(false);
        }
        CHECK_TEXT(rate > 0, "a schedule that uses a drive, on a machine without one");
        Demand demand{.latency_s = is_drive ? drive.latency_s : link.latency_s,
                      .work_s = size_bytes / rate};
        share_of(demand, is_drive ? Resource::drive : Resource::link) =
            1 / (is_drive ? drive.both_ways : link.both_ways);
        // On the host both ends of h2d and d2h are its memory.
        const double passes = !is_drive && is_on_cores() ? 2 : 1;
        share_of(demand, Resource::memory) = passes * rate / machine_.memory_bytes_per_s;
        if (!is_drive) {
            share_of(demand, Resource::cores) = machine_.copy_cores / machine_.core_count;
        }
        return within_limits(demand);
    }

    Demand on_gpu(double work_s) const {
        Demand demand{.latency_s = machine_.launch_s, .work_s = work_s};
        share_of(demand, Resource::cores) = machine_.compute_cores / machine_.core_count;
        return demand;
    }

    Demand compute(const Op& op) const {
        return within_limits(on_gpu(compute_flop(op, effort_) / machine_.gpu_flops));
    }

    // Reads the accumulators of all uses, writes the stash.
    Demand reduce(const Op& op) const {
        double size_bytes = 0;
        for (const Access& access : op.accesses) {
            size_bytes += static_cast<double>(bytes_of_value(schedule_.workload, access.value));
        }
        Demand demand = on_gpu(size_bytes / machine_.gpu_memory_bytes_per_s);
        if (is_on_cores()) {
            share_of(demand, Resource::memory) =
                machine_.gpu_memory_bytes_per_s / machine_.memory_bytes_per_s;
        }
        return within_limits(demand);
    }

    // Reads gradient and state, writes the state.
    Demand update(const Op& op) const {
        const Part& part = schedule_.workload.layout.parts[op.part];
        double size_bytes = 0;
        for (const Access& access : op.accesses) {
            size_bytes += static_cast<double>(bytes_of_value(schedule_.workload, access.value));
        }
        const double work_s =
            static_cast<double>(part.element_count) / machine_.update_parameters_per_s;
        Demand demand{.work_s = work_s};
        share_of(demand, Resource::cores) = machine_.update_cores / machine_.core_count;
        share_of(demand, Resource::memory) = size_bytes / work_s / machine_.memory_bytes_per_s;
        return within_limits(demand);
    }

    const Schedule& schedule_;
    const Machine& machine_;
    const Effort& effort_;
};

}  // namespace

std::string_view name_of(Resource resource) {
    switch (resource) {
        case Resource::link: return "link";
        case Resource::drive: return "drive";
        case Resource::memory: return "memory";
        case Resource::cores: return "cores";
    }
    CHECK(false);
}

double compute_flop(const Op& op, const Effort& effort) {
    CHECK_LT(op.layer, effort.layers.size());
    const LayerEffort& layer = effort.layers[op.layer];
    switch (op.pass) {
        case Pass::forward: return layer.forward_flop;
        case Pass::backward: {
            const bool is_kept = find_access(op, Kind::kept, Mode::read) != nullptr;
            return layer.backward_flop + (is_kept ? 0 : layer.recompute_flop);
        }
        case Pass::head: return layer.backward_flop;
        case Pass::loss: return effort.loss_flop;
        case Pass::none: break;
    }
    CHECK_TEXT(false, "a compute op without a pass");
}

std::vector<Demand> demands_of(const Schedule& schedule, const Machine& machine,
                               const Effort& effort) {
    CHECK_TEXT(find_fault(machine).empty(), find_fault(machine));
    CHECK_EQ(effort.layers.size(), schedule.workload.layout.layers.size());
    const DemandMaker maker(schedule, machine, effort);
    std::vector<Demand> demands;
    demands.reserve(schedule.ops.size());
    for (const Op& op : schedule.ops) demands.push_back(maker.demand_of(op));
    return demands;
}

}  // namespace headrace::offload
