#include "offload/bound.h"

#include <algorithm>
#include <limits>

namespace headrace::offload {

namespace {

// Bytes of a step by lane, and what computing and updating take. Never more than a schedule of the
// plan moves: what rings and windows may still hold when it is wanted again is not counted.
struct Work {
    double nvme_read = 0;
    double nvme_write = 0;
    double h2d = 0;
    double d2h = 0;
    double updated = 0;         // parameters
    double update_traffic = 0;  // bytes of memory
    double flop = 0;
};

double bytes(const Workload& workload, Kind kind, uint32_t part) {
    return static_cast<double>(bytes_of_value(workload, {.kind = kind, .of = part}));
}

void add_part(const Workload& workload, const Plan& plan, uint32_t part, Work& work) {
    const PartHomes& homes = plan.homes[part];
    const double hi = bytes(workload, Kind::hi, part);
    const double opt = bytes(workload, Kind::opt, part);
    const double stash = bytes(workload, Kind::stash, part);
    const bool is_twice = !plan.twice.empty() && plan.twice[part];
    const bool is_durable = commits_every_step(plan);
    if (homes.hi == Tier::nvme) work.nvme_read += hi;
    if (homes.opt == Tier::nvme) work.nvme_read += opt;
    if (homes.stash == Tier::nvme) work.nvme_read += stash;
    if (is_durable || homes.hi == Tier::nvme) work.nvme_write += hi;
    if (is_durable || homes.opt == Tier::nvme) work.nvme_write += opt;
    if (homes.stash == Tier::nvme) work.nvme_write += stash;
    // To the card before forward; what lives there comes to ram for its update.
    work.h2d += hi;
    if (homes.hi == Tier::gpu) work.d2h += hi;
    if (homes.opt == Tier::gpu) {
        work.h2d += opt;
        work.d2h += opt;
    }
    if (homes.stash != Tier::gpu) work.d2h += stash;
    const auto elements = static_cast<double>(workload.layout.parts[part].element_count);
    work.updated += is_twice ? 2 * elements : elements;
    work.update_traffic += stash + 2 * (hi + opt) + (is_twice ? stash + 2 * hi + opt : 0);
}

// What is read from nvme a second time, in backward, less what the rings may still hold then:
// weights of all but the last layers, and everything of a part that is updated twice.
void add_second_fetches(const Workload& workload, const Plan& plan, Work& work) {
    double again = 0;
    double held = 0;
    for (uint32_t part = 0; part < plan.homes.size(); ++part) {
        const bool is_twice = !plan.twice.empty() && plan.twice[part];
        const bool is_late =
            workload.layout.parts[part].layer + plan.window + 1 >= layer_count(workload);
        const double hi = bytes(workload, Kind::hi, part);
        const double opt = bytes(workload, Kind::opt, part);
        const double stash = bytes(workload, Kind::stash, part);
        held = std::max(
            held, plan.rings.ram_hi * hi + plan.rings.ram_opt * opt + plan.rings.ram_stash * stash);
        if (plan.homes[part].hi == Tier::nvme && (is_twice || !is_late)) again += hi;
        if (!is_twice) continue;
        again += opt;
        if (plan.homes[part].stash == Tier::nvme) again += stash;
    }
    work.nvme_read += std::max(0.0, again - held);
}

void add_layers(const Workload& workload, const Plan& plan, const Effort& effort, Work& work) {
    const auto micro_batches = static_cast<double>(workload.micro_batch_count);
    for (uint32_t layer = 0; layer < layer_count(workload); ++layer) {
        const LayerEffort& flop = effort.layers[layer];
        const std::optional<Tier> kept =
            plan.kept_homes.empty() ? std::nullopt : plan.kept_homes[layer];
        if (layer == head_layer(workload)) {  // one visit that is all backward
            work.flop += micro_batches * flop.backward_flop;
            continue;
        }
        work.flop += micro_batches *
                     (flop.forward_flop + flop.backward_flop + (kept ? 0 : flop.recompute_flop));
        if (kept.value_or(Tier::gpu) == Tier::gpu) continue;
        const double kept_bytes = micro_batches * static_cast<double>(workload.kept_bytes);
        work.d2h += kept_bytes;
        const double again = std::max(
            0.0, kept_bytes - static_cast<double>(workload.kept_bytes) * plan.rings.gpu_kept);
        work.h2d += again;
        if (kept != Tier::nvme) continue;
        work.nvme_write += kept_bytes;
        work.nvme_read += std::max(
            0.0, again - static_cast<double>(workload.kept_bytes) * plan.rings.ram_kept);
    }
    for (uint32_t boundary = 1; boundary < head_layer(workload); ++boundary) {
        const double act_bytes = micro_batches * static_cast<double>(workload.act_bytes);
        if (plan.act_homes[boundary] == Tier::nvme) work.nvme_write += act_bytes;
        if (plan.act_homes[boundary] != Tier::gpu) work.d2h += act_bytes;
    }
}

}  // namespace

double bound_s(const Workload& workload, const Plan& plan, const Machine& machine,
               const Effort& effort) {
    CHECK_EQ(effort.layers.size(), layer_count(workload));
    CHECK_EQ(plan.homes.size(), workload.layout.parts.size());
    CHECK_EQ(plan.act_homes.size(), layer_count(workload));
    CHECK_TEXT(find_fault(machine).empty(), find_fault(machine));
    Work work;
    for (uint32_t part = 0; part < plan.homes.size(); ++part) add_part(workload, plan, part, work);
    add_second_fetches(workload, plan, work);
    add_layers(workload, plan, effort, work);
    const DriveRates& drive = machine.drive;
    const double moved = work.nvme_read + work.nvme_write;
    if (moved > 0 && drive.read_bytes_per_s == 0) return std::numeric_limits<double>::infinity();
    const double read_s = moved > 0 ? work.nvme_read / drive.read_bytes_per_s : 0;
    const double write_s = moved > 0 ? work.nvme_write / drive.write_bytes_per_s : 0;
    const double h2d_s = work.h2d / machine.link.h2d_bytes_per_s;
    const double d2h_s = work.d2h / machine.link.d2h_bytes_per_s;
    const double gpu_s = work.flop / machine.gpu_flops;
    const double update_s = work.updated / machine.update_parameters_per_s;
    const double cores_s =
        (gpu_s * machine.compute_cores + update_s * machine.update_cores) / machine.core_count;
    const double memory_s = (moved + work.update_traffic) / machine.memory_bytes_per_s;
    return std::max({read_s, write_s, (read_s + write_s) / drive.both_ways, h2d_s, d2h_s,
                     (h2d_s + d2h_s) / machine.link.both_ways, gpu_s, update_s, cores_s, memory_s});
}

}  // namespace headrace::offload
