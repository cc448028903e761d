#include "engine/plan/part_of_model.h"

#include <algorithm>

#include "offload/sizes.h"

namespace headrace::engine {

using offload::LayerLayout;
using offload::Plan;

uint32_t source_layer(uint32_t layer, uint32_t layer_count, uint32_t whole_layer_count) {
    CHECK_LT(layer, layer_count);
    CHECK_LE(layer_count, whole_layer_count);
    if (layer == 0) return 0;
    if (layer == layer_count - 1) return whole_layer_count - 1;
    return 1 + (2 * layer - 1) * (whole_layer_count - 2) / (2 * (layer_count - 2));
}

Placement part_of(const Placement& whole, const LlamaConfig& part_model) {
    const Plan& from = whole.plan;
    const uint32_t whole_layers = layer_count(whole.workload);
    Placement part = whole;
    part.workload.layout = layout_of(part_model, whole.workload.dtype, whole.part_bytes).value();
    const uint32_t layers = layer_count(part.workload);
    const size_t parts = part.workload.layout.parts.size();
    CHECK_GE(part_model.block_count, 1);

    Plan& plan = part.plan;
    plan.homes.assign(parts, {});
    plan.act_homes.resize(layers);
    if (!from.kept_homes.empty()) plan.kept_homes.assign(layers, std::nullopt);
    if (!from.twice.empty()) plan.twice.assign(parts, false);
    for (uint32_t layer = 0; layer < layers; ++layer) {
        const uint32_t source = source_layer(layer, layers, whole_layers);
        plan.act_homes[layer] = from.act_homes[source];
        if (!plan.kept_homes.empty()) plan.kept_homes[layer] = from.kept_homes[source];
        const LayerLayout& here = part.workload.layout.layers[layer];
        const LayerLayout& there = whole.workload.layout.layers[source];
        CHECK_EQ(here.part_count, there.part_count);
        for (uint32_t i = 0; i < here.part_count; ++i) {
            plan.homes[here.first_part + i] = from.homes[there.first_part + i];
            if (!plan.twice.empty()) {
                plan.twice[here.first_part + i] = from.twice[there.first_part + i];
            }
        }
    }
    plan.window = std::min(plan.window, layers);
    const char* fault = find_fault(part.workload, plan);
    CHECK_TEXT(fault == nullptr, fault == nullptr ? "" : fault);
    part.needs = offload::Sizes(part.workload).of(plan);
    return part;
}

}  // namespace headrace::engine
