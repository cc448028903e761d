#include "offload/part.h"

#include <algorithm>
#include <utility>

#include "offload/units.h"

namespace headrace::offload {

uint64_t element_count_of(const TensorSpec& tensor) {
    uint64_t element_count = 1;
    for (const int64_t side : tensor.shape) {
        CHECK_GE(side, 0);
        element_count *= static_cast<uint64_t>(side);
    }
    return element_count;
}

namespace {

LayerLayout lay(const LayerSpec& spec) {
    LayerLayout layout;
    uint64_t next_element = 0;
    for (const TensorSpec& tensor : spec.tensors) {
        const uint64_t element_count = element_count_of(tensor);
        layout.tensors.push_back({.first_element = next_element, .element_count = element_count});
        next_element = align_up(next_element + element_count, tensor_alignment_elements);
    }
    layout.element_count = align_up(next_element, block_elements);
    return layout;
}

}  // namespace

Result<Layout> make_layout(std::vector<LayerSpec> specs, uint64_t part_element_count_max) {
    CHECK_GT(part_element_count_max, 0u);
    CHECK_EQ(part_element_count_max % block_elements, 0u);
    Layout layout;
    for (uint32_t layer = 0; layer < specs.size(); ++layer) {
        LayerLayout run = lay(specs[layer]);
        run.first_part = static_cast<uint32_t>(layout.parts.size());
        for (uint64_t first = 0; first < run.element_count; first += part_element_count_max) {
            layout.parts.push_back(
                {.layer = layer,
                 .first_element = first,
                 .element_count = std::min(part_element_count_max, run.element_count - first)});
        }
        run.part_count = static_cast<uint32_t>(layout.parts.size()) - run.first_part;
        layout.layers.push_back(std::move(run));
    }
    if (layout.parts.empty()) {
        return Error{ErrorCode::does_not_fit, "the model has no parameters", ""};
    }
    layout.specs = std::move(specs);
    DCHECK(find_fault(layout) == nullptr);
    return layout;
}

std::vector<TensorPiece> pieces_of(const Layout& layout, uint32_t part) {
    CHECK_LT(part, layout.parts.size());
    const Part& whole = layout.parts[part];
    const uint64_t part_end = whole.first_element + whole.element_count;
    std::vector<TensorPiece> pieces;
    const std::vector<TensorExtent>& tensors = layout.layers[whole.layer].tensors;
    for (uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
        const TensorExtent& extent = tensors[tensor];
        const uint64_t begin = std::max(extent.first_element, whole.first_element);
        const uint64_t end = std::min(extent.first_element + extent.element_count, part_end);
        if (begin >= end) continue;
        pieces.push_back({.tensor = tensor,
                          .first_in_tensor = begin - extent.first_element,
                          .first_in_part = begin - whole.first_element,
                          .element_count = end - begin});
    }
    return pieces;
}

std::vector<uint32_t> parts_used(const Layout& layout, uint32_t layer) {
    CHECK_LT(layer, layout.layers.size());
    std::vector<uint32_t> parts;
    auto append = [&](const LayerLayout& run) {
        for (uint32_t i = 0; i < run.part_count; ++i) parts.push_back(run.first_part + i);
    };
    for (const uint32_t borrowed : layout.specs[layer].borrowed_layers) {
        append(layout.layers[borrowed]);
    }
    append(layout.layers[layer]);
    return parts;
}

const char* find_fault(const Layout& layout) {
    if (layout.specs.size() != layout.layers.size()) return "a layer without a layout";
    uint32_t next_part = 0;
    for (uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
        const LayerLayout& run = layout.layers[layer];
        if (run.element_count % block_elements != 0) return "a layer is not padded to a block";
        uint64_t free_element = 0;
        for (const TensorExtent& extent : run.tensors) {
            if (extent.first_element % tensor_alignment_elements != 0)
                return "a tensor is not aligned";
            if (extent.first_element < free_element) return "two tensors overlap";
            free_element = extent.first_element + extent.element_count;
        }
        if (free_element > run.element_count) return "a tensor ends outside its layer";
        if (run.first_part != next_part) return "a layer's parts do not follow the layer before";
        uint64_t next_element = 0;
        for (; next_part < run.first_part + run.part_count; ++next_part) {
            if (next_part >= layout.parts.size()) return "a layer counts parts that do not exist";
            const Part& part = layout.parts[next_part];
            if (part.layer != layer) return "a part belongs to another layer";
            if (part.first_element != next_element) return "a layer's parts leave a gap or overlap";
            if (part.element_count == 0) return "an empty part";
            if (part.element_count % block_elements != 0) return "a part cuts a block";
            next_element += part.element_count;
        }
        if (next_element != run.element_count) return "a layer's parts do not cover it";
        for (const uint32_t borrowed : layout.specs[layer].borrowed_layers) {
            if (borrowed >= layer) return "a layer borrows from one that does not stand before it";
        }
    }
    if (next_part != layout.parts.size()) return "a part without a layer";
    return nullptr;
}

}  // namespace headrace::offload
