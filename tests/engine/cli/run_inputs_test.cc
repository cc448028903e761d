// Goal: configuration, model and data come together, or the first that is wrong is told with the
// code of its kind; nothing but the run's own folder is written.
// Method: a model folder of one config.json, samples of input_ids, and a tool of shell for texts.
#include "engine/cli/run_inputs.h"

#include <gmock/gmock.h>

#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

namespace fs = std::filesystem;
using offload::ErrorCode;
using ::testing::Contains;
using ::testing::HasSubstr;

class RunInputsTest : public ::testing::Test {
  protected:
    RunInputsTest() {
        fs::create_directories(folder_.path("model"));
        folder_.write("model/config.json", R"({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 259,
            "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": true})");
        folder_.write("train.jsonl", "{\"input_ids\": [1, 2, 3]}\n");
    }
    offload::Result<RunInputs> read(std::vector<std::string> more = {},
                                    const std::string& data = "train.jsonl") const {
        std::vector<std::string> overrides = {"model=" + folder_.path("model"),
                                              "train_data=" + folder_.path(data),
                                              "output_dir=" + folder_.path("run")};
        overrides.insert(overrides.end(), more.begin(), more.end());
        auto loaded = load_config("", overrides);
        CHECK_TEXT(loaded.ok(), loaded.error().text());
        return read_run_inputs(
            std::move(*loaded),
            {.python = "sh", .scripts_dir = folder_.path("scripts"), .hub_cache = {}});
    }
    TestFolder folder_;
};

TEST_F(RunInputsTest, everything_is_read) {
    folder_.write("eval.jsonl", "{\"input_ids\": [5, 6]}\n");
    const auto inputs = read({"eval_data=" + folder_.path("eval.jsonl")});
    ASSERT_TRUE(inputs.ok()) << inputs.error().text();
    EXPECT_EQ(inputs->model.hidden_size, 64);
    EXPECT_EQ(inputs->train_data.token_count(), 3);
    EXPECT_EQ(inputs->eval_data->token_count(), 2);
    EXPECT_THAT(inputs->notes, Contains(HasSubstr("1 samples, 3 tokens, 2 of them trained")));
    EXPECT_THAT(inputs->notes, Contains(HasSubstr("max_length is 16")));
    EXPECT_EQ(inputs->loaded.config.max_length, 16);
    EXPECT_FALSE(fs::exists(folder_.path("run")));
}

TEST_F(RunInputsTest, a_length_beyond_the_models_positions_is_refused_where_it_was_asked_for) {
    const auto inputs = read({"max_length=17"});
    ASSERT_FALSE(inputs.ok());
    EXPECT_EQ(inputs.error().code, ErrorCode::usage);
    EXPECT_THAT(inputs.error().text(), HasSubstr("17 is more than the 16 positions"));
    EXPECT_TRUE(read({"max_length=16"}).ok());
}

TEST_F(RunInputsTest, cut_and_dropped_samples_are_told) {
    folder_.write("long.jsonl",
                  "{\"input_ids\": [1, 2, 3, 4, 5]}\n"
                  "{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, -100, -100, 4]}\n");
    const auto inputs = read({"max_length=3"}, "long.jsonl");
    ASSERT_TRUE(inputs.ok()) << inputs.error().text();
    EXPECT_THAT(inputs->notes, Contains(HasSubstr("2 samples were longer than max_length (3)")));
    EXPECT_THAT(inputs->notes, Contains(HasSubstr("were dropped: line 2")));
}

TEST_F(RunInputsTest, texts_are_prepared_into_the_runs_folder) {
    fs::create_directories(folder_.path("scripts"));
    folder_.write("scripts/prepare_data.py",
                  "echo '{\"input_ids\": [7, 8, 9]}' > \"$3\"; echo '1 dropped' >&2\n");
    folder_.write("chat.jsonl", "{\"messages\": []}\n");
    const auto inputs = read({}, "chat.jsonl");
    ASSERT_TRUE(inputs.ok()) << inputs.error().text();
    EXPECT_EQ(inputs->train_data.token_count(), 3);
    EXPECT_THAT(inputs->notes, Contains(HasSubstr("chat.jsonl: 1 dropped")));
    EXPECT_THAT(inputs->notes,
                Contains(HasSubstr("messages, tokens written to " + folder_.path("run/data"))));
}

TEST_F(RunInputsTest, what_is_wrong_is_told_with_its_kind) {
    folder_.write("outside.jsonl", "{\"input_ids\": [1, 259]}\n");
    EXPECT_EQ(read({}, "outside.jsonl").error().code, ErrorCode::bad_data);
    EXPECT_THAT(read({}, "outside.jsonl").error().text(), HasSubstr("outside.jsonl:1: "));
    EXPECT_EQ(read({}, "absent.jsonl").error().code, ErrorCode::bad_data);
    EXPECT_EQ(read({"model=" + folder_.path("absent")}).error().code, ErrorCode::bad_data);
    folder_.write("model/config.json", "{\"model_type\": \"mamba\"}");
    EXPECT_EQ(read().error().code, ErrorCode::bad_data);
    EXPECT_FALSE(fs::exists(folder_.path("run")));
}

// A model that finds no room in output_dir is refused before it is trained, but only where one is
// left there.
TEST_F(RunInputsTest, room_is_asked_for_what_stays) {
    std::string huge = folder_.read("model/config.json");
    for (const auto& [from, to] : {std::pair<std::string, std::string>{"64,", "1048576,"},
                                   {"\"vocab_size\": 259", "\"vocab_size\": 2000000"}}) {
        huge.replace(huge.find(from), from.size(), to);
    }
    folder_.write("model/config.json", huge);
    const auto checked = [&](Leaves leaves, const std::string& more) {
        const auto loaded = load_config(
            "", {"model=" + folder_.path("model"), "train_data=" + folder_.path("train.jsonl"),
                 "output_dir=" + folder_.path("run"), more});
        CHECK_TEXT(loaded.ok(), loaded.error().text());
        return check_run(loaded->config, leaves, {}).error();
    };
    EXPECT_EQ(checked(Leaves::a_model, "seed=1").code, ErrorCode::does_not_fit);
    EXPECT_THAT(checked(Leaves::a_model, "seed=1").text(), HasSubstr("the trained model needs"));
    EXPECT_EQ(checked(Leaves::nothing, "seed=1").code, ErrorCode::bad_data) << "it has no weights";
    const std::string card = "emulate=" HEADRACE_CONFIGS "/hardware/rtx4090.yaml";
    EXPECT_EQ(checked(Leaves::a_model, card).code, ErrorCode::bad_data);
}

TEST_F(RunInputsTest, the_resolved_config_is_written_whole) {
    const auto inputs = read({"seed=7"});
    ASSERT_TRUE(inputs.ok()) << inputs.error().text();
    ASSERT_TRUE(write_resolved_config(inputs->loaded).ok());
    const auto again = load_config(folder_.path("run/config.resolved.yaml"), {});
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_EQ(again->config, inputs->loaded.config);
    EXPECT_FALSE(fs::exists(folder_.path("run/config.resolved.yaml.tmp")));

    LoadedConfig unwritable = inputs->loaded;
    unwritable.config.output_dir = folder_.path("train.jsonl/run");
    EXPECT_THAT(write_resolved_config(unwritable).error().text(),
                HasSubstr("cannot make the folder"));
}

}  // namespace
}  // namespace headrace::engine
