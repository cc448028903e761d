// StepCeilings: what the drives and the update can do at this moment, measured again and again
// between the steps that are held against them, with the loops of `bench nvme` and `bench adam`.
// Between measurements it holds a probe's file on the drives and 256 MiB of memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/config/run_config.h"
#include "engine/rehearse/rehearse.h"
#include "kernels/host/slab.h"
#include "nvme/probe.h"
#include "offload/result.h"

namespace headrace::engine {

// Per second. A run without drives has no rates of them: 0.
struct StepRates {
    double read_bytes = 0;  // alone
    double written_bytes = 0;
    double mixed_bytes = 0;  // 16 read to 14 written
    double updated_parameters = 0;
};

// What bounds a step from below: a lane and the seconds that it needs alone.
struct LongestLane {
    std::string name;  // gpu, h2d, d2h, drives, update
    double seconds = 0;
};

// Of what lies between two measurements: as many bytes at the one rate as at the other.
StepRates between(const StepRates& before, const StepRates& after);

// The longest of: FLOP over the card's rate, bytes over the link's each way, as predicted; what is
// read and written, in turns or mixed, whichever takes the drives less; parameters over the rate of
// the update.
LongestLane longest_lane(const Rehearsal& rehearsal, const StepRates& rates);

class StepCeilings {
  public:
    struct Context {
        std::function<bool()> should_stop{};
        std::function<void(std::string)> on_stuck{};  // nvme/store_options.h
    };
    // Of the drives, threads and formats of the run. Errors: memory, room on a drive, the drive's.
    static offload::Result<std::unique_ptr<StepCeilings>> make(const RunConfig& config,
                                                               Context context);

    offload::Result<StepRates> measure();

  private:
    StepCeilings(const RunConfig& config, Context context);

    const RunConfig config_;
    const Context context_;
    kernels::HostMemory memory_;
    std::unique_ptr<nvme::DriveProbe> probe_;  // null: no drives
};

}  // namespace headrace::engine
