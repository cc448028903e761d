#include "offload/sizes.h"

#include <algorithm>

namespace headrace::offload {

uint64_t shortfall(const TierBytes& needs, const TierBytes& ceilings) {
    return excess(needs.gpu_bytes, ceilings.gpu_bytes) +
           excess(needs.ram_bytes, ceilings.ram_bytes) +
           excess(needs.nvme_bytes, ceilings.nvme_bytes);
}

TierBytes bytes_needed(const Workload& workload, const SlotTable& table) {
    TierBytes needs{.gpu_bytes = table.workspace_offset_bytes + workload.workspace_bytes};
    for (const Slot& slot : table.slots) {
        if (slot.tier == Tier::ram) {
            needs.ram_bytes = std::max(needs.ram_bytes, slot.offset_bytes + slot.size_bytes);
        } else if (slot.tier == Tier::nvme) {
            needs.nvme_bytes += slot.size_bytes * count_of(slot.copies);
        }
    }
    return needs;
}

TierBytes bytes_needed(const Workload& workload, const Plan& plan) {
    return Sizes(workload).of(plan);
}

Sizes::Sizes(const Workload& workload) : workload_(workload) {
    CHECK_EQ(workload.layout.layers.size(), workload.layout.specs.size());
    std::vector<uint32_t> borrower_count(workload.layout.layers.size(), 0);
    for (const LayerSpec& spec : workload.layout.specs) {
        for (const uint32_t borrowed : spec.borrowed_layers) ++borrower_count[borrowed];
    }
    for (uint32_t part = 0; part < workload.layout.parts.size(); ++part) {
        const auto bytes = [&](Kind kind) {
            return bytes_of_value(workload, {.kind = kind, .of = part});
        };
        const PartBytes size{.hi = bytes(Kind::hi),
                             .opt = bytes(Kind::opt),
                             .stash = bytes(Kind::stash),
                             .acc = bytes(Kind::acc),
                             .use_count = 1 + borrower_count[workload.layout.parts[part].layer]};
        largest_.hi = std::max(largest_.hi, size.hi);
        largest_.opt = std::max(largest_.opt, size.opt);
        largest_.stash = std::max(largest_.stash, size.stash);
        largest_.acc = std::max(largest_.acc, size.acc);
        parts_.push_back(size);
    }
    for (uint32_t layer = 0; layer < layer_count(workload); ++layer) {
        parts_used_.push_back(static_cast<uint32_t>(parts_used(workload.layout, layer).size()));
    }
}

uint64_t Sizes::window_slots(uint32_t window) const {
    CHECK_GT(window, 0u);
    uint64_t largest = 0;
    uint64_t slots = 0;
    for (size_t layer = 0; layer < parts_used_.size(); ++layer) {
        slots += parts_used_[layer];
        if (layer >= window) slots -= parts_used_[layer - window];
        largest = std::max(largest, slots);
    }
    return largest;
}

void Sizes::add_homes(const Plan& plan, TierBytes& needs) const {
    const bool is_durable = plan.path_count > 0;
    const bool several_passes = has_several_passes(workload_, plan);
    for (size_t part = 0; part < parts_.size(); ++part) {
        const PartBytes& size = parts_[part];
        const PartHomes& homes = plan.homes[part];
        // On nvme, as a home or as a mirror of one in memory.
        for (const auto& [tier, bytes] : {std::pair{homes.hi, size.hi}, {homes.opt, size.opt}}) {
            if (is_durable) needs.nvme_bytes += count_of(plan.durable_copies) * bytes;
            if (!is_durable || tier != Tier::nvme) needs.on(tier) += bytes;
        }
        needs.on(homes.stash) += size.stash;
        const uint32_t acc_count = several_passes ? size.use_count : size.use_count - 1;
        needs.on(homes.acc) += acc_count * size.acc;
    }
    CHECK_EQ(plan.act_homes.size(), parts_used_.size());
    const uint64_t group = group_max(workload_, plan);
    CHECK_GT(group, 0u);
    for (uint32_t boundary = 1; boundary < head_layer(workload_); ++boundary) {
        needs.on(plan.act_homes[boundary]) += group * workload_.act_bytes;
    }
    for (const std::optional<Tier>& kept : plan.kept_homes) {
        if (kept) needs.on(*kept) += group * workload_.kept_bytes;
    }
}

void Sizes::add_rings(const Plan& plan, TierBytes& needs) const {
    const RingSizes& rings = plan.rings;
    const uint64_t group = group_max(workload_, plan);
    uint64_t& gpu = needs.gpu_bytes;
    uint64_t& ram = needs.ram_bytes;
    if (passes_through(plan, &PartHomes::hi, Tier::gpu)) {
        gpu += window_slots(plan.window) * largest_.hi;
    }
    gpu += window_slots(1) * largest_.acc;
    bool seams = false;
    bool acc_on_nvme = false;
    const bool several_passes = has_several_passes(workload_, plan);
    for (size_t part = 0; part < parts_.size(); ++part) {
        const bool is_shared = parts_[part].use_count > 1;
        seams |= is_shared && plan.homes[part].acc != Tier::gpu;
        acc_on_nvme |= (is_shared || several_passes) && plan.homes[part].acc == Tier::nvme;
    }
    if (seams) gpu += rings.gpu_seam * largest_.acc;
    if (passes_through(plan, &PartHomes::stash, Tier::gpu)) gpu += rings.gpu_stash * largest_.stash;
    gpu += (group + 2 + group + 1) * workload_.act_bytes;
    if (passes_through(plan, &PartHomes::hi, Tier::ram)) ram += rings.ram_hi * largest_.hi;
    if (passes_through(plan, &PartHomes::opt, Tier::ram)) ram += rings.ram_opt * largest_.opt;
    if (passes_through(plan, &PartHomes::stash, Tier::ram)) {
        ram += rings.ram_stash * largest_.stash;
    }
    if (has_stash_out(plan)) ram += rings.ram_stash_out * largest_.stash;
    if (acc_on_nvme) ram += rings.ram_acc * largest_.acc;
    if (std::ranges::find(plan.act_homes, Tier::nvme) != plan.act_homes.end()) {
        ram += rings.ram_act * workload_.act_bytes;
    }
    if (keeps_beyond(plan, Tier::gpu)) gpu += rings.gpu_kept * workload_.kept_bytes;
    if (keeps_beyond(plan, Tier::ram)) ram += rings.ram_kept * workload_.kept_bytes;
}

TierBytes Sizes::of(const Plan& plan) const {
    CHECK_EQ(plan.homes.size(), parts_.size());
    TierBytes needs{.gpu_bytes = workload_.workspace_bytes};
    add_homes(plan, needs);
    add_rings(plan, needs);
    CHECK_GE(needs.gpu_bytes, workload_.workspace_bytes);
    return needs;
}

}  // namespace headrace::offload
