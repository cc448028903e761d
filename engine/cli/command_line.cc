#include "engine/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "engine/config/load_config.h"
#include "engine/config/names.h"
#include "engine/config/yaml_value.h"
#include "offload/check.h"
#include "offload/part.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Result;

namespace {

constexpr const char* exit_codes =
    "\nExit codes: 0 done, 1 failed, 2 usage or config, 3 does not fit, 4 bad data or checkpoint,\n"
    "5 diverged, 128+n stopped by signal n.\n";

// What CLI11 fills in.
struct Parsed {
    std::vector<std::string> train_words;
    std::vector<std::string> nvme_paths;
    std::string machine_file;
    std::string emulated_file;
    std::vector<std::string> plan_words;
    PlanCommand plan;
    std::vector<std::string> rehearse_words;
    RehearseCommand rehearse;
    std::vector<std::string> tune_words;
    TuneCommand tune;
    std::vector<std::string> step_words;
    std::vector<std::string> step_batches = {"1x8", "4x32"};
    BenchStepCommand step;
    ExportCommand export_command;
    InitCommand init;
    RandomModelCommand random_model;
    StoreCommand store;
    BenchNvmeCommand bench;
    std::string bench_size = "3GiB";
    std::string bench_block = "1MiB";
    std::string bench_engine = "auto";
    std::vector<std::string> bench_patterns = {"read", "write", "mixed"};
    std::string bench_sustained;
    BenchAdamCommand adam;
    std::vector<std::string> adam_parameters = {"64M"};
    std::string adam_states = "all";
    std::string adam_weight = "bf16";
    std::string adam_gradient = "bf16";
    DoctorCommand doctor;
    BenchLinkCommand link;
    std::string link_size = "256MiB";
    std::string link_block = "4MiB";
    BenchGemmCommand gemm;
    std::string gemm_dtype = "bf16";
};

std::string help_of_keys() {
    std::string text = "\nKeys (those of the offload section also without its name):\n";
    for (const auto& [name, help] : config_keys()) text += fmt::format("  {:<41} {}\n", name, help);
    return text + exit_codes;
}

// "key=value": a key is a word of letters, digits, underscores and dots.
bool is_override(const std::string& word) {
    const size_t equals = word.find('=');
    if (equals == 0 || equals == std::string::npos) return false;
    return std::all_of(
        word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
        [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-'; });
}

Exit refused(const std::string& why) {
    return {.code = 2, .text = fmt::format("{}\nTry: headrace --help\n", why)};
}

// What was typed: places, and key=value after them.
struct Words {
    std::vector<std::string> places;
    std::vector<std::string> overrides;
};

Words split(const std::vector<std::string>& all) {
    Words words;
    for (const std::string& word : all) {
        (is_override(word) ? words.overrides : words.places).push_back(word);
    }
    return words;
}

// Options that mean a key of the run file. Paths are added last; a machine or a card that is typed
// as key=value on the same line wins.
void add_options(const Parsed& parsed, std::vector<std::string>& overrides) {
    const auto put_first = [&](std::string_view key, const std::string& value) {
        if (!value.empty()) {
            overrides.insert(overrides.begin(), fmt::format("{}={}", key, yaml_quoted(value)));
        }
    };
    put_first("machine", parsed.machine_file);
    put_first("emulate", parsed.emulated_file);
    if (parsed.nvme_paths.empty()) return;
    std::vector<std::string> quoted;
    for (const std::string& path : parsed.nvme_paths) quoted.push_back(yaml_quoted(path));
    overrides.push_back(fmt::format("offload.nvme_paths=[{}]", fmt::join(quoted, ", ")));
}

CommandLine train_of(const Parsed& parsed) {
    TrainCommand command;
    const auto [places, overrides] = split(parsed.train_words);
    command.overrides = overrides;
    if (places.size() == 2) {
        // Before what was typed, so that `model=...` on the same line wins.
        command.overrides.insert(
            command.overrides.begin(),
            {"model=" + yaml_quoted(places[0]), "train_data=" + yaml_quoted(places[1])});
    } else if (places.size() == 1) {
        command.run_file = places[0];
    } else {
        return refused(fmt::format(
            "train takes a run file, or MODEL and DATA, and then key=value; it got {} of them: {}",
            places.size(), fmt::join(places, " ")));
    }
    add_options(parsed, command.overrides);
    return command;
}

// The commands that take one run file or model.
template <typename Command>
CommandLine command_on_one(std::string_view name, Command command,
                           const std::vector<std::string>& typed, const Parsed& parsed) {
    auto [places, overrides] = split(typed);
    if (places.size() != 1) {
        return refused(
            fmt::format("{} takes a run file or a model, and then key=value; it got {} of them: {}",
                        name, places.size(), fmt::join(places, " ")));
    }
    command.what = places[0];
    command.overrides = std::move(overrides);
    add_options(parsed, command.overrides);
    return command;
}

CommandLine tune_of(const Parsed& parsed) {
    TuneCommand command = parsed.tune;
    auto [places, overrides] = split(parsed.tune_words);
    if (places.empty() || places.size() > 2) {
        return refused(fmt::format(
            "tune takes a run file, or MODEL and DATA, and then key=value; it got {} of them: {}",
            places.size(), fmt::join(places, " ")));
    }
    command.what = places[0];
    command.overrides = std::move(overrides);
    if (places.size() == 2) {
        command.overrides.insert(command.overrides.begin(), "train_data=" + yaml_quoted(places[1]));
    }
    add_options(parsed, command.overrides);
    return command;
}

// "4x32": samples of a micro-batch, micro-batches of a step.
Result<BenchStepCommand::Batch> batch_of(const std::string& text) {
    const auto number = [](std::string_view digits) {
        int64_t value = 0;
        const auto [rest, failure] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value);
        const bool is_whole = failure == std::errc{} && rest == digits.data() + digits.size();
        return is_whole && value >= 1 && value <= 1 << 20 ? value : 0;
    };
    const size_t cross = text.find('x');
    if (cross != std::string::npos) {
        const BenchStepCommand::Batch batch{
            .row_count = number(std::string_view(text).substr(0, cross)),
            .micro_batch_count = number(std::string_view(text).substr(cross + 1))};
        if (batch.row_count > 0 && batch.micro_batch_count > 0) return batch;
    }
    return offload::Error{
        offload::ErrorCode::usage,
        fmt::format("--batches {}: samples of a micro-batch and micro-batches of a step, as in 1x8",
                    text),
        ""};
}

CommandLine bench_step_of(const Parsed& parsed) {
    BenchStepCommand command = parsed.step;
    for (const std::string& text : parsed.step_batches) {
        const auto batch = batch_of(text);
        if (!batch) return refused(batch.error().text());
        command.batches.push_back(*batch);
    }
    return command_on_one("bench step", std::move(command), parsed.step_words, parsed);
}

// What a size is given as, within its bounds.
Result<uint64_t> size_of(const std::string& option, const std::string& text, uint64_t least,
                         uint64_t unit) {
    const Result<uint64_t> size_bytes = offload::parse_bytes(text);
    if (!size_bytes) return wrap(size_bytes.error(), option);
    if (*size_bytes >= least && *size_bytes % unit == 0) return size_bytes;
    std::string bounds = "at least " + offload::format_bytes(least);
    if (unit > 1) bounds += fmt::format(", a multiple of {} bytes", unit);
    return offload::Error{offload::ErrorCode::usage, fmt::format("{} {}: {}", option, text, bounds),
                          ""};
}

CommandLine bench_nvme_of(const Parsed& parsed) {
    BenchNvmeCommand command = parsed.bench;
    const auto block =
        size_of("--block", parsed.bench_block, offload::page_bytes, offload::page_bytes);
    if (!block) return refused(block.error().text());
    const auto size = size_of("--size", parsed.bench_size, *block, 1);
    if (!size) return refused(size.error().text());
    command.block_bytes = *block;
    command.size_bytes = *size / *block * *block;
    if (!parsed.bench_sustained.empty()) {
        const auto sustained = size_of("--sustained-bytes", parsed.bench_sustained, 1, 1);
        if (!sustained) return refused(sustained.error().text());
        command.sustained_bytes = *sustained;
    }
    const auto engine = nvme::parse_io_engine(parsed.bench_engine);
    if (!engine) return refused("--engine: " + engine.error().text());
    command.engine = *engine;
    command.patterns.clear();
    for (const std::string& name : parsed.bench_patterns) {
        const auto pattern = nvme::parse_pattern(name);
        if (!pattern) return refused("--pattern: " + pattern.error().text());
        if (std::ranges::find(command.patterns, *pattern) == command.patterns.end()) {
            command.patterns.push_back(*pattern);
        }
    }
    for (auto path = command.paths.begin(); path != command.paths.end(); path++) {
        if (std::find(command.paths.begin(), path, *path) == path) continue;
        return refused(fmt::format("--path {} is given twice: name each drive once", *path));
    }
    return command;
}

// "64M" is 64,000,000, as people count parameters; up to the next block of a part.
Result<uint64_t> parameter_count_of(const std::string& text) {
    const offload::Error fault{offload::ErrorCode::usage,
                               fmt::format("--parameters {}: a number such as 1M, 64M or 1G, up to "
                                           "1000G",
                                           text),
                               ""};
    double number = 0;
    const char* end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, number);
    if (failure != std::errc{}) return fault;
    const std::string_view unit(rest, end);
    const double factor = unit.empty() ? 1 : unit == "K" ? 1e3 : unit == "M" ? 1e6 : 1e9;
    if (!unit.empty() && unit != "K" && unit != "M" && unit != "G") return fault;
    const double count = number * factor;
    if (!(count >= 1 && count <= 1e12)) return fault;
    return offload::align_up(static_cast<uint64_t>(count), offload::block_elements);
}

CommandLine bench_adam_of(const Parsed& parsed) {
    BenchAdamCommand command = parsed.adam;
    command.parameter_counts.clear();
    for (const std::string& text : parsed.adam_parameters) {
        const auto parameter_count = parameter_count_of(text);
        if (!parameter_count) return refused(parameter_count.error().text());
        command.parameter_counts.push_back(*parameter_count);
    }
    if (parsed.adam_states != "all") {
        const auto states = offload::parse_state_format(parsed.adam_states);
        if (!states) return refused("--states (or all): " + states.error().text());
        command.states = {*states};
    }
    const auto weight = offload::parse_dtype(parsed.adam_weight);
    if (!weight) return refused("--weight: " + weight.error().text());
    const auto gradient = offload::parse_dtype(parsed.adam_gradient);
    if (!gradient) return refused("--gradient: " + gradient.error().text());
    command.weight_dtype = *weight;
    command.gradient_dtype = *gradient;
    return command;
}

CommandLine bench_link_of(const Parsed& parsed) {
    BenchLinkCommand command = parsed.link;
    const auto block = size_of("--block", parsed.link_block, 1, 1);
    if (!block) return refused(block.error().text());
    const auto size = size_of("--size", parsed.link_size, *block, 1);
    if (!size) return refused(size.error().text());
    command.block_bytes = *block;
    command.size_bytes = *size;
    return command;
}

CommandLine bench_gemm_of(const Parsed& parsed) {
    BenchGemmCommand command = parsed.gemm;
    const auto dtype = offload::parse_dtype(parsed.gemm_dtype);
    if (!dtype) return refused("--dtype: " + dtype.error().text());
    command.dtype = *dtype;
    return command;
}

CommandLine doctor_of(const Parsed& parsed) {
    DoctorCommand command = parsed.doctor;
    command.nvme_paths = parsed.nvme_paths;
    const bool asks_more = !command.out.empty() || !command.model.empty();
    if (asks_more && !command.is_probe) {
        return refused("--out and --model say what to do with what is measured: add --probe");
    }
    return command;
}

CommandLine bench_of(const CLI::App& bench, const Parsed& parsed) {
    CHECK_EQ(bench.get_subcommands().size(), 1u);
    const std::string name = bench.get_subcommands().front()->get_name();
    if (name == "adam") return bench_adam_of(parsed);
    if (name == "link") return bench_link_of(parsed);
    if (name == "gemm") return bench_gemm_of(parsed);
    if (name == "step") return bench_step_of(parsed);
    CHECK_EQ(name, "nvme");
    return bench_nvme_of(parsed);
}

// A setting written as an option is the commonest slip of people who come from other trainers.
std::string explained(const CLI::ParseError& fault) {
    const std::string text = fault.what();
    const size_t dashes = text.find("--");
    if (dashes == std::string::npos ||
        fault.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError))
        return text;
    return text + "\nSettings are given as key=value, without dashes: learning_rate=1e-5";
}

