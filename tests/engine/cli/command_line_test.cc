// Goal: what people type becomes the command they mean; what cannot be understood is refused with a
// remedy and exit code 2; help is complete.
// Method: lines of words in, values out.
#include "engine/cli/command_line.h"

#include <gmock/gmock.h>

#include "engine/config/load_config.h"

namespace headrace::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Command>
Command parsed(const std::vector<std::string>& words) {
    const CommandLine line = parse_command_line(words);
    if (const Exit* exit = std::get_if<Exit>(&line)) ADD_FAILURE() << exit->text;
    return std::get<Command>(line);
}

Exit exit_of(const std::vector<std::string>& words) {
    const CommandLine line = parse_command_line(words);
    return std::holds_alternative<Exit>(line) ? std::get<Exit>(line) : Exit{-1, "understood"};
}

TEST(CommandLineTest, train_takes_a_run_file_and_settings) {
    const auto command =
        parsed<TrainCommand>({"train", "run.yaml", "seed=1", "offload.ram_budget=2GiB"});
    EXPECT_EQ(command.run_file, "run.yaml");
    EXPECT_THAT(command.overrides, ElementsAre("seed=1", "offload.ram_budget=2GiB"));
}

TEST(CommandLineTest, train_takes_model_and_data_and_drives) {
    const auto command = parsed<TrainCommand>(
        {"train", "models/a b", "d.jsonl", "--nvme", "/mnt/a", "--nvme", "/mnt/b c", "seed=1"});
    EXPECT_THAT(command.run_file, IsEmpty());
    const auto loaded = parse_config({.yaml = "", .overrides = command.overrides});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->config.model, "models/a b");
    EXPECT_EQ(loaded->config.train_data, "d.jsonl");
    EXPECT_THAT(loaded->config.offload.nvme_paths, ElementsAre("/mnt/a", "/mnt/b c"));
    EXPECT_EQ(loaded->config.seed, 1u);
}

TEST(CommandLineTest, drives_may_be_named_beside_a_run_file) {
    const auto command = parsed<TrainCommand>({"train", "--nvme", "/mnt/a", "run.yaml"});
    EXPECT_EQ(command.run_file, "run.yaml");
    EXPECT_THAT(command.overrides, ElementsAre("offload.nvme_paths=[/mnt/a]"));
}

TEST(CommandLineTest, a_path_with_an_equals_sign_is_a_path) {
    const auto command = parsed<TrainCommand>({"train", "/mnt/a=b/run.yaml"});
    EXPECT_EQ(command.run_file, "/mnt/a=b/run.yaml");
}

TEST(CommandLineTest, the_other_commands) {
    const auto to_export = parsed<ExportCommand>({"export", "runs/a", "out"});
    EXPECT_EQ(to_export.run_folder, "runs/a");
    EXPECT_EQ(to_export.target_folder, "out");
    EXPECT_THAT(parsed<DoctorCommand>({"doctor", "--nvme", "/a", "--nvme", "/b"}).nvme_paths,
                ElementsAre("/a", "/b"));
    EXPECT_THAT(parsed<DoctorCommand>({"doctor"}).nvme_paths, IsEmpty());
    EXPECT_EQ(parsed<InitCommand>({"init", "org/name", "d.jsonl"}).data, "d.jsonl");
}

TEST(CommandLineTest, rehearse_takes_a_run_file_or_a_model) {
    const auto command = parsed<RehearseCommand>(
        {"rehearse", "run.yaml", "--layers", "2", "max_length=512", "--json"});
    EXPECT_EQ(command.what, "run.yaml");
    EXPECT_EQ(command.block_count, 2);
    EXPECT_EQ(command.step_count, 4);
    EXPECT_TRUE(command.is_json);
    EXPECT_EQ(command.overrides, std::vector<std::string>{"max_length=512"});
    EXPECT_EQ(exit_of({"rehearse"}).code, 2);
    EXPECT_EQ(exit_of({"rehearse", "a", "b", "c"}).code, 2);
    EXPECT_EQ(exit_of({"rehearse", "a", "--layers", "0"}).code, 2);
    const auto drives = parsed<RehearseCommand>({"rehearse", "a", "--nvme", "/a", "--nvme", "/b"});
    EXPECT_EQ(drives.block_count, 0) << "as many as it has, three at most";
    EXPECT_THAT(drives.overrides, ElementsAre("offload.nvme_paths=[/a, /b]"));
}

