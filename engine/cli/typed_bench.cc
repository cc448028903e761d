#include "engine/cli/typed_bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "offload/check.h"
#include "offload/part.h"

namespace headrace::engine {

using offload::Result;

namespace {

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

}  // namespace

TypedBenchNvme::TypedBenchNvme(CLI::App& bench) {
    CLI::App* nvme = bench.add_subcommand(
        "nvme", "Drives, through the store of a run: a minute and 60 GB of writes on a fast drive");
    nvme->add_option("--path", command.paths, "A folder on a drive to measure; once per drive")
        ->required()
        ->allow_extra_args(false);
    nvme->add_option("--size", size, "Of each of its files; three of them at most")
        ->capture_default_str();
    nvme->add_option("--block", block, "Of one request")->capture_default_str();
    nvme->add_option("--depth", command.depth, "Blocks in flight per drive; threads: 8 at most")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    nvme->add_option("--engine", engine, "auto (each that works), uring, threads")
        ->capture_default_str();
    nvme->add_option("--pattern", patterns, "Of read,write,mixed")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
    nvme->add_option("--sustained-bytes,--bytes", sustained,
                     "Written at most to find the rate that lasts [twice the size]");
    add_rounds(*nvme, command.rounds, command.seconds_min, command.is_json);
}

CommandLine TypedBenchNvme::read() const {
    BenchNvmeCommand nvme = command;
    const auto block_bytes = size_of("--block", block, offload::page_bytes, offload::page_bytes);
    if (!block_bytes) return refused(block_bytes.error().text());
    const auto size_bytes = size_of("--size", size, *block_bytes, 1);
    if (!size_bytes) return refused(size_bytes.error().text());
    nvme.block_bytes = *block_bytes;
    nvme.size_bytes = *size_bytes / *block_bytes * *block_bytes;
    if (!sustained.empty()) {
        const auto sustained_bytes = size_of("--sustained-bytes", sustained, 1, 1);
        if (!sustained_bytes) return refused(sustained_bytes.error().text());
        nvme.sustained_bytes = *sustained_bytes;
    }
    const auto io_engine = nvme::parse_io_engine(engine);
    if (!io_engine) return refused("--engine: " + io_engine.error().text());
    nvme.engine = *io_engine;
    nvme.patterns.clear();
    for (const std::string& name : patterns) {
        const auto pattern = nvme::parse_pattern(name);
        if (!pattern) return refused("--pattern: " + pattern.error().text());
        if (std::ranges::find(nvme.patterns, *pattern) == nvme.patterns.end()) {
            nvme.patterns.push_back(*pattern);
        }
    }
    for (auto path = nvme.paths.begin(); path != nvme.paths.end(); path++) {
        if (std::find(nvme.paths.begin(), path, *path) == path) continue;
        return refused(fmt::format("--path {} is given twice: name each drive once", *path));
    }
    CHECK_GE(nvme.size_bytes, nvme.block_bytes);
    return nvme;
}

TypedBenchAdam::TypedBenchAdam(CLI::App& bench) {
    CLI::App* adam = bench.add_subcommand(
        "adam", "The update, beside a loop that only moves its bytes: a minute, 4 GB of memory");
    adam->add_option("--parameters", parameters, "How many; a list: 1M,64M,1G")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
    adam->add_option("--threads", command.thread_count, "0: one, and one per core")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    adam->add_option("--states", states, "Their format: fp32, bf16, int8, all")
        ->capture_default_str();
    adam->add_option("--weight", weight, "Its dtype: bf16, fp16, fp32")->capture_default_str();
    adam->add_option("--gradient", gradient, "Its dtype: bf16, fp16, fp32")->capture_default_str();
    adam->add_option("--row", command.row, "avx512, avx2 or scalar [the best here]");
    add_rounds(*adam, command.rounds, command.seconds_min, command.is_json);
}

CommandLine TypedBenchAdam::read() const {
    BenchAdamCommand adam = command;
    adam.parameter_counts.clear();
    for (const std::string& text : parameters) {
        const auto parameter_count = parameter_count_of(text);
        if (!parameter_count) return refused(parameter_count.error().text());
        adam.parameter_counts.push_back(*parameter_count);
    }
    if (states != "all") {
        const auto format = offload::parse_state_format(states);
        if (!format) return refused("--states (or all): " + format.error().text());
        adam.states = {*format};
    }
    const auto weight_dtype = offload::parse_dtype(weight);
    if (!weight_dtype) return refused("--weight: " + weight_dtype.error().text());
    const auto gradient_dtype = offload::parse_dtype(gradient);
    if (!gradient_dtype) return refused("--gradient: " + gradient_dtype.error().text());
    adam.weight_dtype = *weight_dtype;
    adam.gradient_dtype = *gradient_dtype;
    CHECK(!adam.parameter_counts.empty());
    return adam;
}

TypedBenchLink::TypedBenchLink(CLI::App& bench) {
    CLI::App* link = bench.add_subcommand(
        "link", "Copies between ram and the card, both ways and beside an update: 10 seconds");
    link->add_option("--size", size, "Of each side of each direction")->capture_default_str();
    link->add_option("--block", block, "Of one copy")->capture_default_str();
    link->add_option("--update-threads", command.update_thread_count, "Of the update beside")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    add_rounds(*link, command.rounds, command.seconds_min, command.is_json);
}

CommandLine TypedBenchLink::read() const {
    BenchLinkCommand link = command;
    const auto block_bytes = size_of("--block", block, 1, 1);
    if (!block_bytes) return refused(block_bytes.error().text());
    const auto size_bytes = size_of("--size", size, *block_bytes, 1);
    if (!size_bytes) return refused(size_bytes.error().text());
    link.block_bytes = *block_bytes;
    link.size_bytes = *size_bytes;
    CHECK_GE(link.size_bytes, link.block_bytes);
    return link;
}

TypedBenchGemm::TypedBenchGemm(CLI::App& bench) {
    CLI::App* gemm = bench.add_subcommand(
        "gemm", "The layers of a model's shape, in operations per second: half a minute");
    gemm->add_option("--model", command.model,
                     "A config.json, a folder or a name [a shape of 0.4 billion parameters]");
    gemm->add_option("--rows", command.row_count, "Samples of a micro-batch")
        ->check(CLI::Range(1, 65536))
        ->capture_default_str();
    gemm->add_option("--tokens", command.column_count, "Of each sample")
        ->check(CLI::Range(2, 1 << 20))
        ->capture_default_str();
    gemm->add_option("--dtype", dtype, "bf16, fp16, fp32")->capture_default_str();
    gemm->add_option("--threads", command.compute_thread_count, "0: one per core")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    add_rounds(*gemm, command.rounds, command.seconds_min, command.is_json);
}

CommandLine TypedBenchGemm::read() const {
    BenchGemmCommand gemm = command;
    const auto parsed = offload::parse_dtype(dtype);
    if (!parsed) return refused("--dtype: " + parsed.error().text());
    gemm.dtype = *parsed;
    return gemm;
}

TypedBench::TypedBench(CLI::App& parent)
    : bench(parent.add_subcommand("bench", "Measure what this machine can do for a run")),
      adam(*bench),
      link(*bench),
      gemm(*bench),
      step(*bench),
      nvme(*bench) {
    bench->require_subcommand(1);
}

CommandLine TypedBench::read() const {
    const std::string name = name_of_command(*bench);
    if (name == "adam") return adam.read();
    if (name == "link") return link.read();
    if (name == "gemm") return gemm.read();
    if (name == "step") return step.read();
    CHECK_EQ(name, "nvme");
    return nvme.read();
}

}  // namespace headrace::engine