void add_store_commands(CLI::App& app, StoreCommand& store) {
    CLI::App* parent = app.add_subcommand("store", "List, verify, remove or move runs on drives");
    parent->require_subcommand(1);
    CLI::App* list = parent->add_subcommand("list", "The stores in these folders");
    list->add_option("PATH", store.nvme_paths, "Folders that were given as nvme_paths")->required();
    const auto add = [&](const char* name, const char* help) {
        CLI::App* command = parent->add_subcommand(name, help);
        command->add_option("RUN", store.run, "output_dir of the run, or the name that list shows")
            ->required();
        command
            ->add_option("--nvme", store.nvme_paths,
                         "Where the store is; once per drive. Default: as in RUN's own settings")
            ->allow_extra_args(false);
        return command;
    };
    add("verify", "Read every place of the newest commit and compare its checksum");
    add("remove", "Delete the store; nobody may be using it");
    CLI::App* move = add("move", "Bring the newest commit to other drives, more or fewer");
    move->add_option("--to", store.target_paths, "Where it shall be; once per drive")
        ->required()
        ->allow_extra_args(false);
}

void add_bench_adam(CLI::App& bench, Parsed& parsed) {
    CLI::App* adam = bench.add_subcommand(
        "adam", "The update, beside a loop that only moves its bytes: a minute, 4 GB of memory");
    adam->add_option("--parameters", parsed.adam_parameters, "How many; a list: 1M,64M,1G")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
    adam->add_option("--threads", parsed.adam.thread_count, "0: one, and one per core")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    adam->add_option("--states", parsed.adam_states, "Their format: fp32, bf16, int8, all")
        ->capture_default_str();
    adam->add_option("--weight", parsed.adam_weight, "Its dtype: bf16, fp16, fp32")
        ->capture_default_str();
    adam->add_option("--gradient", parsed.adam_gradient, "Its dtype: bf16, fp16, fp32")
        ->capture_default_str();
    adam->add_option("--row", parsed.adam.row, "avx512, avx2 or scalar [the best here]");
    adam->add_option("--rounds", parsed.adam.rounds, "Of all rows, interleaved; medians are shown")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    adam->add_option("--seconds", parsed.adam.seconds_min, "Of each measurement, at least")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    adam->add_flag("--json", parsed.adam.is_json, "Print one list of rows");
}

