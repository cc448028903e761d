// What is typed of `bench` and its commands. Sizes, formats and names are words until read().
#pragma once

#include "engine/cli/typed_run.h"

namespace headrace::engine {

struct TypedBenchNvme {
    explicit TypedBenchNvme(CLI::App& bench);
    TypedBenchNvme(const TypedBenchNvme&) = delete;
    CommandLine read() const;

    std::string size = "3GiB";
    std::string block = "1MiB";
    std::string engine = "auto";
    std::vector<std::string> patterns = {"read", "write", "mixed"};
    std::string sustained;
    BenchNvmeCommand command;
};

struct TypedBenchAdam {
    explicit TypedBenchAdam(CLI::App& bench);
    TypedBenchAdam(const TypedBenchAdam&) = delete;
    CommandLine read() const;

    std::vector<std::string> parameters = {"64M"};
    std::string states = "all";
    std::string weight = "bf16";
    std::string gradient = "bf16";
    BenchAdamCommand command;
};

struct TypedBenchLink {
    explicit TypedBenchLink(CLI::App& bench);
    TypedBenchLink(const TypedBenchLink&) = delete;
    CommandLine read() const;

    std::string size = "256MiB";
    std::string block = "4MiB";
    BenchLinkCommand command;
};

struct TypedBenchGemm {
    explicit TypedBenchGemm(CLI::App& bench);
    TypedBenchGemm(const TypedBenchGemm&) = delete;
    CommandLine read() const;

    std::string dtype = "bf16";
    BenchGemmCommand command;
};

struct TypedBench {
    explicit TypedBench(CLI::App& parent);
    CommandLine read() const;

    CLI::App* bench;
    TypedBenchAdam adam;
    TypedBenchLink link;
    TypedBenchGemm gemm;
    TypedBenchStep step;
    TypedBenchNvme nvme;
};

}  // namespace headrace::engine
