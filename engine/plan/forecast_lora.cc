#include "engine/models/effort.h"
#include "engine/plan/forecast.h"
#include "engine/plan/purposes.h"
#include "offload/check.h"
#include "offload/sizes.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::excess;
using offload::Tier;

namespace {

// Of one block: each product in x out has two factors, in x rank and rank x out.
uint64_t adapter_count(const LlamaConfig& model, int64_t rank) {
    CHECK_GT(rank, 0);
    CHECK_GT(model.block_count, 0);
    const int64_t hidden = model.hidden_size;
    const int64_t queries = model.head_count * model.head_dim;
    const int64_t keys = model.kv_head_count * model.head_dim;
    const int64_t inner = model.intermediate_size;
    // q and o, k and v, gate and up and down.
    const int64_t sides = 2 * (hidden + queries) + 2 * (hidden + keys) + 3 * (hidden + inner);
    return static_cast<uint64_t>(rank * sides);
}

// What a tier holds whatever is trained: not weights, states or gradients of the base.
uint64_t bytes_besides_model(const Placement& placement, Tier tier) {
    using offload::Kind;
    const HomeBytes homes(placement);
    uint64_t model_bytes = 0;
    for (const Kind kind : {Kind::hi, Kind::opt, Kind::stash, Kind::acc}) {
        model_bytes += homes.of(kind, tier);
    }
    return excess(placement.needs.on(tier), model_bytes);
}

// Of a micro-batch, where weights are frozen: backward computes the gradients of what came in, and
// none of the products' weights. Adapters have all three passes.
double flop_of_micro_batch(const Job& job, const Placement& placement, uint64_t adapters) {
    const offload::Effort effort = effort_of(job.config, job.row_count_max, job.column_count_max);
    CHECK_GT(effort.layers.size(), 2u);
    const size_t kept_count = placement.choice.kept.count();
    const size_t block_count = effort.layers.size() - 2;
    const auto tokens = static_cast<double>(job.row_count_max * job.column_count_max);
    CHECK_GT(tokens, 0.0);
    CHECK_LE(kept_count, block_count);
    double flop = effort.layers.back().backward_flop * 2 / 3;  // of the head
    for (size_t block = 0; block < block_count; ++block) {
        const offload::LayerEffort& layer = effort.layers[1 + block];
        // Forward is products + attention, backward 2 products + 2.5 attention.
        const double attention = 2 * (layer.backward_flop - 2 * layer.forward_flop);
        const double products = layer.forward_flop - attention;
        CHECK_GE(attention, 0.0);
        CHECK_GT(products, 0.0);
        const double recompute = block < kept_count ? 0 : layer.recompute_flop;
        flop += layer.forward_flop + recompute + layer.backward_flop - products;
        flop += 6 * static_cast<double>(adapters) * tokens;
    }
    return flop;
}

}  // namespace

LoraEstimate estimate_lora(const Job& job, const Placement& placement, const MachineFile& machine) {
    CHECK_GT(job.micro_batch_count_max, 0);
    CHECK_GT(placement.plan.group, 0u);
    CHECK_GT(machine.machine.gpu_flops, 0.0);
    LoraEstimate lora;
    const uint64_t adapters = adapter_count(job.config, lora.rank);
    lora.trained_count = adapters * static_cast<uint64_t>(job.config.block_count);
    const uint64_t base_bytes = bytes_of(placement.workload.dtype, parameter_count(job.config));
    const offload::TierBytes& ceilings = placement.budgets;
    const uint64_t gpu_room = excess(ceilings.gpu_bytes, bytes_besides_model(placement, Tier::gpu));
    const uint64_t ram_room = excess(ceilings.ram_bytes, bytes_besides_model(placement, Tier::ram));
    const bool is_streamed = base_bytes > gpu_room;
    if (is_streamed) {
        lora.nvme_bytes = excess(base_bytes, ram_room);
        lora.base_tier = lora.nvme_bytes > 0 ? Tier::nvme : Tier::ram;
    }
    // Forward and backward of every pass bring it again.
    const uint64_t passes = offload::div_ceil(static_cast<uint64_t>(job.micro_batch_count_max),
                                              uint64_t{placement.plan.group});
    const uint64_t copied_bytes = is_streamed ? 2 * passes * base_bytes : 0;
    lora.read_bytes = 2 * passes * lora.nvme_bytes;
    const offload::Machine& rates = machine.machine;
    lora.longest_lane = "the card";
    lora.step_s = static_cast<double>(job.micro_batch_count_max) *
                  flop_of_micro_batch(job, placement, adapters) / rates.gpu_flops;
    const auto consider = [&](std::string_view lane, uint64_t bytes, double bytes_per_s) {
        if (bytes == 0) return;
        CHECK_GT(bytes_per_s, 0.0);
        const double seconds = static_cast<double>(bytes) / bytes_per_s;
        if (seconds <= lora.step_s) return;
        lora.step_s = seconds;
        lora.longest_lane = lane;
    };
    consider("the link to the card", copied_bytes, rates.link.h2d_bytes_per_s);
    consider("the drives", lora.read_bytes, rates.drive.read_bytes_per_s);
    return lora;
}

}  // namespace headrace::engine
