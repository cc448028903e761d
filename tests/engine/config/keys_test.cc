// Goal: every kind of field takes what it should, refuses what it should not, and writes itself
// back as it was.
// Method: table of key, text, what comes back; and of key, text, what is said.
#include "engine/config/keys.h"

#include <gmock/gmock.h>

namespace headrace::engine {
namespace {

using ::testing::HasSubstr;

std::string set_text(RunConfig& config, std::string_view name, const std::string& text) {
    const Key* key = find_key(name);
    CHECK(key != nullptr);
    const auto parsed = parse_yaml(text, "test");
    CHECK(parsed.ok());
    return set_value(config, *key, parsed->root);
}

TEST(KeysTest, names_are_found_with_and_without_their_section) {
    ASSERT_NE(find_key("offload.gpu_budget"), nullptr);
    EXPECT_EQ(find_key("gpu_budget"), find_key("offload.gpu_budget"));
    EXPECT_EQ(find_key("part_bytes"), find_key("offload.advanced.part_bytes"));
    EXPECT_EQ(find_key("advanced.part_bytes"), find_key("offload.advanced.part_bytes"));
    EXPECT_EQ(find_key("offload.seed"), nullptr);
    EXPECT_EQ(find_key(""), nullptr);
}

TEST(KeysTest, values_are_taken_and_written_back) {
    struct Row {
        std::string_view key;
        std::string text;
        std::string written;
    };
    const std::vector<Row> rows = {
        {"shuffle", "no", "false"},
        {"max_length", "17", "17"},
        {"learning_rate", "2e-4", "0.0002"},
        {"adam_beta1", "0", "0"},
        {"max_grad_norm", "0", "0"},
        {"max_steps", "-1", "auto"},
        {"max_steps", "30", "30"},
        {"warmup_steps", "0", "0"},
        {"seed", "18446744073709551615", "18446744073709551615"},
        {"device", "host", "host"},
        {"dtype", "float32", "fp32"},
        {"lr_scheduler_type", "cosine", "cosine"},
        {"gpu_budget", "768MiB", "768MiB"},
        {"gpu_budget", "2 GB", "2000000000"},
        {"ram_budget", "4GiB", "4GiB"},
        {"ram_budget", "auto", "auto"},
        {"nvme_paths", "/mnt/a", "[/mnt/a]"},
        {"nvme_paths", "[/mnt/a, '/mnt/b c']", "[/mnt/a, \"/mnt/b c\"]"},
        {"parameters", "nvme", "nvme"},
        {"parameters", "cpu", "ram"},
        {"optimizer", "{hbm: 10%, pinned: 40%, nvme: 50%}", "{gpu: 0.1, ram: 0.4, nvme: 0.5}"},
        {"activations", "{ram: 1}", "ram"},
        {"optimizer_states", "int8", "int8"},
        {"convert_optimizer_states", "true", "true"},
        {"allow_other_numerics", "true", "true"},
        {"loss_scale", "128", "128"},
        {"initial_scale_power", "10", "10"},
        {"min_loss_scale", "0.25", "0.25"},
        {"gradients", "fp32", "fp32"},
        {"dtype", "float16", "fp16"},
        {"micro_batches_per_pass", "all", "all"},
        {"layers_in_flight", "3", "3"},
        {"part_bytes", "1MiB", "1MiB"},
        {"stash_tier", "gpu", "gpu"},
        {"stash_tier", "{ram: 25%, nvme: 75%}", "{ram: 0.25, nvme: 0.75}"},
        {"accumulator_tier", "nvme", "nvme"},
        {"kernels", "reference", "reference"},
        {"io_engine", "threads", "threads"},
    };
    for (const Row& row : rows) {
        RunConfig config;
        EXPECT_EQ(set_text(config, row.key, row.text), "") << row.key;
        EXPECT_EQ(text_of_value(config, *find_key(row.key)), row.written) << row.key;
        RunConfig again;
        EXPECT_EQ(set_text(again, row.key, row.written), "") << row.key;
        EXPECT_EQ(again, config) << row.key;
    }
}

TEST(KeysTest, what_a_field_cannot_be_is_said_and_changes_nothing) {
    struct Row {
        std::string_view key;
        std::string text;
        std::string said;
    };
    const std::vector<Row> rows = {
        {"shuffle", "2", "must be true or false, but is '2'"},
        {"model", "[a]", "must be one text, but is a list"},
        {"max_length", "1", "must be a whole number from 2 to 1000000000, but is '1'"},
        {"max_length", "12x", "but is '12x'"},
        {"max_length", "1.5", "but is '1.5'"},
        {"max_length", "[3]", "but is a list"},
        {"max_length", "", "but is empty"},
        {"gradient_accumulation_steps", "4000000000", "must be a whole number from 1"},
        {"num_train_epochs", "0", "must be a number above 0 and at most 1000000"},
        {"learning_rate", "-1", "must be a number of at least 0 and at most 10"},
        {"learning_rate", "nan", "must be a number"},
        {"learning_rate", "inf", "must be a number"},
        {"adam_beta2", "1", "must be a number of at least 0 and below 1"},
        {"seed", "-1", "must be a whole number from 0"},
        {"max_steps", "0", "or auto, but is '0'"},
        {"device", "tpu", "must be one of auto, cuda, host, but is 'tpu'"},
        {"dtype", "int4", "must be bf16, fp16 or fp32, but is 'int4'"},
        {"gpu_budget", "much", "must be a size of at least 4.00 KiB, such as 4GiB"},
        {"gpu_budget", "0", "must be a size"},
        {"part_bytes", "100", "must be a size of at least 4.00 KiB"},
        {"nvme_paths", "{a: b}", "must be a list"},
        {"nvme_paths", "[a, a]", "must not name 'a' twice"},
        {"nvme_paths", "['']", "must not hold an empty text"},
        {"parameters", "disk", "must be gpu, ram, nvme, auto, or shares"},
        {"parameters", "{gpu: 10%, ram: 40%}", "they add up to 50%"},
        {"parameters", "{gpu: 10%, disk: 90%}", "must name tiers gpu, ram and nvme, not 'disk'"},
        {"parameters", "{gpu: much, ram: 40%}", "must give gpu a share such as 40% or 0.4"},
        {"parameters", "{gpu: 110%, ram: -10%}", "must give gpu a share"},
        {"optimizer_states", "fp8", "must be one of fp32, bf16, int8, but is 'fp8'"},
        {"initial_scale_power", "101", "must be a whole number from 0 to 100"},
        {"min_loss_scale", "0", "must be a number above 0"},
        {"loss_scale", "-1", "must be a number of at least 0"},
        {"accumulator_tier", "gpu", "must be ram, nvme, or auto"},
        {"update_threads", "513", "must be a whole number from 1 to 512 or auto"},
        {"compute_threads", "100000", "must be a whole number from 1 to 512 or auto"},
        {"kernels", "aten", "must be one of fused, reference"},
        {"io_engine", "aio", "must be one of auto, uring, threads"},
    };
    for (const Row& row : rows) {
        RunConfig config;
        EXPECT_THAT(set_text(config, row.key, row.text), HasSubstr(row.said)) << row.key;
        EXPECT_EQ(config, RunConfig{}) << row.key;
    }
}

}  // namespace
}  // namespace headrace::engine
