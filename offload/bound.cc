#include "offload/bound.h"

#include <algorithm>
#include <limits>

#include "offload/units.h"

namespace headrace::offload {

namespace {

// Bytes of a step, or of a phase of it, by lane, and what computing and updating take. Never more
// than a schedule of the plan moves: what rings and windows may still hold when it is wanted again,
// or may have fetched before, is not counted.
struct Work {
    double nvme_read = 0;
    double nvme_write = 0;
    double h2d = 0;
    double d2h = 0;
    double updated = 0;         // parameters
    double update_traffic = 0;  // bytes of memory
    double flop = 0;
};

// Backward begins when the first pass over the layers is through: what must be done before and
// after that cannot be done side by side.
struct Step {
    Work whole;
    Work forward;   // of the first pass, from the verdict to the head
    Work backward;  // what must come after
};

double bytes(const Workload& workload, Kind kind, uint32_t part) {
    return static_cast<double>(bytes_of_value(workload, {.kind = kind, .of = part}));
}

void add_part(const Workload& workload, const Plan& plan, uint32_t part, Work& work) {
    const PartHomes& homes = plan.homes[part];
    const double hi = bytes(workload, Kind::hi, part);
    const double opt = bytes(workload, Kind::opt, part);
    const double stash = bytes(workload, Kind::stash, part);
    const bool updates_twice = is_updated_twice(plan, part);
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
    work.updated += updates_twice ? 2 * elements : elements;
    work.update_traffic += stash + 2 * (hi + opt) + (updates_twice ? stash + 2 * hi + opt : 0);
}

// What a part's update needs before its layer's forward, and leaves in a ring slot that the next
// part takes: a gated one is written until then, one of two updates is not.
struct Updates {
    double read = 0;
    double gated_write = 0;
    double twice_write = 0;
    double held = 0;  // at most, in the rings
    double element_count = 0;
};

Updates updates_of(const Workload& workload, const Plan& plan) {
    Updates updates;
    double most_hi = 0;
    double most_opt = 0;
    for (uint32_t part = 0; part < plan.homes.size(); ++part) {
        if (workload.layout.parts[part].layer == head_layer(workload)) continue;  // not before it
        const PartHomes& homes = plan.homes[part];
        const double hi = homes.hi == Tier::nvme ? bytes(workload, Kind::hi, part) : 0;
        const double opt = homes.opt == Tier::nvme ? bytes(workload, Kind::opt, part) : 0;
        updates.read += hi + opt;
        if (homes.stash == Tier::nvme) updates.read += bytes(workload, Kind::stash, part);
        (is_updated_twice(plan, part) ? updates.twice_write : updates.gated_write) += hi + opt;
        most_hi = std::max(most_hi, hi);
        most_opt = std::max(most_opt, opt);
        updates.element_count += static_cast<double>(workload.layout.parts[part].element_count);
    }
    updates.held = plan.rings.ram_hi * most_hi + plan.rings.ram_opt * most_opt;
    return updates;
}

void add_updates(const Workload& workload, const Plan& plan, Step& step) {
    const Updates updates = updates_of(workload, plan);
    step.forward.nvme_read += std::max(0.0, updates.read - updates.held);
    step.forward.nvme_write += std::max(0.0, updates.gated_write - updates.held);
    step.forward.updated += updates.element_count;
    step.backward.nvme_write += std::max(0.0, updates.twice_write - updates.held);
}

// What is read from nvme a second time, in backward, less what the rings may still hold then:
// weights of all but the last layers, and everything of a part that is updated twice.
void add_second_fetches(const Workload& workload, const Plan& plan, Step& step) {
    double again = 0;
    double held = 0;
    for (uint32_t part = 0; part < plan.homes.size(); ++part) {
        const bool updates_twice = is_updated_twice(plan, part);
        const bool is_late =
            workload.layout.parts[part].layer + plan.window + 1 >= layer_count(workload);
        const double hi = bytes(workload, Kind::hi, part);
        const double opt = bytes(workload, Kind::opt, part);
        const double stash = bytes(workload, Kind::stash, part);
        held = std::max(
            held, plan.rings.ram_hi * hi + plan.rings.ram_opt * opt + plan.rings.ram_stash * stash);
        if (plan.homes[part].hi == Tier::nvme && (updates_twice || !is_late)) again += hi;
        if (!updates_twice) continue;
        again += opt;
        if (plan.homes[part].stash == Tier::nvme) again += stash;
    }
    const double read = std::max(0.0, again - held);
    step.whole.nvme_read += read;
    step.backward.nvme_read += read;
}

// What a layer keeps of every micro-batch.
void add_kept(const Workload& workload, const Plan& plan, Tier kept, Work& work) {
    if (kept == Tier::gpu) return;
    const double one_bytes = static_cast<double>(workload.kept_bytes);
    const double kept_bytes = workload.micro_batch_count * one_bytes;
    // Rings may hold what the end of a pass kept, in every pass.
    const double held_bytes =
        one_bytes * static_cast<double>(div_ceil(workload.micro_batch_count, plan.group));
    work.d2h += kept_bytes;
    const double again = std::max(0.0, kept_bytes - held_bytes * plan.rings.gpu_kept);
    work.h2d += again;
    if (kept != Tier::nvme) return;
    work.nvme_write += kept_bytes;
    work.nvme_read += std::max(0.0, again - held_bytes * plan.rings.ram_kept);
}

void add_layers(const Workload& workload, const Plan& plan, const Effort& effort, Step& step) {
    Work& work = step.whole;
    const auto micro_batches = static_cast<double>(workload.micro_batch_count);
    const auto first_pass = static_cast<double>(std::min(plan.group, workload.micro_batch_count));
    for (uint32_t layer = 0; layer < layer_count(workload); ++layer) {
        const LayerEffort& flop = effort.layers[layer];
        if (layer == head_layer(workload)) {  // one visit that is all backward
            work.flop += micro_batches * flop.backward_flop;
            continue;
        }
        const std::optional<Tier> kept =
            plan.kept_homes.empty() ? std::nullopt : plan.kept_homes[layer];
        work.flop += micro_batches *
                     (flop.forward_flop + flop.backward_flop + (kept ? 0 : flop.recompute_flop));
        step.forward.flop += first_pass * flop.forward_flop;
        if (kept) add_kept(workload, plan, *kept, work);
    }
    step.backward.flop = work.flop - step.forward.flop;
    double written = 0;
    for (uint32_t boundary = 1; boundary < head_layer(workload); ++boundary) {
        const double act_bytes = micro_batches * static_cast<double>(workload.act_bytes);
        if (plan.act_homes[boundary] == Tier::nvme) written += act_bytes;
        if (plan.act_homes[boundary] != Tier::gpu) work.d2h += act_bytes;
    }
    const double held = (plan.rings.ram_act + first_pass + 2) *
                        static_cast<double>(workload.act_bytes);  // there and on the gpu
    work.nvme_write += written;
    step.forward.nvme_write += std::max(0.0, written * first_pass / micro_batches - held);
}

// Of the busiest lane, or the fullest resource.
double busiest_s(const Work& work, const Machine& machine) {
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

}  // namespace

double bound_s(const Workload& workload, const Plan& plan, const Machine& machine,
               const Effort& effort) {
    CHECK_EQ(effort.layers.size(), layer_count(workload));
    CHECK_EQ(plan.homes.size(), workload.layout.parts.size());
    CHECK_EQ(plan.act_homes.size(), layer_count(workload));
    CHECK_TEXT(find_fault(machine).empty(), find_fault(machine));
    Step step;
    for (uint32_t part = 0; part < plan.homes.size(); ++part)
        add_part(workload, plan, part, step.whole);
    add_updates(workload, plan, step);
    add_second_fetches(workload, plan, step);
    add_layers(workload, plan, effort, step);
    CHECK_GE(step.backward.flop, 0.0);
    const double phases_s = busiest_s(step.forward, machine) + busiest_s(step.backward, machine);
    return std::max(busiest_s(step.whole, machine), phases_s);
}

}  // namespace headrace::offload
