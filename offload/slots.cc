#include "offload/slots.h"

#include <algorithm>
#include <array>

#include "offload/spread.h"
#include "offload/units.h"

namespace headrace::offload {

namespace {

uint32_t part_count(const Workload& workload) {
    return static_cast<uint32_t>(workload.layout.parts.size());
}

// Parts of a layer's visit, all runs.
uint32_t parts_in(const Workload& workload, uint32_t layer) {
    return static_cast<uint32_t>(parts_used(workload.layout, layer).size());
}

// The slots a ring needs so that `window` successive layers fit side by side.
uint32_t window_slots(const Workload& workload, uint32_t window) {
    const uint32_t layers = layer_count(workload);
    uint32_t largest = 0;
    for (uint32_t first = 0; first < layers; ++first) {
        uint32_t slots = 0;
        for (uint32_t layer = first; layer < std::min(layers, first + window); ++layer) {
            slots += parts_in(workload, layer);
        }
        largest = std::max(largest, slots);
    }
    return largest;
}

uint64_t largest_bytes(const Workload& workload, Kind kind) {
    uint64_t size_bytes = 0;
    for (uint32_t part = 0; part < part_count(workload); ++part) {
        size_bytes = std::max(size_bytes, bytes_of_value(workload, {.kind = kind, .of = part}));
    }
    return size_bytes;
}

// Hands out slots; gpu and ram slots one after another in their slab, nvme slots as places.
class SlotMaker {
  public:
    explicit SlotMaker(std::vector<Slot>& slots) : slots_(slots) {}

    // At the end of its tier.
    SlotId make(Slot slot) {
        CHECK_EQ(slot.size_bytes % page_bytes, 0u);
        uint64_t& next = next_[static_cast<size_t>(slot.tier)];
        slot.offset_bytes = next;
        next += slot.tier == Tier::nvme ? 1 : slot.size_bytes;
        slots_.push_back(slot);
        return static_cast<SlotId>(slots_.size() - 1);
    }

    // Place numbers that make_durable gives out.
    void skip_places(uint32_t place_count) {
        CHECK_EQ(next_[static_cast<size_t>(Tier::nvme)], 0u);
        next_[static_cast<size_t>(Tier::nvme)] = place_count;
    }

    SlotId make_durable(Slot slot, uint32_t place) {
        CHECK_EQ(slot.tier, Tier::nvme);
        CHECK(is_durable(slot.copies));
        CHECK_EQ(slot.size_bytes % page_bytes, 0u);
        CHECK_LT(place, next_[static_cast<size_t>(Tier::nvme)]);
        slot.offset_bytes = place;
        slots_.push_back(slot);
        return static_cast<SlotId>(slots_.size() - 1);
    }

    std::vector<SlotId> ring(Tier tier, Kind kind, uint64_t size_bytes, uint32_t slot_count) {
        std::vector<SlotId> ring;
        for (uint32_t i = 0; i < slot_count; ++i) {
            ring.push_back(make({.tier = tier, .kind = kind, .size_bytes = size_bytes}));
        }
        return ring;
    }

    SlotId control(Kind kind) {
        slots_.push_back({.tier = Tier::ram, .kind = kind, .is_home = kind != Kind::norm});
        return static_cast<SlotId>(slots_.size() - 1);
    }

    uint64_t end_bytes(Tier tier) const { return next_[static_cast<size_t>(tier)]; }