void add_rounds(CLI::App& bench, uint32_t& rounds, double& seconds_min, bool& is_json) {
    bench.add_option("--rounds", rounds, "Of all rows, interleaved; medians are shown")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    bench.add_option("--seconds", seconds_min, "Of each measurement, at least")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    bench.add_flag("--json", is_json, "Print one list of rows");
}

void add_bench_link(CLI::App& bench, Parsed& parsed) {
    CLI::App* link = bench.add_subcommand(
        "link", "Copies between ram and the card, both ways and beside an update: 10 seconds");
    link->add_option("--size", parsed.link_size, "Of each side of each direction")
        ->capture_default_str();
    link->add_option("--block", parsed.link_block, "Of one copy")->capture_default_str();
    link->add_option("--update-threads", parsed.link.update_thread_count, "Of the update beside")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    add_rounds(*link, parsed.link.rounds, parsed.link.seconds_min, parsed.link.is_json);
}

void add_bench_gemm(CLI::App& bench, Parsed& parsed) {
    CLI::App* gemm = bench.add_subcommand(
        "gemm", "The layers of a model's shape, in operations per second: half a minute");
    gemm->add_option("--model", parsed.gemm.model,
                     "A config.json, a folder or a name [a shape of 0.4 billion parameters]");
    gemm->add_option("--rows", parsed.gemm.row_count, "Samples of a micro-batch")
        ->check(CLI::Range(1, 65536))
        ->capture_default_str();
    gemm->add_option("--tokens", parsed.gemm.column_count, "Of each sample")
        ->check(CLI::Range(2, 1 << 20))
        ->capture_default_str();
    gemm->add_option("--dtype", parsed.gemm_dtype, "bf16, fp16, fp32")->capture_default_str();
    gemm->add_option("--threads", parsed.gemm.compute_thread_count, "0: one per core")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    add_rounds(*gemm, parsed.gemm.rounds, parsed.gemm.seconds_min, parsed.gemm.is_json);
}