TEST(CommandLineTest, bench_step_takes_batches_and_ways) {
    using Way = BenchStepCommand::Way;
    const auto all = parsed<BenchStepCommand>({"bench", "step", "m.json"});
    EXPECT_THAT(all.ways, ElementsAre(Way::planned, Way::gated, Way::serial, Way::classic));
    ASSERT_EQ(all.batches.size(), 2u);
    const auto some = parsed<BenchStepCommand>(
        {"bench", "step", "m.json", "--batches", "4x32", "--ways", "classic,planned,classic"});
    EXPECT_THAT(some.ways, ElementsAre(Way::planned, Way::classic)) << "in this order, once";
    ASSERT_EQ(some.batches.size(), 1u);
    EXPECT_EQ(some.batches[0].row_count, 4);
    EXPECT_EQ(some.batches[0].micro_batch_count, 32);
    EXPECT_EQ(exit_of({"bench", "step", "m.json", "--ways", "fast"}).code, 2);
    EXPECT_EQ(exit_of({"bench", "step", "m.json", "--ways", "0"}).code, 2);
    EXPECT_EQ(exit_of({"bench", "step", "m.json", "--batches", "4"}).code, 2);
}

TEST(CommandLineTest, plan_takes_a_run_file_or_a_model_and_a_machine) {
    const auto command = parsed<PlanCommand>({"plan", "models/llama-2-13b.json", "--machine",
                                              "m.yaml", "--price", "0.4", "max_length=4096"});
    EXPECT_EQ(command.what, "models/llama-2-13b.json");
    EXPECT_EQ(command.machine_file, "m.yaml");
    EXPECT_EQ(command.price_per_hour, 0.4);
    EXPECT_THAT(command.overrides, ElementsAre("max_length=4096"));
    EXPECT_THAT(parsed<PlanCommand>({"plan", "a", "b c", "--machine", "m.yaml", "x=1"}).overrides,
                ElementsAre("train_data=\"b c\"", "x=1"));
    EXPECT_THAT(exit_of({"plan", "a", "b", "c", "--machine", "m.yaml"}).text,
                HasSubstr("3 of them"));
    EXPECT_THAT(exit_of({"plan", "a", "--price", "nan"}).text, HasSubstr("nan not in range 0 to"));
    EXPECT_THAT(parsed<PlanCommand>({"plan", "a", "--nvme", "/a"}).overrides,
                ElementsAre("offload.nvme_paths=[/a]"));
    const auto here = parsed<PlanCommand>({"plan", "a", "--ranks", "16", "--stage", "3"});
    EXPECT_EQ(here.machine_file, "") << "this machine";
    EXPECT_EQ(here.rank_count, 16u);
    EXPECT_EQ(here.stage, 3);
    EXPECT_EQ(command.rank_count, 0u);
    EXPECT_EQ(exit_of({"plan", "a", "--stage", "4"}).code, 2);
    EXPECT_EQ(exit_of({"plan", "a", "--machine", "m.yaml", "--price", "-1"}).code, 2);
}

TEST(CommandLineTest, bench_adam_has_defaults_and_counts_parameters_as_people_do) {
    using offload::Dtype;
    using offload::StateFormat;
    const auto plain = parsed<BenchAdamCommand>({"bench", "adam"});
    EXPECT_THAT(plain.parameter_counts, ElementsAre(64'000'000));
    EXPECT_EQ(plain.thread_count, 0u);
    EXPECT_THAT(plain.states, ElementsAre(StateFormat::fp32, StateFormat::bf16, StateFormat::int8));
    EXPECT_EQ(plain.weight_dtype, Dtype::bf16);
    EXPECT_EQ(plain.gradient_dtype, Dtype::bf16);
    EXPECT_EQ(plain.row, "");
    EXPECT_FALSE(plain.is_json);
    const auto full = parsed<BenchAdamCommand>(
        {"bench", "adam", "--parameters", "1M,0.5G,5000", "--threads", "3", "--states", "bf16",
         "--weight", "fp16", "--gradient", "fp32", "--row", "scalar", "--rounds", "2", "--json"});
    EXPECT_THAT(full.parameter_counts, ElementsAre(1'001'472, 500'000'768, 6144));
    EXPECT_EQ(full.thread_count, 3u);
    EXPECT_THAT(full.states, ElementsAre(StateFormat::bf16));
    EXPECT_EQ(full.weight_dtype, Dtype::fp16);
    EXPECT_EQ(full.gradient_dtype, Dtype::fp32);
    EXPECT_EQ(full.row, "scalar");
    EXPECT_EQ(full.rounds, 2u);
    EXPECT_TRUE(full.is_json);
}