  private:
    std::vector<Slot>& slots_;
    std::array<uint64_t, 3> next_ = {};
};

// The homes of one kind of every part and, where the plan commits and the kind is durable, the
// mirrors of those that are in memory. A durable place has the number of its part.
struct KindHomes {
    Kind kind = Kind::hi;
    Tier PartHomes::*tier = nullptr;
    uint32_t first_place = 0;
    bool is_durable = false;
};

std::vector<SlotId> lay_part_homes(const Workload& workload, const Plan& plan,
                                   const KindHomes& homes, SlotMaker& maker,
                                   std::vector<SlotId>& mirrors) {
    const uint32_t parts = part_count(workload);
    const auto slot_of = [&](uint32_t part, Tier tier) {
        return Slot{.tier = tier,
                    .kind = homes.kind,
                    .size_bytes = bytes_of_value(workload, {.kind = homes.kind, .of = part}),
                    .of = part};
    };
    std::vector<SlotId> slots;
    for (uint32_t part = 0; part < parts; ++part) {
        Slot home = slot_of(part, plan.homes[part].*homes.tier);
        home.is_home = true;
        const bool is_place = homes.is_durable && home.tier == Tier::nvme;
        if (is_place) home.copies = plan.durable_copies;
        slots.push_back(is_place ? maker.make_durable(home, homes.first_place + part)
                                 : maker.make(home));
    }
    mirrors.assign(parts, no_slot);
    for (uint32_t part = 0; part < parts && homes.is_durable; ++part) {
        if (plan.homes[part].*homes.tier == Tier::nvme) continue;
        Slot mirror = slot_of(part, Tier::nvme);
        mirror.is_home = mirror.is_mirror = true;
        mirror.copies = plan.durable_copies;
        mirrors[part] = maker.make_durable(mirror, homes.first_place + part);
    }
    return slots;
}

std::optional<Tier> kept_home(const Plan& plan, uint32_t layer) {
    return plan.kept_homes.empty() ? std::nullopt : plan.kept_homes[layer];
}

// What each micro-batch of a pass leaves between forward and backward.
void lay_micro_batch_homes(const Workload& workload, const Plan& plan, SlotMaker& maker,
                           SlotTable& table) {
    const auto homes_of = [&](const Slot& slot) {
        std::vector<SlotId> homes;
        for (uint32_t i = 0; i < group_max(workload, plan); ++i) homes.push_back(maker.make(slot));
        return homes;
    };
    table.act.resize(layer_count(workload));
    for (uint32_t boundary = 1; boundary < head_layer(workload); ++boundary) {
        table.act[boundary] = homes_of({.tier = plan.act_homes[boundary],
                                        .kind = Kind::act,
                                        .size_bytes = workload.act_bytes,
                                        .is_home = true,
                                        .of = boundary});
    }
    table.kept.resize(layer_count(workload));
    for (uint32_t layer = 0; layer < layer_count(workload); ++layer) {
        const std::optional<Tier> tier = kept_home(plan, layer);
        if (!tier) continue;
        table.kept[layer] = homes_of({.tier = *tier,
                                      .kind = Kind::kept,
                                      .size_bytes = workload.kept_bytes,
                                      .is_home = true,
                                      .of = layer});
    }
}

void lay_homes(const Workload& workload, const Plan& plan, SlotMaker& maker, SlotTable& table) {
    const uint32_t parts = part_count(workload);
    const bool is_durable = plan.path_count > 0;
    if (is_durable) maker.skip_places(2 * parts);
    table.hi = lay_part_homes(workload, plan, {Kind::hi, &PartHomes::hi, 0, is_durable}, maker,
                              table.hi_mirror);
    table.opt = lay_part_homes(workload, plan, {Kind::opt, &PartHomes::opt, parts, is_durable},
                               maker, table.opt_mirror);
    std::vector<SlotId> none;
    table.stash = lay_part_homes(workload, plan, {Kind::stash, &PartHomes::stash}, maker, none);
    table.acc.assign(size_t{parts} * 2, no_slot);
    for (uint8_t use = 0; use < 2; ++use) {
        for (uint32_t part = 0; part < parts; ++part) {
            if (!needs_acc_home(workload, plan, part, use)) continue;
            table.acc[size_t{part} * 2 + use] =
                maker.make({.tier = plan.homes[part].acc,
                            .kind = Kind::acc,
                            .size_bytes = bytes_of_value(workload, {.kind = Kind::acc, .of = part}),
                            .is_home = true,
                            .of = part});
        }
    }
    lay_micro_batch_homes(workload, plan, maker, table);
}

void lay_kept_rings(const Workload& workload, const Plan& plan, SlotMaker& maker,
                    SlotTable& table) {
    const uint64_t size_bytes = workload.kept_bytes;
    if (keeps_beyond(plan, Tier::gpu)) {
        table.gpu_kept = maker.ring(Tier::gpu, Kind::kept, size_bytes, plan.rings.gpu_kept);
    }
    if (keeps_beyond(plan, Tier::ram)) {
        table.ram_kept = maker.ring(Tier::ram, Kind::kept, size_bytes, plan.rings.ram_kept);
    }
}

void lay_rings(const Workload& workload, const Plan& plan, SlotMaker& maker, SlotTable& table) {
    const uint64_t hi = largest_bytes(workload, Kind::hi);
    const uint64_t opt = largest_bytes(workload, Kind::opt);
    const uint64_t stash = largest_bytes(workload, Kind::stash);
    const uint64_t acc = largest_bytes(workload, Kind::acc);
    const uint64_t act = workload.act_bytes;
    const uint32_t group = group_max(workload, plan);
    if (passes_through(plan, &PartHomes::hi, Tier::gpu)) {
        table.gpu_hi = maker.ring(Tier::gpu, Kind::hi, hi, window_slots(workload, plan.window));
    }
    table.gpu_acc = maker.ring(Tier::gpu, Kind::acc, acc, window_slots(workload, 1));
    const auto acc_home_is_off_gpu = [&](size_t i) {
        return table.acc[i] != no_slot && table.slots[table.acc[i]].tier != Tier::gpu;
    };
    bool seam = false;
    for (size_t i = 1; i < table.acc.size(); i += 2) seam = seam || acc_home_is_off_gpu(i);
    if (seam) table.gpu_seam = maker.ring(Tier::gpu, Kind::acc, acc, plan.rings.gpu_seam);
    if (passes_through(plan, &PartHomes::stash, Tier::gpu)) {
        table.gpu_stash = maker.ring(Tier::gpu, Kind::stash, stash, plan.rings.gpu_stash);
    }
    table.gpu_act = maker.ring(Tier::gpu, Kind::act, act, group + 2);
    table.gpu_dact = maker.ring(Tier::gpu, Kind::dact, act, group + 1);
    if (passes_through(plan, &PartHomes::hi, Tier::ram)) {
        table.ram_hi = maker.ring(Tier::ram, Kind::hi, hi, plan.rings.ram_hi);
    }
    if (passes_through(plan, &PartHomes::opt, Tier::ram)) {
        table.ram_opt = maker.ring(Tier::ram, Kind::opt, opt, plan.rings.ram_opt);
    }
    if (passes_through(plan, &PartHomes::stash, Tier::ram)) {
        table.ram_stash = maker.ring(Tier::ram, Kind::stash, stash, plan.rings.ram_stash);
    }
    if (has_stash_out(plan)) {
        table.ram_stash_out = maker.ring(Tier::ram, Kind::stash, stash, plan.rings.ram_stash_out);
    }
    const bool acc_nvme = std::ranges::any_of(table.acc, [&](SlotId slot) {
        return slot != no_slot && table.slots[slot].tier == Tier::nvme;
    });
    if (acc_nvme) table.ram_acc = maker.ring(Tier::ram, Kind::acc, acc, plan.rings.ram_acc);
    if (std::ranges::find(plan.act_homes, Tier::nvme) != plan.act_homes.end())
        table.ram_act = maker.ring(Tier::ram, Kind::act, act, plan.rings.ram_act);
    lay_kept_rings(workload, plan, maker, table);
}

bool is_shared_by_three(const Layout& layout) {
    std::vector<uint32_t> borrower_count(layout.specs.size(), 0);
    for (const LayerSpec& spec : layout.specs) {
        for (const uint32_t borrowed : spec.borrowed_layers) {
            if (++borrower_count[borrowed] > 1) return true;
        }
    }
    return false;
}

// First reason why layers cannot keep as the plan says, or null.
const char* find_kept_fault(const Workload& workload, const Plan& plan) {
    if (workload.kept_bytes % page_bytes != 0) return "kept_bytes is not a multiple of a page";
    if (plan.kept_homes.empty()) return nullptr;
    if (plan.kept_homes.size() != layer_count(workload)) return "kept_homes are not one per layer";
    if (plan.kept_homes.front() || plan.kept_homes.back()) {
        return "the first layer and the last have nothing to keep";
    }
    const bool any = std::ranges::any_of(plan.kept_homes, &std::optional<Tier>::has_value);
    if (any && workload.kept_bytes == 0) return "layers keep, but kept_bytes is 0";
    return nullptr;
}

// The gpu homes of one kind: for all parts of a layer or for none.
bool splits_a_layer(const Workload& workload, const Plan& plan, Tier PartHomes::*kind) {
    for (const LayerLayout& layer : workload.layout.layers) {
        for (uint32_t i = 1; i < layer.part_count; ++i) {
            const Tier first = plan.homes[layer.first_part].*kind;
            const Tier other = plan.homes[layer.first_part + i].*kind;
            if ((first == Tier::gpu) != (other == Tier::gpu)) return true;
        }
    }
    return false;
}

// Why a part's update cannot be computed twice, or null.
const char* find_twice_fault(const Workload& workload, const Plan& plan) {
    if (plan.twice.empty()) return nullptr;
    if (plan.twice.size() != plan.homes.size()) return "twice is not one per part";
    for (uint32_t part = 0; part < part_count(workload); ++part) {
        if (!plan.twice[part]) continue;
        if (!plan.homes[part].is_updated_from_nvme()) {
            return "an update is computed twice only where weight and state are on nvme";
        }
        if (!can_update_twice(workload, part)) {
            return "the update of a tied part, or of the head, cannot be computed twice";
        }
    }
    return nullptr;
}

}  // namespace

bool can_update_twice(const Workload& workload, uint32_t part) {
    return use_count(workload, part) == 1 &&
           workload.layout.parts[part].layer != head_layer(workload);
}

std::vector<bool> spread_twice(const Workload& workload, const std::vector<PartHomes>& homes,
                               double share) {
    CHECK_EQ(homes.size(), workload.layout.parts.size());
    std::vector<bool> twice(homes.size(), false);
    Spread spread(share);
    for (uint32_t part = 0; part < twice.size(); ++part) {
        if (!homes[part].is_updated_from_nvme() || !can_update_twice(workload, part)) continue;
        twice[part] = spread.next();
    }
    return twice;
}

bool needs_acc_home(const Workload& workload, const Plan& plan, uint32_t part, uint8_t use) {
    const uint32_t uses = use_count(workload, part);
    if (use >= uses) return false;
    return has_several_passes(workload, plan) || use == 1;
}

bool uses_nvme(const Plan& plan) {
    return std::ranges::any_of(plan.homes, [](const PartHomes& homes) {
        return homes.hi == Tier::nvme || homes.opt == Tier::nvme;
    });
}

int64_t warm_up_step_count(const Plan& plan) {
    if (!uses_nvme(plan) && !commits_every_step(plan)) return 1;
    return 1 + (plan.path_count > 0 ? count_of(plan.durable_copies) : 1);
}

bool passes_through(const Plan& plan, Tier PartHomes::*kind, Tier tier) {
    return std::ranges::any_of(plan.homes,
                               [&](const PartHomes& homes) { return homes.*kind != tier; });
}

bool has_stash_out(const Plan& plan) {
    return std::ranges::any_of(plan.homes, &PartHomes::is_updated_from_nvme) &&
           std::ranges::count(plan.homes, Tier::nvme, &PartHomes::stash) > 0;
}

bool keeps_beyond(const Plan& plan, Tier tier) {
    return std::ranges::any_of(plan.kept_homes, [&](const std::optional<Tier>& home) {
        return home.has_value() && *home > tier;
    });
}

uint32_t group_max(const Workload& workload, const Plan& plan) {
    return std::min(plan.group, workload.micro_batch_count_max);
}

bool has_several_passes(const Workload& workload, const Plan& plan) {
    return workload.micro_batch_count_max > plan.group;
}

Plan uniform_plan(const Workload& workload, PartHomes homes, Tier act_home) {
    Plan plan;
    plan.homes.assign(workload.layout.parts.size(), homes);
    plan.act_homes.assign(layer_count(workload), act_home);
    return plan;
}

const char* find_fault(const Workload& workload, const Plan& plan) {
    if (layer_count(workload) < 2) return "a model needs an embedding and a head";
    if (workload.micro_batch_count == 0) return "no micro-batch";
    if (workload.micro_batch_count_max > micro_batch_count_limit) {
        return "a step of more than 32767 micro-batches";
    }
    if (is_shared_by_three(workload.layout)) return "a layer is borrowed by two others";
    if (workload.micro_batch_count > workload.micro_batch_count_max) {
        return "more micro-batches than slots are laid out for";
    }
    if (workload.act_bytes % page_bytes != 0) return "act_bytes is not a multiple of a page";
    if (plan.group == 0) return "micro_batches_per_pass is 0";
    if (plan.window == 0) return "layers_in_flight is 0";
    if (plan.homes.size() != workload.layout.parts.size()) return "homes are not one per part";
    if (plan.act_homes.size() != layer_count(workload)) return "act_homes are not one per boundary";
    if (splits_a_layer(workload, plan, &PartHomes::hi)) {
        return "a layer's weights must be on the gpu as a whole or not at all";
    }
    if (splits_a_layer(workload, plan, &PartHomes::acc)) {
        return "a layer's accumulators must be on the gpu as a whole or not at all";
    }
    if (const char* fault = find_kept_fault(workload, plan)) return fault;
    if (const char* fault = find_twice_fault(workload, plan)) return fault;
    if (!is_durable(plan.durable_copies)) return "durable places are called scratch";
    if (commits_every_step(plan) && plan.durable_copies == Copies::one) {
        return "a commit with every step needs two copies of durable places";
    }
    const RingSizes& rings = plan.rings;
    for (const uint32_t slots :
         {rings.ram_hi, rings.ram_opt, rings.ram_stash, rings.ram_acc, rings.ram_act,
          rings.gpu_stash, rings.gpu_seam, rings.gpu_kept, rings.ram_kept, rings.ram_stash_out}) {
        if (slots == 0) return "a ring has no slot";
    }
    return nullptr;
}

SlotTable lay_slots(const Workload& workload, const Plan& plan) {
    const char* fault = find_fault(workload, plan);
    CHECK_TEXT(fault == nullptr, fault);
    SlotTable table;
    SlotMaker maker(table.slots);
    lay_homes(workload, plan, maker, table);
    lay_rings(workload, plan, maker, table);
    for (uint32_t part = 0; part < part_count(workload); ++part) {
        table.norm.push_back(maker.control(Kind::norm));
    }
    table.verdict = maker.control(Kind::verdict);
    for (uint32_t path = 0; path < plan.path_count && commits_every_step(plan); ++path) {
        table.flushed.push_back(maker.control(Kind::flushed));
    }
    if (commits_every_step(plan)) {
        table.journal = maker.control(Kind::journal);
        table.committed = maker.control(Kind::committed);
    }
    table.workspace_offset_bytes = maker.end_bytes(Tier::gpu);
    return table;
}

}  // namespace headrace::offload
