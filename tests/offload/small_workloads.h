// Small workloads for exhaustive tests: every layer has one tensor that is cut into as many parts
// as asked for; a tied head borrows the embedding.
#pragma once

#include <optional>
#include <vector>

#include "offload/schedule.h"
#include "offload/slots.h"
#include "offload/units.h"

namespace headrace::offload {

struct SmallShape {
    uint32_t block_count = 1;
    uint32_t parts_per_layer = 1;
    bool tied = false;
    uint32_t micro_batch_count = 1;
};

inline Workload small_workload(const SmallShape& shape) {
    std::vector<LayerSpec> specs;
    const auto side = static_cast<int64_t>(block_elements * shape.parts_per_layer);
    const auto tensor = [&](const std::string& name, int64_t element_count) {
        return TensorSpec{.name = name, .shape = {element_count}};
    };
    specs.push_back({"embedding", {tensor("embedding", side)}, {}});
    for (uint32_t block = 0; block < shape.block_count; ++block) {
        const std::string name = "block" + std::to_string(block);
        specs.push_back({name, {tensor(name, side)}, {}});
    }
    specs.push_back({"head", {tensor("norm", 64)}, {}});
    if (shape.tied) {
        specs.back().borrowed_layers = {0};
    } else {
        specs.back().tensors.push_back(tensor("head", side));
    }
    Workload workload;
    workload.layout = *make_layout(std::move(specs), block_elements);
    workload.micro_batch_count = shape.micro_batch_count;
    workload.micro_batch_count_max = shape.micro_batch_count;
    workload.act_bytes = page_bytes;
    workload.kept_bytes = 2 * page_bytes;
    workload.workspace_bytes = page_bytes;
    return workload;
}

// Every block keeps there.
inline void keep_blocks(const Workload& workload, std::optional<Tier> home, Plan& plan) {
    plan.kept_homes.assign(layer_count(workload), home);
    plan.kept_homes.front() = plan.kept_homes.back() = std::nullopt;
}

}  // namespace headrace::offload