void add_machine(CLI::App& command, Parsed& parsed) {
    command.add_option("--machine", parsed.machine_file,
                       "A machine file: rates to choose a placement by [this one's, as doctor "
                       "--probe measured them]");
}

void add_nvme(CLI::App& command, Parsed& parsed) {
    command.add_option("--nvme", parsed.nvme_paths, "A folder on a drive to use; once per drive")
        ->allow_extra_args(false);
}

void add_bench_step(CLI::App& bench, Parsed& parsed) {
    CLI::App* step = bench.add_subcommand(
        "step",
        "Steps of a part of a model beside their longest lane, as planned and three other "
        "ways: many minutes");
    step->add_option("what", parsed.step_words,
                     "run.yaml | MODEL (a folder or a config.json), then key=value ...")
        ->required();
    add_nvme(*step, parsed);
    step->add_option("--emulate", parsed.emulated_file, "A machine file whose card is pretended");
    add_machine(*step, parsed);
    step->add_option("--batches", parsed.step_batches,
                     "Samples of a micro-batch x micro-batches of a step; a list")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
    step->add_option("--layers", parsed.step.block_count, "Blocks of the part")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    step->add_option("--steps", parsed.step.step_count, "Steps of each measurement")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    step->add_option("--rounds", parsed.step.rounds, "Of all rows, interleaved; medians are shown")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    step->add_flag("--json", parsed.step.is_json, "Print one list of rows");
}

