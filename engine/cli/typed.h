// Typed: what stands on the command line before it is understood. Each command has a type: its
// constructor tells CLI11 what the command takes and has it filled in where it stands, so it may
// not move; read() makes the command, or the Exit that says what was wrong with what was typed.
// typed_run.h: the commands on a run; typed_bench.h: the benches; typed_plainly.h: those whose
// options are their values as they stand. Here is what several of them share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cli/command_line.h"
#include "offload/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace headrace::engine {

// The foot of a help text.
inline constexpr const char* exit_codes =
    "\nExit codes: 0 done, 1 failed, 2 usage or config, 3 does not fit, 4 bad data or checkpoint,\n"
    "5 diverged, 128+n stopped by signal n.\n";

// What cannot be understood, and where to look.
Exit refused(const std::string& why);

// The one command of this parent that was typed.
std::string name_of_command(const CLI::App& parent);

// Places, and key=value between or after them.
struct Words {
    std::vector<std::string> places;
    std::vector<std::string> overrides;
};
Words split(const std::vector<std::string>& words);

// Options that mean a key of the run file.
struct KeyOptions {
    std::vector<std::string> nvme_paths{};
    std::string machine_file{};
    std::string emulated_file{};

    // Paths are added last; a machine or a card that is typed as key=value on the same line wins.
    void add_to(std::vector<std::string>& overrides) const;
};
void add_nvme(CLI::App& command, KeyOptions& keys);
void add_machine(CLI::App& command, KeyOptions& keys);

// --layers and --steps: how much of a model, and how often. The count is 0 where it is
// not given: three, or all that a smaller model has.
void add_part(CLI::App& command, int64_t& block_count, int64_t& step_count,
              const std::string& help_of_steps);

// The option, with its number held between these. CLI::Range takes nan for a number of any range.
CLI::Option* within(CLI::Option* option, double least, double most);

// --rounds, --seconds and --json of a bench.
void add_rounds(CLI::App& bench, uint32_t& rounds, double& seconds_min, bool& is_json);

// What a size is given as: at least so many bytes, a multiple of the unit; else an Error (usage).
offload::Result<uint64_t> size_of(const std::string& option, const std::string& text,
                                  uint64_t least, uint64_t unit);

}  // namespace headrace::engine
