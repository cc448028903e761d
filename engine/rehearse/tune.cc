#include "engine/rehearse/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/rehearse/rounds.h"
#include "offload/numbers.h"
#include "offload/promise.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Result;
using offload::Status;
using offload::Tier;

namespace {

// A placement that is predicted to take so much longer than the planner's is not measured.
constexpr double predicted_max = 1.5;

// The run file with one thing fixed that it leaves open.
struct Variation {
    std::string what;
    RunConfig config;
};

class Variations {
  public:
    Variations(const RunConfig& config, const Placement& planned)
        : config_(config), planned_(planned), choice_(planned.choice) {}

    std::vector<Variation> all() {
        CHECK_GE(choice_.window, 1u);
        CHECK_GE(choice_.group, 1u);
        if (!config_.offload.advanced.part_bytes) add_part_sizes();
        if (!config_.offload.advanced.layers_in_flight) add_windows();
        if (!config_.offload.advanced.micro_batches_per_pass) add_passes();
        if (!config_.offload.advanced.ring_slots) add_rings();
        if (!config_.offload.advanced.update_twice) add_shares();
        add_tiers();
        return std::move(variations_);
    }

  private:
    template <typename Change>
    void add(std::string what, const Change& change) {
        variations_.push_back({.what = std::move(what), .config = config_});
        change(variations_.back().config.offload);
    }

    void add_part_sizes() {
        for (const uint64_t part_bytes : {planned_.part_bytes / 2, planned_.part_bytes * 2}) {
            if (part_bytes < least_part_bytes) continue;
            add(fmt::format("parts of {}", format_bytes(part_bytes)),
                [&](OffloadConfig& offload) { offload.advanced.part_bytes = part_bytes; });
        }
    }

    void add_windows() {
        for (const uint32_t window : {choice_.window - 1, choice_.window + 1}) {
            if (window == 0 || window > layer_count(planned_.workload)) continue;
            add(fmt::format("{} layer{} in flight", window, window == 1 ? "" : "s"),
                [&](OffloadConfig& offload) { offload.advanced.layers_in_flight = window; });
        }
    }

    void add_passes() {
        const uint32_t most = planned_.workload.micro_batch_count_max;
        for (const uint32_t group : {choice_.group / 2, std::min(most, choice_.group * 2)}) {
            if (group == 0 || group == choice_.group) continue;
            add(fmt::format("{} of {} micro-batches per pass", group, most),
                [&](OffloadConfig& offload) { offload.advanced.micro_batches_per_pass = group; });
        }
    }

    void add_rings() {
        for (const uint32_t slots : {choice_.ring_slots / 2, choice_.ring_slots * 2}) {
            if (slots == 0) continue;
            add(fmt::format("{} slot{} of each ring in ram", slots, slots == 1 ? "" : "s"),
                [&](OffloadConfig& offload) { offload.advanced.ring_slots = slots; });
        }
    }

    void add_shares() {
        if (planned_.base != offload::Base::nvme) return;
        for (const double share : {choice_.twice_share - offload::twice_grid,
                                   choice_.twice_share + offload::twice_grid}) {
            if (share < 0 || share > 1) continue;
            add(fmt::format("{:.3g}% updated twice", 100 * share),
                [&](OffloadConfig& offload) { offload.advanced.update_twice = share; });
        }
    }

    void add_tiers() {
        const AdvancedConfig& advanced = config_.offload.advanced;
        if (choice_.cached_share > 0 && !config_.offload.parameters && !config_.offload.optimizer) {
            add("nothing cached", [&](OffloadConfig& offload) {
                offload.parameters = TierShares::all_on(choice_.hi);
                offload.optimizer = TierShares::all_on(choice_.opt);
            });
        }
        if (!advanced.stash_tier && !config_.offload.nvme_paths.empty()) {
            const Tier other = choice_.stash == Tier::nvme ? Tier::ram : Tier::nvme;
            add(fmt::format("gradients wait in {}", name_of(other)), [&](OffloadConfig& offload) {
                offload.advanced.stash_tier = TierShares::all_on(other);
            });
        }
        const bool keeps_open = !config_.gradient_checkpointing && !says_what_is_kept(advanced);
        if (keeps_open && choice_.kept.count() > 0) {
            add("every block recomputed",
                [](OffloadConfig& offload) { offload.advanced.blocks_kept_on_gpu = 0; });
        }
    }

    static constexpr uint64_t least_part_bytes = 256 * offload::kib;

    const RunConfig& config_;
    const Placement& planned_;
    const offload::Choice& choice_;
    std::vector<Variation> variations_;
};

// `config`: as it was given, so that what a variation fixed is among the keys that are fixed now.
TuneCandidate candidate_of(std::string what, const RunConfig& config, HostPlacement placed) {
    const double step_s = placed.placement.forecast.step_s;
    CHECK_GT(step_s, 0.0);
    FixedSettings settings = fixed_settings(config, placed.placement);
    return {.what = std::move(what),
            .settings = std::move(settings),
            .placement = std::move(placed.placement),
            .predicted_s = step_s,
            .rounds = {}};
}

bool is_same(const Placement& a, const Placement& b) {
    return a.part_bytes == b.part_bytes && a.plan == b.plan;
}

}  // namespace

