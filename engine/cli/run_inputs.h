// Everything a run is made from, read and checked before anything is allocated: the configuration,
// the model's shape, the samples. Writes only into output_dir/data (prepared samples).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cli/environment.h"
#include "engine/config/load_config.h"
#include "engine/config/machine_file.h"
#include "engine/data/dataset.h"
#include "engine/models/llama.h"
#include "offload/result.h"

namespace headrace::engine {

struct RunInputs {
    LoadedConfig loaded;    // max_length is lowered to the model's positions where it was a default
    std::string model_dir;  // the folder that holds config.json
    LlamaConfig model;
    Dataset train_data;
    std::optional<Dataset> eval_data;
    std::vector<std::string> notes;  // one line each: what was cut, dropped, prepared
};

// What stays in output_dir at the end. An emulated run leaves nothing either.
enum class Leaves : uint8_t { a_model, nothing };

// What is quickly seen and would spoil the run is told before text becomes tokens: the device, the
// model's shape and the headers of its weights, paths that are missing or may not be written to, no
// room for the trained model. Writes nothing. Error: usage, does_not_fit, bad_data or failed.
offload::Status check_run(const RunConfig& config, Leaves leaves, const Environment& environment);

// A sample longer than the model's positions has no meaning to it: lowers max_length to them where
// it was a default, with a note. Error: usage, where it was asked for.
offload::Status fit_length(LoadedConfig& loaded, const LlamaConfig& model);

// That folders on drives are there, may be written to, and are as many as there are names. Error:
// as nvme::check_paths.
offload::Status check_nvme_paths(const std::vector<std::string>& paths);

// What there is instead of rates that were not measured: " (...)" that names those of other
// machines which lie there, "" where there are none.
std::string say_rates_elsewhere(const Environment& environment);

// That the trace, which is written at the end, can be. Error: usage, failed.
offload::Status check_trace(const RunConfig& config);

// The rates that a run's placement is chosen by: of its `machine`, else of this one as it was
// measured; nothing: it was not. Error: usage.
offload::Result<std::optional<MachineFile>> read_rates(const RunConfig& config,
                                                       const Environment& environment);

// Error: usage, bad_data or failed, as of the part that refused.
offload::Result<RunInputs> read_run_inputs(LoadedConfig loaded, const Environment& environment);

// The model's folder and shape. Error: bad_data.
struct ModelShape {
    std::string folder;
    LlamaConfig config;
};
offload::Result<ModelShape> read_model_shape(const std::string& model,
                                             const Environment& environment);

// Writes output_dir/config.resolved.yaml, making output_dir where it is missing. The file is whole
// or absent. Error: failed, with the path.
offload::Status write_resolved_config(const LoadedConfig& loaded);

}  // namespace headrace::engine
