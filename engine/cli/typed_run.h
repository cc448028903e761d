// What is typed of the commands on a run: train, plan, rehearse, tune and bench step. Each takes a
// run file or a model, and then settings as key=value; some options mean a setting too.
#pragma once

#include "engine/cli/typed.h"

namespace headrace::engine {

struct TypedTrain {
    explicit TypedTrain(CLI::App& parent);
    TypedTrain(const TypedTrain&) = delete;
    CommandLine read() const;

    std::vector<std::string> words;
    KeyOptions keys;
};

struct TypedPlan {
    explicit TypedPlan(CLI::App& parent);
    TypedPlan(const TypedPlan&) = delete;
    CommandLine read() const;

    std::vector<std::string> words;
    PlanCommand command;
    KeyOptions keys;
};

struct TypedRehearse {
    explicit TypedRehearse(CLI::App& parent);
    TypedRehearse(const TypedRehearse&) = delete;
    CommandLine read() const;

    std::vector<std::string> words;
    KeyOptions keys;
    RehearseCommand command;
};

struct TypedTune {
    explicit TypedTune(CLI::App& parent);
    TypedTune(const TypedTune&) = delete;
    CommandLine read() const;

    std::vector<std::string> words;
    KeyOptions keys;
    TuneCommand command;
};

struct TypedBenchStep {
    explicit TypedBenchStep(CLI::App& bench);
    TypedBenchStep(const TypedBenchStep&) = delete;
    CommandLine read() const;

    std::vector<std::string> words;
    KeyOptions keys;
    std::vector<std::string> batches = {"1x8", "4x32"};
    std::vector<std::string> ways;
    BenchStepCommand command;
};

}  // namespace headrace::engine
