#include "offload/fill.h"

#include <algorithm>

namespace headrace::offload {

namespace {

// The share of cached parts is found to 1 / 2^this.
constexpr int cached_share_bits = 7;

// Makes the count of a choice that fits as large as there is room for.
void raise(const Room& room, uint32_t Choice::*count, uint32_t most, Choice& choice) {
    uint32_t low = choice.*count;
    uint32_t high = most + 1;
    CHECK_LT(low, high);
    while (high - low > 1) {
        choice.*count = low + (high - low) / 2;
        (room.has_room_for(choice) ? low : high) = choice.*count;
    }
    choice.*count = low;
    CHECK_LE(low, most);
}

}  // namespace

uint32_t can_keep_count(const Workload& workload) {
    return workload.kept_bytes == 0 ? 0 : layer_count(workload) - 2;
}

void keep_counts(const Room& room, const KeptCounts& counts, Choice& choice) {
    uint32_t left = can_keep_count(room.workload());
    const auto take = [&left](uint32_t count) {
        const uint32_t taken = std::min(count, left);
        left -= taken;
        return taken;
    };
    choice.kept.gpu = take(counts.gpu);
    choice.kept.ram = take(counts.ram);
    if (room.question().path_count > 0) choice.kept.nvme = take(counts.nvme);
    CHECK_LE(choice.kept.count(), can_keep_count(room.workload()));
}

void keep_most(const Room& room, Tier farthest, Choice& choice) {
    const Workload& workload = room.workload();
    const Question& question = room.question();
    const uint32_t most = can_keep_count(workload);
    if (most == 0) return;
    const TierBytes needs = room.slot_bytes_of(choice);
    const uint64_t layer_bytes =
        workload.kept_bytes * std::min(choice.group, workload.micro_batch_count_max);
    const uint64_t memory_free =
        excess(question.memory_ceiling_bytes, needs.gpu_bytes + needs.ram_bytes);
    const uint64_t gpu_free =
        std::min(memory_free, excess(question.ceilings.gpu_bytes, needs.gpu_bytes));
    choice.kept.gpu = static_cast<uint32_t>(std::min<uint64_t>(most, gpu_free / layer_bytes));
    if (farthest == Tier::gpu || choice.kept.gpu == most) return;

    // With rings, of which those on the gpu may cost it a layer.
    const bool keeps_all = farthest == Tier::nvme;
    const uint64_t gpu_ring_bytes = workload.kept_bytes * RingSizes{}.gpu_kept;
    const uint64_t ram_ring_bytes = keeps_all ? workload.kept_bytes * RingSizes{}.ram_kept : 0;
    if (gpu_free < gpu_ring_bytes) return;
    const auto on_gpu = static_cast<uint32_t>((gpu_free - gpu_ring_bytes) / layer_bytes);
    const uint64_t ram_free = std::min(memory_free - gpu_ring_bytes - on_gpu * layer_bytes,
                                       excess(question.ceilings.ram_bytes, needs.ram_bytes));
    if (ram_free < ram_ring_bytes) return;
    const auto in_ram = static_cast<uint32_t>(
        std::min<uint64_t>(most - on_gpu, (ram_free - ram_ring_bytes) / layer_bytes));
    if (!keeps_all && on_gpu + in_ram <= choice.kept.gpu) return;
    choice.kept.gpu = on_gpu;
    choice.kept.ram = in_ram;
    if (keeps_all) choice.kept.nvme = most - on_gpu - in_ram;
}

void cache_parts(const Room& room, Choice& choice) {
    if (room.question().fixed.parameters && room.question().fixed.optimizer) return;
    double low = 0;
    double high = 1;
    for (int bit = 0; bit < cached_share_bits; ++bit) {
        choice.cached_share = (low + high) / 2;
        (room.has_room_for(choice) ? low : high) = choice.cached_share;
    }
    choice.cached_share = 0;
    const std::vector<PartHomes> uncached = room.plan_of(choice).homes;
    choice.cached_share = low;
    // There was no room for a part, or none whose place it would be.
    if (room.plan_of(choice).homes == uncached) choice.cached_share = 0;
}

void bring_activations_near(const Room& room, Tier nearest, Choice& choice) {
    if (room.question().fixed.activations) return;
    const uint32_t count = head_layer(room.workload()) - 1;
    if (nearest == Tier::gpu && choice.activations != Tier::gpu) {
        raise(room, &Choice::gpu_act_count, count, choice);
    }
    if (choice.activations != Tier::nvme) return;
    raise(room, &Choice::ram_act_count, count - choice.gpu_act_count, choice);
}

void bring_gradients_near(const Room& room, WhoseGradients whose, Choice& choice) {
    if (room.question().fixed.stash || choice.stash != Tier::nvme) return;
    const Layout& layout = room.workload().layout;
    const size_t most = whose == WhoseGradients::first_layer ? layout.layers.front().part_count
                                                             : layout.parts.size();
    if (choice.ram_stash_count >= most) return;
    raise(room, &Choice::ram_stash_count, static_cast<uint32_t>(most), choice);
}

}  // namespace headrace::offload
