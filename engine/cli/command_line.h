// The command line as a value: what was asked for, or what to print instead and how to exit. Pure:
// nothing is read, printed or run here.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "nvme/probe.h"
#include "nvme/uring_probe.h"
#include "offload/dtype.h"
#include "offload/state_format.h"
#include "offload/units.h"

namespace headrace::engine {

// headrace train run.yaml, or train MODEL DATA, [--nvme PATH]... [--machine FILE] [key=value ...]
struct TrainCommand {
    std::string run_file;                // empty: MODEL and DATA are among the overrides
    std::vector<std::string> overrides;  // "key=value", in the order given
};

// headrace export RUN OUT
struct ExportCommand {
    std::string run_folder;
    std::string target_folder;
};

// headrace doctor [--nvme PATH]... [--probe [--model SHAPE] [--out FILE] [--seconds S]]
struct DoctorCommand {
    std::vector<std::string> nvme_paths;
    bool is_probe = false;
    std::string model;          // whose products are measured; empty: bench_gemm.h's default
    std::string out;            // empty: where train and plan look for it
    double seconds = 20;        // about so long
    int64_t token_count = 512;  // of a micro-batch
    uint32_t update_thread_count = 1;
};

// headrace plan run.yaml|MODEL [DATA] [--machine FILE] [--price P] [--ranks N [--stage S]]
// [key=value ...]
struct PlanCommand {
    std::string what;                    // a run file, a model's folder or name, or a config.json
    std::vector<std::string> overrides;  // "key=value", in the order given
    std::string machine_file;            // empty: as measured here
    double price_per_hour = 0;           // 0: not asked
    uint32_t rank_count = 0;             // 0: not asked, else whether the states fit so many cards
    uint32_t ranks_per_node = 8;
    int stage = 2;  // of ZeRO
    bool is_json = false;
    std::string html_file;  // empty: none is written
};

// headrace rehearse run.yaml|MODEL [DATA] [--layers N] [--steps N] [--machine FILE] [--json]
//                   [key=value ...]
struct RehearseCommand {
    std::string what;                    // as of a plan
    std::vector<std::string> overrides;  // "key=value", in the order given
    int64_t block_count = 3;
    int64_t step_count = 4;
    bool is_json = false;
};

// headrace tune run.yaml|MODEL [DATA] [--layers N] [--steps N] [--rounds N] [--candidates N]
//               [--machine FILE] [--out FILE [--overwrite]] [--json] [key=value ...]
struct TuneCommand {
    std::string what;                    // a run file or a model; its data is among the overrides
    std::vector<std::string> overrides;  // "key=value", in the order given
    int64_t block_count = 3;
    int64_t step_count = 2;  // of a rehearsal
    int64_t round_count = 3;
    int64_t candidate_count = 4;
    std::string out;  // the run file to write; empty: named after `what`
    bool is_overwriting = false;
    bool is_json = false;
};

// headrace init MODEL DATA
struct InitCommand {
    std::string model;
    std::string data;
};

// headrace store list PATH..., or store verify|remove|move RUN --nvme PATH... [--to PATH...]
struct StoreCommand {
    enum class Action : uint8_t { list, verify, remove, move };
    Action action = Action::list;
    std::string run;                        // output_dir of the run, or the store's name as listed
    std::vector<std::string> nvme_paths;    // empty: those in output_dir/config.resolved.yaml
    std::vector<std::string> target_paths;  // move
};

// headrace bench nvme --path P [--path Q]... [options]
struct BenchNvmeCommand {
    std::vector<std::string> paths;                     // no two are the same text
    uint64_t size_bytes = 3 * offload::gib;             // of the file of each row
    uint64_t block_bytes = 1 * offload::mib;            // a multiple of page_bytes
    uint32_t depth = 8;                                 // 1 to 4096, per path
    nvme::IoEngine engine = nvme::IoEngine::automatic;  // automatic: each that works here
    uint32_t rounds = 3;                                // 1 to 100
    std::vector<nvme::Pattern> patterns = {nvme::Pattern::read, nvme::Pattern::write,
                                           nvme::Pattern::mixed};
    double seconds_min = 1;  // of each measurement; it also goes over its file once, within 5 s
    uint64_t sustained_bytes = 0;  // written at most, looking for the fall; 0: twice the size
    bool is_json = false;
};

// headrace bench adam [options]
struct BenchAdamCommand {
    std::vector<uint64_t> parameter_counts = {64'000'000};  // multiples of 2048, each at least that
    uint32_t thread_count = 0;                              // 0: one, and one per core
    std::vector<offload::StateFormat> states = {
        offload::StateFormat::fp32, offload::StateFormat::bf16, offload::StateFormat::int8};
    offload::Dtype weight_dtype = offload::Dtype::bf16;
    offload::Dtype gradient_dtype = offload::Dtype::bf16;
    std::string row;           // of cpu_adam/variants.h; empty: the best here
    uint32_t rounds = 5;       // 1 to 100
    double seconds_min = 0.1;  // of each measurement
    bool is_json = false;
};

// headrace bench link [options]
struct BenchLinkCommand {
    uint64_t size_bytes = 256 * offload::mib;  // of each side of each direction
    uint64_t block_bytes = 4 * offload::mib;   // of one copy, at most size_bytes
    uint32_t update_thread_count = 1;          // of the update beside
    uint32_t rounds = 5;                       // 1 to 100
    double seconds_min = 0.2;                  // of each measurement
    bool is_json = false;
};

// headrace bench gemm [options]
struct BenchGemmCommand {
    std::string model = {};  // a config.json, a folder or a name; empty: bench_gemm.h's default
    int64_t row_count = 1;
    int64_t column_count = 512;
    offload::Dtype dtype = offload::Dtype::bf16;
    int compute_thread_count = 0;  // 0: one per core, as train
    uint32_t rounds = 3;           // 1 to 100
    double seconds_min = 0.3;      // of each measurement
    bool is_json = false;
};

// headrace bench step run.yaml|MODEL [DATA] [--nvme PATH]... [--emulate FILE] [--machine FILE]
//                     [--batches 1x8,4x32] [--ways planned,classic] [options] [key=value ...]
struct BenchStepCommand {
    struct Batch {
        int64_t row_count = 1;          // of a micro-batch
        int64_t micro_batch_count = 1;  // of a step
    };
    enum class Way : uint8_t { planned, gated, serial, classic };  // engine/cli/bench_step.h
    std::string what;                                              // as of a plan
    std::vector<std::string> overrides;  // "key=value", in the order given
    std::vector<Batch> batches;
    std::vector<Way> ways;  // in the order of the enum, each once
    int64_t block_count = 3;
    int64_t step_count = 3;  // of a rehearsal
    uint32_t rounds = 3;     // 1 to 100
    bool is_json = false;
};

// headrace random-model SHAPE OUT [--layers N] [--seed S]
struct RandomModelCommand {
    std::string shape;  // a config.json, or the folder or name of a model
    std::string target_folder;
    int64_t block_count = 0;  // 0: as in the config
    uint64_t seed = 42;
    bool is_recipe = false;
};

// Print `text` (to stderr where the code is not 0) and leave.
struct Exit {
    int code = 0;  // 0 for --help and --version, 2 for what cannot be understood
    std::string text;
};

using CommandLine =
    std::variant<TrainCommand, PlanCommand, RehearseCommand, TuneCommand, ExportCommand,
                 DoctorCommand, InitCommand, StoreCommand, BenchNvmeCommand, BenchAdamCommand,
                 BenchLinkCommand, BenchGemmCommand, BenchStepCommand, RandomModelCommand, Exit>;

// `arguments` without the program's name.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace headrace::engine
