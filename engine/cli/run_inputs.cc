#include "engine/cli/run_inputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/file.h"
#include "engine/checkpoint/find_model.h"
#include "engine/cli/shape_of_model.h"
#include "engine/data/prepare.h"
#include "nvme/run_folder.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

namespace fs = std::filesystem;
using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

constexpr size_t named_lines_max = 5;

// One side's samples: prepared if they are text, then read.
struct Samples {
    Dataset dataset;
    std::vector<std::string> notes;
};

std::vector<std::string> notes_of(const Dataset& dataset, const std::string& path,
                                  int64_t max_length) {
    std::vector<std::string> notes = {fmt::format(
        "{}: {} samples, {} tokens, {} of them trained, longest {}", path, dataset.sample_count(),
        dataset.token_count(), dataset.trained_token_count(), dataset.longest_sample_tokens())};
    if (dataset.cut_sample_count() > 0) {
        notes.push_back(fmt::format("{}: {} samples were longer than max_length ({}) and were cut",
                                    path, dataset.cut_sample_count(), max_length));
    }
    const std::vector<int64_t>& dropped = dataset.dropped_lines();
    if (!dropped.empty()) {
        const auto end = dropped.begin() +
                         static_cast<std::ptrdiff_t>(std::min(dropped.size(), named_lines_max));
        notes.push_back(fmt::format(
            "{}: {} samples lost all their trained tokens by that and were dropped: line {}{}",
            path, dropped.size(), fmt::join(dropped.begin(), end, ", "),
            end == dropped.end() ? "" : ", ..."));
    }
    return notes;
}

Result<Samples> read_samples(const std::string& path, const RunConfig& config,
                             const ModelShape& model, const Environment& environment) {
    const Result<PreparedData> prepared =
        prepare_data({.data_path = path,
                      .model_dir = model.folder,
                      .cache_dir = (fs::path(config.output_dir) / "data").string(),
                      .scripts_dir = environment.scripts_dir,
                      .python = environment.python});
    if (!prepared) return prepared.error();
    Result<Dataset> dataset = Dataset::read({.path = prepared->path,
                                             .vocabulary_size = model.config.vocabulary_size,
                                             .max_length = config.max_length});
    if (!dataset) return dataset.error();
    Samples samples{.dataset = std::move(*dataset), .notes = {}};
    if (prepared->kind != DataKind::tokens) {
        samples.notes.push_back(fmt::format("{}: {}, tokens {} {}", path, name_of(prepared->kind),
                                            prepared->from_cache ? "found in" : "written to",
                                            prepared->path));
    }
    std::istringstream said(prepared->messages);
    for (std::string line; std::getline(said, line);) {
        samples.notes.push_back(fmt::format("{}: {}", path, line));
    }
    for (std::string& note : notes_of(samples.dataset, path, config.max_length)) {
        samples.notes.push_back(std::move(note));
    }
    return samples;
}