void add_doctor(CLI::App& app, Parsed& parsed) {
    CLI::App* doctor =
        app.add_subcommand("doctor", "Say what this machine offers, and what is in the way");
    doctor
        ->add_option("--nvme", parsed.nvme_paths, "A folder on a drive to look at; once per drive")
        ->allow_extra_args(false);
    doctor->add_flag("--probe", parsed.doctor.is_probe,
                     "Measure this machine and keep its rates for train and plan");
    doctor->add_option("--model", parsed.doctor.model,
                       "Whose products are measured: a config.json, a folder or a name");
    doctor->add_option("--tokens", parsed.doctor.token_count, "Of a micro-batch, for the products")
        ->check(CLI::Range(2, 1 << 20))
        ->capture_default_str();
    doctor->add_option("--update-threads", parsed.doctor.update_thread_count, "As a run has them")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    doctor->add_option("--out", parsed.doctor.out, "A machine file to write instead");
    doctor->add_option("--seconds", parsed.doctor.seconds, "How long it may take, about")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();
}

void add_bench(CLI::App& app, Parsed& parsed) {
    CLI::App* bench = app.add_subcommand("bench", "Measure what this machine can do for a run");
    bench->require_subcommand(1);
    add_bench_adam(*bench, parsed);
    add_bench_link(*bench, parsed);
    add_bench_gemm(*bench, parsed);
    add_bench_step(*bench, parsed);
    CLI::App* nvme = bench->add_subcommand(
        "nvme", "Drives, through the store of a run: a minute and 60 GB of writes on a fast drive");
    nvme->add_option("--path", parsed.bench.paths, "A folder on a drive to measure; once per drive")
        ->required()
        ->allow_extra_args(false);
    nvme->add_option("--size", parsed.bench_size, "Of each of its files; three of them at most")
        ->capture_default_str();
    nvme->add_option("--block", parsed.bench_block, "Of one request")->capture_default_str();
    nvme->add_option("--depth", parsed.bench.depth,
                     "Blocks in flight per drive; threads: 8 at most")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    nvme->add_option("--engine", parsed.bench_engine, "auto (each that works), uring, threads")
        ->capture_default_str();
    nvme->add_option("--rounds", parsed.bench.rounds, "Of all rows, interleaved; medians are shown")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    nvme->add_option("--pattern", parsed.bench_patterns, "Of read,write,mixed")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
    nvme->add_option("--seconds", parsed.bench.seconds_min, "Of each measurement, at least")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    nvme->add_option("--sustained-bytes,--bytes", parsed.bench_sustained,
                     "Written at most to find the rate that lasts [twice the size]");
    nvme->add_flag("--json", parsed.bench.is_json, "Print one list of rows");
}

