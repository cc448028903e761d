// Goal: a recipe is read as the weights that it stands for, to the last bit, is written without
// them, and one that cannot be is refused by name.
// Method: the same shape written with weights and as a recipe; every element of both compared.
#include "engine/checkpoint/weight_recipe.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/copy_checkpoint.h"
#include "engine/checkpoint/random_checkpoint.h"
#include "engine/models/llama.h"
#include "tests/engine/checkpoint/test_folder.h"
#include "tests/engine/checkpoint/tiny_config.h"

namespace headrace::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class WeightRecipe : public testing::Test {
  protected:
    offload::Status write(const std::string& name, bool is_recipe) {
        return write_random_checkpoint({.config_text = tiny_config,
                                        .source = "config.json",
                                        .target_folder = folder_ / name,
                                        .block_count = 2,
                                        .seed = 7,
                                        .is_recipe = is_recipe});
    }
    TestFolder folder_;
};

TEST_F(WeightRecipe, is_read_as_the_weights_it_stands_for) {
    ASSERT_TRUE(write("weights", false).ok());
    ASSERT_TRUE(write("recipe", true).ok());
    EXPECT_THAT(names_in(folder_ / "recipe"),
                UnorderedElementsAre("config.json", "random_weights.json", "tokenizer.json",
                                     "tokenizer_config.json"));
    const auto weights = Checkpoint::open(folder_ / "weights");
    const auto recipe = Checkpoint::open(folder_ / "recipe");
    ASSERT_TRUE(weights.ok());
    ASSERT_TRUE(recipe.ok()) << recipe.error().text();
    EXPECT_EQ(recipe->names(), weights->names());
    const auto config = parse_llama_config(
        bytes_of_file(fs::path(folder_ / "recipe") / "config.json"), "config.json");
    ASSERT_TRUE(config.ok());
    EXPECT_TRUE(recipe->check_against(layers_of(*config)).ok());
    for (const std::string& name : weights->names()) {
        const uint64_t first = 3;  // not where a tensor begins
        const uint64_t count = weights->find(name)->element_count - first;
        for (const offload::Dtype dtype : {offload::Dtype::bf16, offload::Dtype::fp32}) {
            std::vector<std::byte> expected(bytes_of(dtype, count), std::byte{1});
            std::vector<std::byte> found(expected.size());
            ASSERT_TRUE(
                weights->read_elements(name, first, {.dtype = dtype, .weights = expected, .lo = {}})
                    .ok());
            ASSERT_TRUE(
                recipe->read_elements(name, first, {.dtype = dtype, .weights = found, .lo = {}})
                    .ok());
            EXPECT_EQ(found, expected) << name;
        }
    }
}

// What is trained from a recipe has weights of its own.
TEST_F(WeightRecipe, is_not_copied_beside_weights) {
    ASSERT_TRUE(write("recipe", true).ok());
    const auto recipe = Checkpoint::open(folder_ / "recipe");
    ASSERT_TRUE(recipe.ok());
    const auto config = parse_llama_config(
        bytes_of_file(fs::path(folder_ / "recipe") / "config.json"), "config.json");
    const auto copied = copy_checkpoint(*recipe, {.target_folder = folder_ / "copy",
                                                  .layers = layers_of(*config),
                                                  .dtype = offload::Dtype::bf16});
    ASSERT_TRUE(copied.ok()) << copied.error().text();
    EXPECT_FALSE(fs::exists(folder_ / "copy/random_weights.json"));
    EXPECT_TRUE(fs::exists(folder_ / "copy/model.safetensors"));
}

TEST_F(WeightRecipe, what_cannot_be_read_or_written_is_refused_by_name) {
    ASSERT_TRUE(write("recipe", true).ok());
    const auto again = write("recipe", true);
    ASSERT_FALSE(again.ok());
    EXPECT_THAT(again.error().text(), HasSubstr("there is something"));
    const fs::path file = fs::path(folder_ / "recipe") / "random_weights.json";
    for (const char* text : {"{", "[]", "{}", R"({"seed": -1})", R"({"seed": 1, "size": 2})"}) {
        std::ofstream(file) << text;
        const auto refused = Checkpoint::open(folder_ / "recipe");
        ASSERT_FALSE(refused.ok()) << text;
        EXPECT_EQ(refused.error().code, offload::ErrorCode::bad_data);
        EXPECT_THAT(refused.error().text(), HasSubstr("random_weights.json"));
    }
    std::ofstream(file) << R"({"seed": 1})";
    EXPECT_TRUE(Checkpoint::open(folder_ / "recipe").ok());
    fs::remove(fs::path(folder_ / "recipe") / "config.json");
    EXPECT_FALSE(Checkpoint::open(folder_ / "recipe").ok());
}

}  // namespace
}  // namespace headrace::engine
