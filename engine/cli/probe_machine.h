// The rates of this machine, measured now and kept for the next start: what `doctor --probe` does
// when it is asked to, and tune where nothing is known.
#pragma once

#include <functional>
#include <string>

#include "engine/cli/commands.h"
#include "engine/cli/measure_machine.h"

namespace headrace::engine {

// `say`: progress; may be empty. Written to command.out, or where train and plan look; without a
// home folder and a name nowhere. Errors: of measure_machine and write_machine; of the model.
offload::Result<MeasuredMachine> measure_and_keep(const DoctorCommand& command,
                                                  const CommandContext& context,
                                                  std::function<void(const std::string&)> say);

}  // namespace headrace::engine