TEST(CommandLineTest, bench_link_and_gemm_have_defaults_and_say_what_is_wrong) {
    const auto link = parsed<BenchLinkCommand>({"bench", "link"});
    EXPECT_EQ(link.size_bytes, 256 * offload::mib);
    EXPECT_EQ(link.block_bytes, 4 * offload::mib);
    const auto short_link = parsed<BenchLinkCommand>(
        {"bench", "link", "--size", "8MiB", "--block", "1MiB", "--rounds", "2", "--json"});
    EXPECT_EQ(short_link.size_bytes, 8 * offload::mib);
    EXPECT_EQ(short_link.rounds, 2u);
    EXPECT_TRUE(short_link.is_json);
    EXPECT_THAT(exit_of({"bench", "link", "--size", "1MiB"}).text, HasSubstr("--size 1MiB"));
    const auto gemm = parsed<BenchGemmCommand>({"bench", "gemm"});
    EXPECT_EQ(gemm.model, "");
    EXPECT_EQ(gemm.column_count, 512);
    const auto full = parsed<BenchGemmCommand>(
        {"bench", "gemm", "--model", "a.json", "--rows", "4", "--tokens", "64", "--dtype", "fp32"});
    EXPECT_EQ(full.model, "a.json");
    EXPECT_EQ(full.row_count, 4);
    EXPECT_EQ(full.dtype, offload::Dtype::fp32);
    EXPECT_EQ(exit_of({"bench", "gemm", "--tokens", "1"}).code, 2);
    EXPECT_THAT(exit_of({"bench", "gemm", "--dtype", "int4"}).text, HasSubstr("--dtype"));
}

TEST(CommandLineTest, doctor_measures_only_if_asked) {
    const auto probe = parsed<DoctorCommand>(
        {"doctor", "--probe", "--nvme", "/a", "--out", "m.yaml", "--seconds", "5"});
    EXPECT_TRUE(probe.is_probe);
    EXPECT_THAT(probe.nvme_paths, ElementsAre("/a"));
    EXPECT_EQ(probe.out, "m.yaml");
    EXPECT_EQ(probe.seconds, 5);
    EXPECT_FALSE(parsed<DoctorCommand>({"doctor"}).is_probe);
    EXPECT_THAT(exit_of({"doctor", "--out", "m.yaml"}).text, HasSubstr("add --probe"));
}

