// tune: which of the placements that a run file leaves open is the fastest here, measured. The
// planner's own choice, and its best answers where one thing is fixed otherwise (parts of half the
// size, one layer more in flight, nothing cached ...), become candidates; the few with the shortest
// predicted steps are rehearsed in turns (engine/rehearse/rehearse.h), round by round, every other
// one backwards, so that a slow minute of the machine hits all of them.
//
// A candidate wins over the planner's choice if it was faster in every round, and by gain_min in
// the median: everything less is the machine's noise, and the planner's stays.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/plan/fixed_settings.h"
#include "engine/rehearse/rehearse.h"

namespace headrace::engine {

inline constexpr double gain_min = 0.02;

struct TuneOptions {
    size_t candidate_count = 4;  // that are measured; the planner's is one of them
    int64_t round_count = 3;
};

struct TuneCandidate {
    std::string what;  // "as planned", "3 layers in flight"
    FixedSettings settings;
    Placement placement;
    double predicted_s = 0;         // a step of the whole model
    std::vector<Rehearsal> rounds;  // one per round

    // Of each round, a step scaled to the whole model; and their median.
    std::vector<double> rounds_s() const;
    double measured_s() const;
};

struct Tuning {
    std::vector<TuneCandidate> candidates;  // the first is the planner's
    size_t winner = 0;
    size_t predicted_count = 0;  // different placements that were predicted

    // Measured time of the candidate over the planner's, per round.
    std::vector<double> ratios_of(size_t candidate) const;
    double ratio_of(size_t candidate) const;  // their median
};

// The candidates, unmeasured: the planner's first, the others by their predicted steps.
// Errors: of place_rehearsal; usage: everything is fixed, or leads to the same placement.
offload::Result<Tuning> find_candidates(const RehearsalInputs& inputs, const TuneOptions& options);

// Rehearses them and names the winner. `say`: a line before each rehearsal; may be empty.
// Errors: of rehearse.
offload::Status measure(Tuning& tuning, const RehearsalInputs& inputs, const TuneOptions& options,
                        const RehearsalReporter& reporter,
                        const std::function<void(const std::string&)>& say);

// The index of the winner, given the measured seconds of each candidate in each round.
size_t winner_of(const std::vector<std::vector<double>>& seconds);

std::vector<std::string> describe(const Tuning& tuning);
// Without a line end. run_file: where the winner was written to; empty: nowhere.
std::string json_of(const Tuning& tuning, const std::string& run_file);

}  // namespace headrace::engine
