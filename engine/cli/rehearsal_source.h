// What rehearsals are told: a run file as train takes it, with its model's weights and its data; or
// a model's shape alone, whose weights and tokens are made up. What rehearse, tune and bench step
// have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cli/commands.h"
#include "engine/cli/run_inputs.h"
#include "engine/config/load_config.h"
#include "engine/rehearse/rehearse.h"

namespace headrace::engine {

struct RehearsalSource {
    LoadedConfig loaded;
    LlamaConfig model;
    std::string model_dir;              // empty: a shape alone
    std::optional<Dataset> train_data;  // nothing: made up
    std::optional<Dataset> eval_data;
    std::optional<MachineFile> machine;  // whose rates are planned by; nothing: not known

    bool is_shape_alone() const { return !train_data.has_value(); }
};

// Writes into output_dir/data at most, as train does. Errors: as of check_run and read_run_inputs.
offload::Result<RehearsalSource> read_rehearsal(const std::string& what,
                                                const std::vector<std::string>& overrides,
                                                const Environment& environment);

// `config`: the source's, or one of its kind, which outlives the inputs. Error (usage): the model
// has fewer blocks.
struct RehearsalSize {
    int64_t block_count = 0;  // 0: three, or all that a smaller model has
    int64_t step_count = 4;
};
offload::Result<RehearsalInputs> rehearsal_inputs(const RehearsalSource& source,
                                                  const RunConfig& config,
                                                  const RehearsalSize& size,
                                                  const CommandContext& context);

// Warnings are always said; notes where they are wanted.
enum class Notes : uint8_t { said, kept_back };
RehearsalReporter rehearsal_reporter(Notes notes, const CommandContext& context);

}  // namespace headrace::engine
