// Goal: the layout of a model is a function of the model alone, and parts tile it. Method: a small
// model cut in several ways, the pieces added up again, and each invariant broken by hand.
#include "offload/part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offload/units.h"

namespace headrace::offload {
namespace {

using testing::ElementsAre;
using testing::StrEq;

std::vector<LayerSpec> small_model() {
    return {
        {"embedding", {{.name = "embed", .shape = {100, 70}}}, {}},
        {"block",
         {{.name = "norm", .shape = {33}},
          {.name = "scale", .shape = {}},
          {.name = "none", .shape = {0, 5}},
          {.name = "up", .shape = {70, 90}}},
         {}},
        {"head", {}, {0}},
    };
}

TEST(Part, TensorsBeginAt64BytesAndLayersEndAtABlock) {
    const Layout layout = *make_layout(small_model(), 4 * block_elements);
    EXPECT_EQ(find_fault(layout), nullptr);
    EXPECT_THAT(layout.layers[1].tensors, ElementsAre(TensorExtent{0, 33}, TensorExtent{64, 1},
                                                      TensorExtent{96, 0}, TensorExtent{96, 6300}));
    EXPECT_EQ(layout.layers[1].element_count, 4 * block_elements);
    EXPECT_EQ(layout.layers[0].element_count, 4 * block_elements);
    EXPECT_EQ(layout.layers[2].element_count, 0u);
    EXPECT_EQ(layout.layers[2].part_count, 0u);
}

TEST(Part, ElementsOfATensorAreTheProductOfItsSides) {
    EXPECT_EQ(element_count_of({.name = "scalar", .shape = {}}), 1u);
    EXPECT_EQ(element_count_of({.name = "empty", .shape = {7, 0}}), 0u);
    EXPECT_EQ(element_count_of({.name = "matrix", .shape = {7, 6}}), 42u);
}

TEST(Part, TheFlatRunDoesNotDependOnTheCut) {
    const Layout whole = *make_layout(small_model(), 1024 * block_elements);
    for (const uint64_t blocks : {1u, 2u, 3u, 4u}) {
        const Layout cut = *make_layout(small_model(), blocks * block_elements);
        EXPECT_EQ(find_fault(cut), nullptr);
        for (size_t layer = 0; layer < whole.layers.size(); ++layer) {
            EXPECT_EQ(cut.layers[layer].tensors, whole.layers[layer].tensors);
            EXPECT_EQ(cut.layers[layer].element_count, whole.layers[layer].element_count);
            EXPECT_EQ(cut.layers[layer].part_count,
                      div_ceil(cut.layers[layer].element_count, blocks * block_elements));
        }
    }
}

TEST(Part, PiecesOfAllPartsAddUpToEveryTensor) {
    for (const uint64_t blocks : {1u, 2u, 3u, 4u}) {
        const Layout layout = *make_layout(small_model(), blocks * block_elements);
        for (size_t layer = 0; layer < layout.layers.size(); ++layer) {
            const LayerLayout& run = layout.layers[layer];
            std::vector<uint64_t> next_element(run.tensors.size(), 0);
            for (uint32_t i = 0; i < run.part_count; ++i) {
                const Part& part = layout.parts[run.first_part + i];
                for (const TensorPiece& piece : pieces_of(layout, run.first_part + i)) {
                    EXPECT_EQ(piece.first_in_tensor, next_element[piece.tensor]);
                    EXPECT_EQ(part.first_element + piece.first_in_part,
                              run.tensors[piece.tensor].first_element + piece.first_in_tensor);
                    EXPECT_LE(piece.first_in_part + piece.element_count, part.element_count);
                    next_element[piece.tensor] += piece.element_count;
                }
            }
            for (size_t tensor = 0; tensor < run.tensors.size(); ++tensor) {
                EXPECT_EQ(next_element[tensor], run.tensors[tensor].element_count);
            }
        }
    }
}

TEST(Part, ALayerUsesBorrowedPartsFirst) {
    std::vector<LayerSpec> specs = small_model();
    specs[2].tensors.push_back({.name = "last_norm", .shape = {64}});
    const Layout layout = *make_layout(std::move(specs), 2 * block_elements);
    EXPECT_THAT(parts_used(layout, 0), ElementsAre(0, 1));
    EXPECT_THAT(parts_used(layout, 1), ElementsAre(2, 3));
    EXPECT_THAT(parts_used(layout, 2), ElementsAre(0, 1, 4));
}

TEST(Part, AModelWithoutParametersIsRefused) {
    for (const std::vector<LayerSpec>& specs :
         {std::vector<LayerSpec>{}, std::vector<LayerSpec>{{"hollow", {}, {}}}}) {
        const Result<Layout> layout = make_layout(specs, block_elements);
        ASSERT_FALSE(layout.ok());
        EXPECT_EQ(layout.error().code, ErrorCode::does_not_fit);
    }
}

TEST(Part, EveryBrokenInvariantIsNamed) {
    const Layout good = *make_layout(small_model(), 2 * block_elements);
    const auto fault_after = [&](auto change) {
        Layout layout = good;
        change(layout);
        const char* fault = find_fault(layout);
        return std::string(fault == nullptr ? "none" : fault);
    };
    EXPECT_EQ(fault_after([](Layout&) {}), "none");
    EXPECT_THAT(fault_after([](Layout& l) { l.layers.pop_back(); }),
                StrEq("a layer without a layout"));
    EXPECT_THAT(fault_after([](Layout& l) { l.layers[1].element_count += 1; }),
                StrEq("a layer is not padded to a block"));
    EXPECT_THAT(fault_after([](Layout& l) { l.layers[1].tensors[1].first_element = 65; }),
                StrEq("a tensor is not aligned"));
    EXPECT_THAT(fault_after([](Layout& l) { l.layers[1].tensors[1].first_element = 32; }),
                StrEq("two tensors overlap"));
    EXPECT_THAT(fault_after([](Layout& l) { l.layers[1].tensors[3].element_count = 8192; }),
                StrEq("a tensor ends outside its layer"));
    EXPECT_THAT(fault_after([](Layout& l) { ++l.layers[1].first_part; }),
                StrEq("a layer's parts do not follow the layer before"));
    EXPECT_THAT(fault_after([](Layout& l) { ++l.layers[2].part_count; }),
                StrEq("a layer counts parts that do not exist"));
    EXPECT_THAT(fault_after([](Layout& l) { l.parts[2].layer = 0; }),
                StrEq("a part belongs to another layer"));
    EXPECT_THAT(fault_after([](Layout& l) { l.parts[1].first_element += block_elements; }),
                StrEq("a layer's parts leave a gap or overlap"));
    EXPECT_THAT(fault_after([](Layout& l) { l.parts[1].element_count = 0; }),
                StrEq("an empty part"));
    EXPECT_THAT(fault_after([](Layout& l) { l.parts[1].element_count -= 32; }),
                StrEq("a part cuts a block"));
    EXPECT_THAT(fault_after([](Layout& l) { l.parts[1].element_count -= block_elements; }),
                StrEq("a layer's parts do not cover it"));
    EXPECT_THAT(fault_after([](Layout& l) { l.specs[2].borrowed_layers = {2}; }),
                StrEq("a layer borrows from one that does not stand before it"));
    EXPECT_THAT(fault_after([](Layout& l) { l.parts.push_back(l.parts.back()); }),
                StrEq("a part without a layer"));
}

}  // namespace
}  // namespace headrace::offload
