// Goal: a random model has the distribution it promises, is a function of seed, tensor and place,
// has the blocks that were asked for, and what cannot be written is refused with nothing left.
// Method: moments of a million elements; two writings compared byte for byte; faults by hand.
#include "engine/checkpoint/random_checkpoint.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/models/llama.h"
#include "offload/dtype.h"
#include "tests/engine/checkpoint/test_folder.h"
#include "tests/engine/checkpoint/tiny_config.h"

namespace headrace::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RandomCheckpointTest, elements_are_normal_and_depend_on_seed_tensor_and_place_alone) {
    std::vector<uint16_t> all(1 << 20);
    random_elements(7, "a", 0, all);
    double sum = 0;
    double squares = 0;
    int beyond_two = 0;
    for (const uint16_t bits : all) {
        const double value = offload::bf16_to_float(bits);
        sum += value;
        squares += value * value;
        beyond_two += std::abs(value) > 2 * 0.02;
    }
    const auto count = static_cast<double>(all.size());
    EXPECT_NEAR(sum / count, 0, 1e-4);
    EXPECT_NEAR(std::sqrt(squares / count), 0.02, 1e-4);
    EXPECT_NEAR(beyond_two / count, 0.0455, 0.002);
    std::vector<uint16_t> piece(1001);
    random_elements(7, "a", 12345, piece);
    EXPECT_TRUE(std::ranges::equal(piece, std::span(all).subspan(12345, piece.size())));
    std::vector<uint16_t> other(piece.size());
    random_elements(8, "a", 12345, other);
    EXPECT_NE(piece, other);
    random_elements(7, "b", 12345, other);
    EXPECT_NE(piece, other);
}

TEST(RandomCheckpointTest, writes_the_model_twice_alike_with_as_many_blocks_as_asked) {
    const TestFolder folder;
    for (const char* name : {"one", "two"}) {
        const auto status = write_random_checkpoint({.config_text = tiny_config,
                                                     .source = "config.json",
                                                     .target_folder = folder / name,
                                                     .block_count = 2});
        ASSERT_TRUE(status.ok()) << status.error().text();
    }
    for (const char* name : {"model.safetensors", "config.json", "tokenizer.json"}) {
        const std::string one = bytes_of_file(fs::path(folder / "one") / name);
        EXPECT_FALSE(one.empty()) << name;
        EXPECT_EQ(one, bytes_of_file(fs::path(folder / "two") / name)) << name;
    }
    const auto config =
        parse_llama_config(bytes_of_file(fs::path(folder / "one") / "config.json"), "config.json");
    ASSERT_TRUE(config.ok()) << config.error().text();
    EXPECT_EQ(config->block_count, 2);
    const auto checkpoint = Checkpoint::open(folder / "one");
    ASSERT_TRUE(checkpoint.ok());
    EXPECT_TRUE(checkpoint->check_against(layers_of(*config)).ok());
    std::vector<std::byte> norm(2 * 64);
    ASSERT_TRUE(checkpoint
                    ->read_elements("model.norm.weight", 0,
                                    {.dtype = offload::Dtype::bf16, .weights = norm, .lo = {}})
                    .ok());
    for (size_t i = 0; i < 64; ++i) {
        EXPECT_EQ(reinterpret_cast<const uint16_t*>(norm.data())[i], offload::float_to_bf16(1));
    }
    EXPECT_THAT(names_in(folder.path()), ElementsAre("one", "two")) << "nothing is left beside";
}

TEST(RandomCheckpointTest, what_cannot_be_written_is_refused_and_leaves_nothing) {
    const TestFolder folder;
    const auto refusal = [&](const std::string& text, int64_t blocks) {
        const auto status = write_random_checkpoint({.config_text = text,
                                                     .source = "config.json",
                                                     .target_folder = folder / "model",
                                                     .block_count = blocks});
        EXPECT_FALSE(fs::exists(folder / "model"));
        return status.ok() ? std::string() : status.error().text();
    };
    EXPECT_THAT(refusal("{", 0), HasSubstr("config.json"));
    EXPECT_THAT(refusal("[]", 0), HasSubstr("not a JSON object"));
    EXPECT_THAT(refusal(R"({"model_type": "mixtral"})", 0), HasSubstr("mixtral"));
    nlohmann::json config = nlohmann::json::parse(tiny_config);
    config["model_type"] = "gemma3_text";
    EXPECT_THAT(refusal(config.dump(), 0), HasSubstr("names its tensors"));
    config = nlohmann::json::parse(tiny_config);
    config["hidden_size"] = 1 << 20;
    config["intermediate_size"] = 1 << 20;
    config["num_hidden_layers"] = 9999;
    EXPECT_THAT(refusal(config.dump(), 0), HasSubstr("are free there"));
    const auto stopped = write_random_checkpoint({.config_text = tiny_config,
                                                  .source = "config.json",
                                                  .target_folder = folder / "model",
                                                  .stop_signal = [] { return 2; }});
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, offload::ErrorCode::stopped);
    EXPECT_THAT(stopped.error().text(), HasSubstr("stopped by signal 2"));
    EXPECT_FALSE(fs::exists(folder / "model"));
}

}  // namespace
}  // namespace headrace::engine