void add_random_model(CLI::App& app, RandomModelCommand& random) {
    CLI::App* command = app.add_subcommand(
        "random-model", "Write a model of random weights, of any size, to measure with");
    command->add_option("SHAPE", random.shape, "A config.json, such as one of configs/models")
        ->required();
    command->add_option("OUT", random.target_folder, "The folder to make")->required();
    command->add_option("--layers", random.block_count, "Blocks [as in the config]")
        ->check(CLI::Range(1, 10000));
    command->add_option("--seed", random.seed, "Of the weights")->capture_default_str();
    command->add_flag(
        "--recipe", random.is_recipe,
        "Write no weights: they are made where the model is read, for a drive that has "
        "no room for them");
}

void add_rehearse(CLI::App& app, Parsed& parsed) {
    CLI::App* rehearse = app.add_subcommand(
        "rehearse", "Turn a few steps on a part of the model, and scale them to the whole");
    rehearse
        ->add_option("what", parsed.rehearse_words,
                     "run.yaml | MODEL (a folder or a config.json), then key=value ...")
        ->required();
    rehearse->add_option("--layers", parsed.rehearse.block_count, "Blocks of the part")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    rehearse->add_option("--steps", parsed.rehearse.step_count, "Steps that are measured")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    add_machine(*rehearse, parsed);
    rehearse->add_flag("--json", parsed.rehearse.is_json, "Print one object");
}

void add_tune(CLI::App& app, Parsed& parsed) {
    CLI::App* tune = app.add_subcommand(
        "tune",
        "Measure the few placements that are foretold to be the fastest, and write a run "
        "file with the winner");
    tune->add_option("what", parsed.tune_words, "run.yaml | MODEL DATA, then key=value ...")
        ->required();
    add_nvme(*tune, parsed);
    add_machine(*tune, parsed);
    tune->add_option("--layers", parsed.tune.block_count, "Blocks of the part")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    tune->add_option("--steps", parsed.tune.step_count, "Steps of each measurement")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    tune->add_option("--rounds", parsed.tune.round_count, "Of all candidates, interleaved")
        ->check(CLI::Range(2, 100))
        ->capture_default_str();
    tune->add_option("--candidates", parsed.tune.candidate_count,
                     "Placements that are measured, the planner's among them")
        ->check(CLI::Range(2, 32))
        ->capture_default_str();
    tune->add_option("--out", parsed.tune.out,
                     "The run file to write [RUN.tuned.yaml, tuned.yaml]");
    tune->add_flag("--overwrite", parsed.tune.is_overwriting, "Write it over one that is there");
    tune->add_flag("--json", parsed.tune.is_json, "Print one object");
}

void add_commands(CLI::App& app, Parsed& parsed) {
    CLI::App* train = app.add_subcommand("train", "Fine-tune: run.yaml, or MODEL DATA");
    train->add_option("what", parsed.train_words, "run.yaml | MODEL DATA, then key=value ...")
        ->required();
    add_nvme(*train, parsed);
    add_machine(*train, parsed);
    train->footer(help_of_keys());

    CLI::App* plan = app.add_subcommand(
        "plan", "Foretell a run on a machine: what fits where, how long a step takes, what binds");
    plan->add_option("what", parsed.plan_words,
                     "run.yaml | MODEL (a folder or a config.json), then key=value ...")
        ->required();
    plan->add_option("--machine", parsed.plan.machine_file,
                     "What the machine has and how fast it is: see configs/hardware [this one, as "
                     "doctor --probe measured it]");
    plan->add_option("--ranks", parsed.plan.rank_count,
                     "Only say whether the states fit so many cards under ZeRO")
        ->check(CLI::Range(1, 1 << 20));
    plan->add_option("--ranks-per-node", parsed.plan.ranks_per_node, "Cards of one machine")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    plan->add_option("--stage", parsed.plan.stage, "Of ZeRO")
        ->check(CLI::Range(0, 3))
        ->capture_default_str();
    plan->add_flag("--json", parsed.plan.is_json, "Print one JSON object");
    plan->add_option("--html", parsed.plan.html_file, "Draw the step into this file too");
    plan->add_option("--price", parsed.plan.price_per_hour, "Of an hour, in any currency")
        ->check(CLI::Range(0.0, 1e6));

    add_rehearse(app, parsed);
    add_tune(app, parsed);

    CLI::App* to_export =
        app.add_subcommand("export", "Write a run's model as a Hugging Face folder");
    to_export->add_option("RUN", parsed.export_command.run_folder, "output_dir of the run")
        ->required();
    to_export->add_option("OUT", parsed.export_command.target_folder, "The folder to make")
        ->required();

    add_doctor(app, parsed);
    add_bench(app, parsed);

    CLI::App* init = app.add_subcommand("init", "Print a run file for MODEL and DATA");
    init->add_option("MODEL", parsed.init.model, "A folder, or org/name in the hub cache")
        ->required();
    init->add_option("DATA", parsed.init.data, "JSONL to train on")->required();
    add_store_commands(app, parsed.store);
    add_random_model(app, parsed.random_model);
}