TEST(CommandLineTest, bench_nvme_has_defaults_and_takes_sizes) {
    const auto plain = parsed<BenchNvmeCommand>({"bench", "nvme", "--path", "/a"});
    EXPECT_THAT(plain.paths, ElementsAre("/a"));
    EXPECT_EQ(plain.size_bytes, 3 * offload::gib);
    EXPECT_EQ(plain.block_bytes, offload::mib);
    EXPECT_EQ(plain.depth, 8u);
    EXPECT_EQ(plain.engine, nvme::IoEngine::automatic);
    EXPECT_EQ(plain.patterns.size(), 3u);
    EXPECT_FALSE(plain.is_json);
    const auto full = parsed<BenchNvmeCommand>({"bench",
                                                "nvme",
                                                "--path",
                                                "/a",
                                                "--path",
                                                "/b",
                                                "--size",
                                                "64MiB",
                                                "--block",
                                                "128KiB",
                                                "--depth",
                                                "16",
                                                "--engine",
                                                "threads",
                                                "--rounds",
                                                "5",
                                                "--pattern",
                                                "mixed,read",
                                                "--sustained-bytes",
                                                "200GB",
                                                "--json"});
    EXPECT_THAT(full.paths, ElementsAre("/a", "/b"));
    EXPECT_EQ(full.size_bytes, 64 * offload::mib);
    EXPECT_EQ(full.block_bytes, 128 * offload::kib);
    EXPECT_EQ(full.depth, 16u);
    EXPECT_EQ(full.engine, nvme::IoEngine::threads);
    EXPECT_EQ(full.rounds, 5u);
    EXPECT_THAT(full.patterns, ElementsAre(nvme::Pattern::mixed, nvme::Pattern::read));
    EXPECT_EQ(full.sustained_bytes, 200'000'000'000u);
    EXPECT_TRUE(full.is_json);
}

TEST(CommandLineTest, what_cannot_be_understood_exits_with_2_and_says_why) {
    struct Row {
        std::vector<std::string> words;
        std::string said;
    };
    const std::vector<Row> rows = {
        {{}, "A subcommand is required"},
        {{"trian"}, "'trian' is no command; did you mean 'train'?"},
        {{"frobnicate", "x"},
         "the commands are train, plan, rehearse, tune, export, doctor, bench, init"},
        {{"train"}, "headrace init MODEL DATA"},
        {{"train", "a", "b", "c"}, "it got 3 of them: a b c"},
        {{"train", "seed=1"}, "none was named"},
        {{"train", "run.yaml", "--learning_rate", "1e-5"}, "given as key=value, without dashes"},
        {{"export", "runs/a"}, "OUT is required"},
        {{"export", "a", "b", "c"}, "c"},
        {{"init", "m"}, "DATA is required"},
        {{"doctor", "--nvme"}, "--nvme"},
        {{"bench"}, "A subcommand is required"},
        {{"bench", "nvme"}, "--path is required"},
        {{"bench", "adma"}, "did you mean 'adam'?"},
        {{"bench", "adam", "--parameters", "many"}, "--parameters many: a number such as 1M"},
        {{"bench", "adam", "--parameters", "64MB"}, "--parameters 64MB: a number such as 1M"},
        {{"bench", "adam", "--parameters", "0"}, "--parameters 0: a number such as 1M"},
        {{"bench", "adam", "--states", "fp16"}, "--states (or all): 'fp16' is no format"},
        {{"bench", "adam", "--weight", "int8"}, "--weight"},
        {{"bench", "adam", "--gradient", "int8"}, "--gradient"},
        {{"bench", "adam", "--rounds", "0"}, "--rounds"},
        {{"bench", "nvme", "--path", "/a", "--path", "/a"}, "--path /a is given twice"},
        {{"bench", "nvme", "--path", "/a", "--size", "much"}, "--size"},
        {{"bench", "nvme", "--path", "/a", "--block", "1000"}, "--block 1000: at least 4.00 KiB"},
        {{"bench", "nvme", "--path", "/a", "--depth", "0"}, "--depth"},
        {{"bench", "nvme", "--path", "/a", "--engine", "aio"}, "auto, uring and threads"},
        {{"bench", "nvme", "--path", "/a", "--pattern", "reed"}, "read, write and mixed"},
    };
    for (const Row& row : rows) {
        const Exit exit = exit_of(row.words);
        EXPECT_EQ(exit.code, 2) << row.said;
        EXPECT_THAT(exit.text, HasSubstr(row.said));
        EXPECT_THAT(exit.text, HasSubstr("Try: headrace --help"));
    }
}

TEST(CommandLineTest, help_names_every_command_key_and_exit_code) {
    const Exit help = exit_of({"--help"});
    EXPECT_EQ(help.code, 0);
    for (const char* word : {"train", "export", "doctor", "bench", "init", "Exit codes: 0 done"}) {
        EXPECT_THAT(help.text, HasSubstr(word));
    }
    const Exit train = exit_of({"train", "--help"});
    EXPECT_EQ(train.code, 0);
    EXPECT_THAT(train.text, HasSubstr("--nvme"));
    for (const auto& [key, text] : config_keys()) EXPECT_THAT(train.text, HasSubstr(key));
    EXPECT_THAT(exit_of({"--version"}).text, HasSubstr("headrace 0."));
    EXPECT_EQ(exit_of({"--version"}).code, 0);
}

TEST(CommandLineTest, store_takes_a_run_and_drives) {
    using Action = StoreCommand::Action;
    const auto list = parsed<StoreCommand>({"store", "list", "/mnt/a", "/mnt/b"});
    EXPECT_EQ(list.action, Action::list);
    EXPECT_THAT(list.nvme_paths, ElementsAre("/mnt/a", "/mnt/b"));
    const auto move = parsed<StoreCommand>(
        {"store", "move", "runs/a", "--nvme", "/mnt/a", "--to", "/mnt/b", "--to", "/mnt/c"});
    EXPECT_EQ(move.action, Action::move);
    EXPECT_EQ(move.run, "runs/a");
    EXPECT_THAT(move.nvme_paths, ElementsAre("/mnt/a"));
    EXPECT_THAT(move.target_paths, ElementsAre("/mnt/b", "/mnt/c"));
    for (const auto& [words, part] : std::vector<std::pair<std::vector<std::string>, const char*>>{
             {{"store", "lsit", "/mnt/a"}, "did you mean 'list'?"},
             {{"store", "list"}, "PATH"},
             {{"store", "verify"}, "RUN"},
             {{"store", "move", "runs/a"}, "--to"},
             {{"store", "remove", "runs/a", "--path", "/mnt/a"}, "--path"},
             {{"store"}, "subcommand"}}) {
        const Exit exit = exit_of(words);
        EXPECT_EQ(exit.code, 2);
        EXPECT_THAT(exit.text, HasSubstr(part));
    }
}

}  // namespace
}  // namespace headrace::engine