Status check_output_dir(const std::string& output_dir) {
    std::error_code failure;
    const fs::path above = nearest_existing(output_dir, failure);
    const auto refusal = [&](std::string cause) {
        return Error{ErrorCode::failed, fmt::format("cannot write to output_dir '{}'", output_dir),
                     std::move(cause)};
    };
    if (failure) return refusal(failure.message());
    if (!fs::is_directory(above, failure)) {
        return refusal(fmt::format("'{}' is a file; name another output_dir", above.string()));
    }
    if (::faccessat(AT_FDCWD, above.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
    return refusal(fmt::format("{} for user {} in '{}'; name another output_dir",
                               std::strerror(errno), ::geteuid(), above.string()));
}

// A trained model that finds no room at the end would be lost.
Status check_room(const std::string& output_dir, uint64_t needed_bytes) {
    std::error_code failure;
    const fs::space_info space = fs::space(nearest_existing(output_dir, failure), failure);
    if (failure || space.available >= needed_bytes) return {};
    return Error{ErrorCode::does_not_fit,
                 fmt::format("the trained model needs {} ({} bytes) in output_dir '{}' and {} ({} "
                             "bytes) are free there",
                             offload::format_bytes(needed_bytes), needed_bytes, output_dir,
                             offload::format_bytes(space.available), space.available),
                 "free space, or name another output_dir"};
}

// The model that a run starts from is never written to.
Status check_apart(const fs::path& output_dir, const fs::path& model_folder) {
    std::error_code absent;  // a folder that does not exist is no other's
    for (const fs::path& target : {output_dir, output_dir / "model"}) {
        if (!fs::equivalent(target, model_folder, absent)) continue;
        return Error{ErrorCode::usage,
                     fmt::format("output_dir {} would overwrite the model it trains from ({}); "
                                 "choose another output_dir",
                                 output_dir.string(), model_folder.string()),
                     ""};
    }
    return {};
}

}  // namespace

Status check_run(const RunConfig& config, Leaves leaves, const Environment& environment) {
    // Each would train the whole model and write the same output_dir.
    if (!environment.several_processes.empty()) {
        return Error{ErrorCode::usage,
                     fmt::format("{}: a launcher starts several processes, and this version trains "
                                 "in one process",
                                 environment.several_processes),
                     "start it without torchrun, mpirun or srun, or unset the variable"};
    }
    if (config.device == Device::cuda) {
        return Error{ErrorCode::usage,
                     "device: cuda comes in a later version; this one trains with device: host",
                     ""};
    }
    const Result<std::optional<MachineFile>> card = emulated_card(config);
    if (!card) return wrap(card.error(), "emulate");
    const Result<std::optional<MachineFile>> rates = read_rates(config, environment);
    if (!rates) return rates.error();
    if (Status status = check_trace(config); !status) return status;
    if (Status status = check_output_dir(config.output_dir); !status) return status;
    if (Status status = check_nvme_paths(config.offload.nvme_paths); !status) return status;
    const Result<ModelShape> model = read_model_shape(config.model, environment);
    if (!model) return model.error();
    if (Status status = check_apart(config.output_dir, model->folder); !status) return status;
    if (leaves == Leaves::a_model && !*card) {
        const uint64_t result_bytes = bytes_of(config.dtype, parameter_count(model->config));
        if (Status status = check_room(config.output_dir, result_bytes); !status) return status;
    }
    const Result<Checkpoint> checkpoint = Checkpoint::open(model->folder);
    if (!checkpoint) return checkpoint.error();
    return checkpoint->check_against(layers_of(model->config));
}

Status fit_length(LoadedConfig& loaded, const LlamaConfig& model) {
    CHECK_GE(model.max_positions, 1);
    if (loaded.config.max_length <= model.max_positions) return {};
    const auto origin = loaded.origins.find("max_length");
    if (origin != loaded.origins.end()) {
        return Error{
            ErrorCode::usage,
            fmt::format("{}: max_length: {} is more than the {} positions of the model '{}'",
                        origin->second, loaded.config.max_length, model.max_positions,
                        loaded.config.model),
            ""};
    }
    loaded.notes.push_back(
        fmt::format("max_length is {}: the model has no more positions", model.max_positions));
    loaded.config.max_length = model.max_positions;
    return {};
}

Status check_nvme_paths(const std::vector<std::string>& paths) {
    if (paths.empty()) return {};
    std::vector<nvme::PathNeed> needs;
    for (const std::string& path : paths) needs.push_back({.path = path, .size_bytes = 0});
    // The name matters only for the room that an older store of it takes, and no room is asked for.
    return nvme::check_paths(needs, "run");
}

Status check_trace(const RunConfig& config) {
    const std::string& path = config.offload.advanced.trace;
    if (path.empty()) return {};
    const Status possible = check_can_write(path);
    return possible ? possible : wrap(possible.error(), "trace");
}

Result<std::optional<MachineFile>> read_rates(const RunConfig& config,
                                              const Environment& environment) {
    if (config.machine.empty()) return load_measured_machine(environment.measured_machine);
    Result<MachineFile> machine = load_machine(config.machine);
    if (!machine) return wrap(machine.error(), "machine");
    return std::optional(std::move(*machine));
}

std::string say_rates_elsewhere(const Environment& environment) {
    const std::vector<std::string> names = measured_elsewhere(environment.measured_machine);
    if (names.empty()) return "";
    return fmt::format(" ({} has {}, of another processor or number of cores)",
                       fs::path(environment.measured_machine).parent_path().string(),
                       fmt::join(names, ", "));
}

Result<ModelShape> read_model_shape(const std::string& model, const Environment& environment) {
    Result<std::string> folder = find_model(model, environment.hub_cache);
    if (!folder) return folder.error();
    const Result<ConfigJson> text = read_config_json(*folder, environment);
    if (!text) return text.error();
    Result<LlamaConfig> config = parse_llama_config(text->text, text->path);
    if (!config) return config.error();
    return ModelShape{.folder = std::move(*folder), .config = std::move(*config)};
}

Result<RunInputs> read_run_inputs(LoadedConfig loaded, const Environment& environment) {
    CHECK(!loaded.config.train_data.empty());
    const Result<ModelShape> model = read_model_shape(loaded.config.model, environment);
    if (!model) return model.error();
    if (Status length = fit_length(loaded, model->config); !length) return length.error();
    std::vector<std::string> notes = loaded.notes;

    Result<Samples> train =
        read_samples(loaded.config.train_data, loaded.config, *model, environment);
    if (!train) return train.error();
    std::ranges::move(train->notes, std::back_inserter(notes));
    RunInputs inputs{.loaded = std::move(loaded),
                     .model_dir = model->folder,
                     .model = model->config,
                     .train_data = std::move(train->dataset),
                     .eval_data = std::nullopt,
                     .notes = std::move(notes)};
    const RunConfig& config = inputs.loaded.config;
    if (!config.eval_data.empty()) {
        Result<Samples> eval = read_samples(config.eval_data, config, *model, environment);
        if (!eval) return eval.error();
        inputs.eval_data = std::move(eval->dataset);
        std::ranges::move(eval->notes, std::back_inserter(inputs.notes));
    }
    return inputs;
}

Status write_resolved_config(const LoadedConfig& loaded) {
    const fs::path folder = loaded.config.output_dir;
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure) {
        return Error{ErrorCode::failed, fmt::format("cannot make the folder '{}'", folder.string()),
                     failure.message()};
    }
    return save_text((folder / "config.resolved.yaml").string(), resolved_yaml(loaded));
}

}  // namespace headrace::engine