std::vector<double> TuneCandidate::rounds_s() const {
    std::vector<double> seconds;
    for (const Rehearsal& round : rounds) seconds.push_back(round.whole_step_s());
    return seconds;
}

double TuneCandidate::measured_s() const {
    return median_of(rounds_s());
}

std::vector<double> Tuning::ratios_of(size_t candidate) const {
    CHECK_LT(candidate, candidates.size());
    return ratios(candidates[candidate].rounds_s(), candidates.front().rounds_s());
}

double Tuning::ratio_of(size_t candidate) const {
    return median_of(ratios_of(candidate));
}

Result<Tuning> find_candidates(const RehearsalInputs& inputs, const TuneOptions& options) {
    CHECK_GE(options.candidate_count, 2u);
    Result<HostPlacement> planned = place_rehearsal(inputs);
    if (!planned) return planned.error();
    Tuning tuning;
    std::vector<TuneCandidate>& found = tuning.candidates;
    found.push_back(candidate_of("as planned", inputs.config, std::move(*planned)));
    const std::vector<Variation> variations =
        Variations(inputs.config, found.front().placement).all();
    for (const Variation& variation : variations) {
        Result<HostPlacement> placed = place_rehearsal(with_config(inputs, variation.config));
        if (!placed && placed.error().code == ErrorCode::does_not_fit) continue;
        if (!placed) return placed.error();
        TuneCandidate one = candidate_of(variation.what, inputs.config, std::move(*placed));
        const bool is_known = std::ranges::any_of(found, [&](const TuneCandidate& known) {
            return is_same(known.placement, one.placement);
        });
        if (!is_known) found.push_back(std::move(one));
    }
    tuning.predicted_count = found.size();
    std::stable_sort(found.begin() + 1, found.end(),
                     [](const auto& a, const auto& b) { return a.predicted_s < b.predicted_s; });
    const double longest_s = predicted_max * found.front().predicted_s;
    while (found.size() > 1 &&
           (found.size() > options.candidate_count || found.back().predicted_s > longest_s)) {
        found.pop_back();
    }
    if (found.size() > 1) return tuning;
    return Error{
        ErrorCode::usage,
        "there is nothing to choose between: every other way to fill in what is left open "
        "gives the planner's placement, does not fit, or is predicted to take half as long "
        "again",
        "leave more open (offload.advanced, parameters, optimizer), or raise a budget"};
}

size_t winner_of(const std::vector<std::vector<double>>& seconds) {
    CHECK(!seconds.empty());
    size_t winner = 0;
    double best = 1 - gain_min;
    for (size_t candidate = 1; candidate < seconds.size(); ++candidate) {
        const std::vector<double> of_planned = ratios(seconds[candidate], seconds.front());
        const double median = median_of(of_planned);
        if (std::ranges::max(of_planned) >= 1 || median > best) continue;
        winner = candidate;
        best = median;
    }
    return winner;
}

Status measure(Tuning& tuning, const RehearsalInputs& inputs, const TuneOptions& options,
               const RehearsalReporter& reporter,
               const std::function<void(const std::string&)>& say) {
    CHECK_GE(options.round_count, 1);
    CHECK(!tuning.candidates.empty());
    CHECK(tuning.candidates.front().rounds.empty());
    std::vector<TuneCandidate>& candidates = tuning.candidates;
    const RehearsalReporter quiet{.note = [](const std::string&) {},
                                  .warn = reporter.warn,
                                  .stop_signal = reporter.stop_signal,
                                  .stuck = reporter.stuck};
    for (int64_t round = 0; round < options.round_count; ++round) {
        for (const size_t index : order_of_round(static_cast<uint64_t>(round), candidates.size())) {
            TuneCandidate& one = candidates[index];
            Result<Rehearsal> rehearsal = rehearse(with_config(inputs, one.settings.config), quiet);
            if (!rehearsal) return wrap(rehearsal.error(), one.what);
            if (say) {
                say(fmt::format("round {} of {}, {}: {} of {} blocks, {} of the whole", round + 1,
                                options.round_count, one.what,
                                offload::format_seconds(rehearsal->step_s), rehearsal->block_count,
                                offload::format_seconds(rehearsal->whole_step_s())));
            }
            one.rounds.push_back(std::move(*rehearsal));
        }
    }
    std::vector<std::vector<double>> seconds;
    for (const TuneCandidate& one : candidates) {
        CHECK_EQ(std::ssize(one.rounds), options.round_count);
        seconds.push_back(one.rounds_s());
    }
    tuning.winner = winner_of(seconds);
    CHECK_LT(tuning.winner, candidates.size());
    return {};
}

}  // namespace headrace::engine