StoreCommand store_of(const CLI::App& parent, StoreCommand store) {
    using Action = StoreCommand::Action;
    CHECK_EQ(parent.get_subcommands().size(), 1u);
    const std::string name = parent.get_subcommands().front()->get_name();
    store.action = name == "list"     ? Action::list
                   : name == "verify" ? Action::verify
                   : name == "remove" ? Action::remove
                                      : Action::move;
    return store;
}

// CLI11 says only that a command is missing; people want to know which word was not understood.
std::optional<Exit> unknown_command(std::span<const std::string> arguments, const CLI::App& app) {
    if (arguments.empty() || arguments[0].starts_with('-')) return std::nullopt;
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands(nullptr))
        names.push_back(command->get_name());
    CHECK(!names.empty());
    if (std::ranges::find(names, arguments[0]) != names.end()) {
        const CLI::App& command = *app.get_subcommand(arguments[0]);
        if (command.get_subcommands(nullptr).empty()) return std::nullopt;
        return unknown_command(arguments.subspan(1), command);
    }
    const std::vector<std::string_view> candidates(names.begin(), names.end());
    const std::string_view meant = nearest_name(arguments[0], candidates);
    if (meant.empty()) {
        return refused(fmt::format("'{}' is no command; the commands are {}", arguments[0],
                                   fmt::join(names, ", ")));
    }
    return refused(fmt::format("'{}' is no command; did you mean '{}'?", arguments[0], meant));
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
    Parsed parsed;
    CLI::App app(
        "Headrace fine-tunes models that do not fit: weights and states wait in RAM and on NVMe.",
        "headrace");
    app.set_version_flag("--version", "headrace " HEADRACE_VERSION);
    app.require_subcommand(1);
    app.footer(std::string("\nheadrace COMMAND --help says more.\n") + exit_codes);
    add_commands(app, parsed);
    if (const std::optional<Exit> unknown = unknown_command(arguments, app)) return *unknown;
    try {
        std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
        app.parse(reversed);
    } catch (const CLI::CallForVersion& call) {
        return Exit{.code = 0, .text = std::string(call.what()) + "\n"};
    } catch (const CLI::Success&) {  // --help
        return Exit{.code = 0, .text = app.help()};
    } catch (const CLI::ParseError& fault) {
        return refused(explained(fault));
    }
    CHECK_EQ(app.get_subcommands().size(), 1u);
    const std::string name = app.get_subcommands().front()->get_name();
    if (name == "train") return train_of(parsed);
    if (name == "plan") return command_on_one("plan", parsed.plan, parsed.plan_words, parsed);
    if (name == "rehearse") {
        return command_on_one("rehearse", parsed.rehearse, parsed.rehearse_words, parsed);
    }
    if (name == "tune") return tune_of(parsed);
    if (name == "export") return parsed.export_command;
    if (name == "doctor") return doctor_of(parsed);
    if (name == "store") return store_of(*app.get_subcommands().front(), parsed.store);
    if (name == "bench") return bench_of(*app.get_subcommands().front(), parsed);
    if (name == "random-model") return parsed.random_model;
    CHECK_EQ(name, "init");
    return parsed.init;
}

}  // namespace headrace::engine
