#include "offload/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "offload/state_format.h"
#include "offload/units.h"

namespace headrace::offload {

std::string_view name_of(Kind kind) {
    constexpr std::array<std::string_view, 12> names = {
        "hi",   "opt",  "stash",   "acc",     "act",     "dact",
        "kept", "norm", "verdict", "flushed", "journal", "committed"};
    CHECK_LT(static_cast<size_t>(kind), names.size());
    return names[static_cast<size_t>(kind)];
}

std::string_view name_of(OpKind kind) {
    constexpr std::array<std::string_view, 9> names = {
        "fetch", "compute", "reduce", "verdict", "update", "evict", "sync", "record", "seal"};
    CHECK_LT(static_cast<size_t>(kind), names.size());
    return names[static_cast<size_t>(kind)];
}

uint32_t layer_count(const Workload& workload) {
    return static_cast<uint32_t>(workload.layout.layers.size());
}

uint32_t head_layer(const Workload& workload) {
    CHECK_GE(layer_count(workload), 2u);
    return layer_count(workload) - 1;
}

uint32_t use_count(const Workload& workload, uint32_t part) {
    const uint32_t owner = workload.layout.parts[part].layer;
    uint32_t count = 1;
    for (const LayerSpec& spec : workload.layout.specs) {
        count += static_cast<uint32_t>(std::ranges::count(spec.borrowed_layers, owner));
    }
    CHECK_LE(count, 2u);
    return count;
}

uint8_t use_in(const Workload& workload, uint32_t part, uint32_t layer) {
    return workload.layout.parts[part].layer == layer ? 0 : 1;
}

std::vector<bool> layers_that_keep(const Schedule& schedule) {
    std::vector<bool> keeps(layer_count(schedule.workload), false);
    for (const Slot& slot : schedule.slots) {
        if (slot.kind != Kind::kept || !slot.is_home) continue;
        CHECK_LT(slot.of, keeps.size());
        keeps[slot.of] = true;
    }
    return keeps;
}

uint64_t bytes_of_value(const Workload& workload, const Value& value) {
    const auto element_count = [&] { return workload.layout.parts[value.of].element_count; };
    switch (value.kind) {
        case Kind::hi: return bytes_of(workload.dtype, element_count());
        case Kind::opt: return opt_bytes(workload.dtype, workload.states, element_count());
        case Kind::stash: return bytes_of(workload.gradients, element_count());
        case Kind::acc: return bytes_of(Dtype::fp32, element_count());
        case Kind::act:
        case Kind::dact: return workload.act_bytes;
        case Kind::kept: return workload.kept_bytes;
        default: return 0;
    }
}

uint64_t tier_bytes(const Schedule& schedule, Tier tier) {
    uint64_t end_bytes =
        tier == Tier::gpu ? schedule.workspace_offset_bytes + schedule.workload.workspace_bytes : 0;
    for (const Slot& slot : schedule.slots) {
        if (slot.tier != tier) continue;
        if (tier == Tier::nvme) {
            end_bytes += slot.size_bytes * count_of(slot.copies);
        } else {
            end_bytes = std::max(end_bytes, slot.offset_bytes + slot.size_bytes);
        }
    }
    return end_bytes;
}

uint64_t moved_bytes(const Schedule& schedule, LaneKind lane) {
    uint64_t size_bytes = 0;
    for (const Op& op : schedule.ops) {
        if (op.lane.kind != lane) continue;
        for (const Access& access : op.accesses) {
            if (access.mode != Mode::write) continue;
            size_bytes += bytes_of_value(schedule.workload, access.value);
        }
    }
    return size_bytes;
}

std::string describe(const Value& value) {
    switch (value.kind) {
        case Kind::hi:
        case Kind::opt:
        case Kind::stash:
        case Kind::norm:
            return fmt::format("{}(part {}, step {})", name_of(value.kind), value.of, value.step);
        case Kind::acc:
            return fmt::format("acc(part {} use {}, step {}, micro-batch {})", value.of, value.use,
                               value.step, value.micro_batch);
        case Kind::act:
        case Kind::dact:
            return fmt::format("{}(boundary {}, step {}, micro-batch {})", name_of(value.kind),
                               value.of, value.step, value.micro_batch);
        case Kind::kept:
            return fmt::format("kept(layer {}, step {}, micro-batch {})", value.of, value.step,
                               value.micro_batch);
        default: return fmt::format("{}({}, step {})", name_of(value.kind), value.of, value.step);
    }
}

const Access* find_access(const Op& op, Kind kind, Mode mode) {
    for (const Access& access : op.accesses) {
        if (access.value.kind == kind && access.mode == mode) return &access;
    }
    return nullptr;
}

namespace {

// The value a copy moves and the tiers it moves between.
std::string describe_copy(const Schedule& schedule, const Op& op) {
    const Access* source = nullptr;
    const Access* target = nullptr;
    for (const Access& access : op.accesses) {
        if (is_control(access.value.kind)) continue;
        (access.mode == Mode::read ? source : target) = &access;
    }
    if (source == nullptr || target == nullptr) return fmt::format("{}", name_of(op.kind));
    return fmt::format("{} {} {} -> {}", name_of(op.kind), describe(target->value),
                       name_of(schedule.slots[source->slot].tier),
                       name_of(schedule.slots[target->slot].tier));
}

}  // namespace

std::string describe(const Schedule& schedule, const Op& op) {
    constexpr std::array<std::string_view, 5> passes = {"", "forward", "backward", "head", "loss"};
    switch (op.kind) {
        case OpKind::fetch:
        case OpKind::evict: return describe_copy(schedule, op);
        case OpKind::compute:
            return fmt::format("{} layer {} micro-batch {}", passes[static_cast<size_t>(op.pass)],
                               op.layer, op.micro_batch);
        case OpKind::reduce: return fmt::format("reduce part {}", op.part);
        case OpKind::update: {
            const bool is_whole = find_access(op, Kind::opt, Mode::write) != nullptr;
            return fmt::format("update {}part {}", is_whole ? "" : "hi of ", op.part);
        }
        default: return std::string(name_of(op.kind));
    }
}

}  // namespace headrace::offload
