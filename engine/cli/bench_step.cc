#include "engine/cli/bench_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "offload/check.h"
#include "offload/numbers.h"

namespace headrace::engine {

using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

using Way = BenchStepCommand::Way;

std::string_view name_of(Way way) {
    switch (way) {
        case Way::planned: return "as planned";
        case Way::gated: return "no update twice";
        case Way::serial: return "one op at a time";
        case Way::classic: return "classic order";
    }
    CHECK(false);
}

RunConfig config_of(const RunConfig& config, const BenchStepCommand::Batch& batch, Way way) {
    CHECK_GE(batch.row_count, 1);
    CHECK_GE(batch.micro_batch_count, 1);
    RunConfig changed = config;
    changed.per_device_train_batch_size = batch.row_count;
    changed.gradient_accumulation_steps = batch.micro_batch_count;
    AdvancedConfig& advanced = changed.offload.advanced;
    if (way == Way::gated || way == Way::classic) advanced.update_twice = 0;
    if (way == Way::serial) advanced.overlap = false;
    if (way == Way::classic) advanced.micro_batches_per_pass = advanced.layers_in_flight = 1;
    return changed;
}

// A batch in one way, and what its rounds gave.
struct Contestant {
    BenchStepCommand::Batch batch;
    Way way;
    std::vector<Rehearsal> rehearsals{};
    std::vector<LongestLane> lanes{};
    std::vector<StepRates> rates{};

    std::string name() const {
        return fmt::format("{}x{}, {}", batch.row_count, batch.micro_batch_count, name_of(way));
    }
};

std::vector<double> steps_of(const Contestant& one) {
    std::vector<double> steps;
    for (const Rehearsal& rehearsal : one.rehearsals) steps.push_back(rehearsal.step_s);
    return steps;
}

class Bench {
  public:
    Bench(const BenchStepCommand& command, const StepBenchContext& context, StepCeilings& ceilings)
        : command_(command), context_(context), ceilings_(ceilings) {
        for (const auto& batch : command.batches) {
            for (const Way way : command.ways) contestants_.push_back({.batch = batch, .way = way});
        }
    }

    Status run() {
        for (uint32_t round = 0; round < command_.rounds; ++round) {
            for (const size_t index : order_of_round(round, contestants_.size())) {
                Contestant& one = contestants_[index];
                if (misfits_.contains(index)) continue;
                const Status status = measure(one, round);
                if (status) continue;
                if (status.error().code != ErrorCode::does_not_fit || round > 0) return status;
                misfits_.emplace(index, status.error());
            }
        }
        if (misfits_.size() == contestants_.size()) return misfits_.begin()->second;
        return {};
    }

    StepBench result() const {
        StepBench bench;
        for (const Contestant& one : contestants_) {
            if (!one.rehearsals.empty()) bench.rows.push_back(row_of(one));
        }
        for (const auto& [index, error] : misfits_) {
            bench.notes.push_back(fmt::format("{}: {}", contestants_[index].name(), error.text()));
        }
        CHECK(!bench.rows.empty());
        const Rehearsal& first = first_rehearsal();
        bench.title = fmt::format(
            "{}{}, {} of {} blocks at full width, {} interleaved rounds of {} steps",
            first.emulated.empty() ? "" : "EMULATED " + first.emulated + ": ", context_.model_name,
            first.block_count, first.whole_block_count, command_.rounds, command_.step_count);
        return bench;
    }

  private:
    Status measure(Contestant& one, uint32_t round) {
        if (!now_) {
            if (Status status = look_at_ceilings(); !status) return status;
        }
        const StepRates before = *now_;  // the row before has just ended
        const RunConfig config = config_of(context_.inputs.config, one.batch, one.way);
        Result<Rehearsal> rehearsal =
            rehearse(with_config(context_.inputs, config), context_.reporter);
        if (!rehearsal) return rehearsal.error();
        if (Status status = look_at_ceilings(); !status) return status;
        one.rates.push_back(between(before, *now_));
        one.lanes.push_back(longest_lane(*rehearsal, one.rates.back()));
        one.rehearsals.push_back(std::move(*rehearsal));
        if (context_.say) {
            context_.say(fmt::format(
                "round {} of {}, {}: {}, its longest lane ({}) {}", round + 1, command_.rounds,
                one.name(), offload::format_seconds(one.rehearsals.back().step_s),
                one.lanes.back().name, offload::format_seconds(one.lanes.back().seconds)));
        }
        return {};
    }

    Status look_at_ceilings() {
        const Result<StepRates> rates = ceilings_.measure();
        if (!rates) return rates.error();
        now_ = *rates;
        return {};
    }

    const Rehearsal& first_rehearsal() const {
        const auto one = std::ranges::find_if(
            contestants_, [](const Contestant& each) { return !each.rehearsals.empty(); });
        CHECK(one != contestants_.end());
        return one->rehearsals.front();
    }

    // Over the same batch's step in another way, round by round; 0: that way does not fit.
    double of(Way way, const Contestant& one) const {
        for (const Contestant& other : contestants_) {
            const bool is_it = other.way == way && other.batch.row_count == one.batch.row_count &&
                               other.batch.micro_batch_count == one.batch.micro_batch_count;
            if (!is_it || other.rehearsals.size() != one.rehearsals.size()) continue;
            return median_of(ratios(steps_of(one), steps_of(other)));
        }
        return 0;
    }

    BenchRow row_of(const Contestant& one) const {
        CHECK(!one.rehearsals.empty());
        CHECK_EQ(one.lanes.size(), one.rehearsals.size());
        const std::vector<double> steps = steps_of(one);
        std::vector<double> lanes;
        std::map<std::string, int> count_of_name;
        for (const LongestLane& lane : one.lanes) {
            lanes.push_back(lane.seconds);
            ++count_of_name[lane.name];
        }
        const auto longest = std::ranges::max_element(count_of_name, {},
                                                      [](const auto& each) { return each.second; });
        const auto rate = [&](double StepRates::*member) {
            std::vector<double> each;
            for (const StepRates& rates : one.rates) each.push_back(rates.*member);
            return median_of(std::move(each));
        };
        BenchRow row{.name = one.name(),
                     .unit = "s",
                     .samples = steps,
                     .achieved = median_of(steps),
                     .ceiling = median_of(lanes),
                     .against = longest->first};
        const Rehearsal& last = one.rehearsals.back();
        row.facts = {{"tokens", static_cast<uint64_t>(last.token_count)},
                     {"way", std::string(name_of(one.way))},
                     {"longest", longest->first},
                     {"ratio_by_round", median_of(ratios(steps, lanes))},
                     {"read_bytes_per_s", rate(&StepRates::read_bytes)},
                     {"write_bytes_per_s", rate(&StepRates::written_bytes)},
                     {"update_parameters_per_s", rate(&StepRates::updated_parameters)},
                     {"predicted_s", last.part.forecast.step_s},
                     {"peak_rss_bytes", last.peak_rss_bytes},
                     {"emulated", last.emulated}};
        // Of a way that does not fit, or was not asked for, there is nothing to be a share of.
        for (const auto& [fact, way] : {std::pair("of_one_op_at_a_time", Way::serial),
                                        std::pair("of_classic_order", Way::classic)}) {
            if (const double ratio = of(way, one); ratio > 0) row.facts.emplace_back(fact, ratio);
        }
        return row;
    }

    const BenchStepCommand& command_;
    const StepBenchContext& context_;
    StepCeilings& ceilings_;
    std::optional<StepRates> now_;
    std::vector<Contestant> contestants_;
    std::map<size_t, offload::Error> misfits_;  // by contestant
};

}  // namespace

Result<StepBench> bench_step(const BenchStepCommand& command, const StepBenchContext& context) {
    CHECK(!command.batches.empty());
    CHECK(!command.ways.empty());
    CHECK_GE(command.rounds, 1u);
    const auto& stop_signal = context.reporter.stop_signal;
    const auto ceilings = StepCeilings::make(
        context.inputs.config, {.should_stop = [&stop_signal] { return stop_signal() != 0; },
                                .on_stuck = context.reporter.stuck});
    if (!ceilings) return ceilings.error();
    Bench bench(command, context, **ceilings);
    if (Status status = bench.run(); !status) return status.error();
    return bench.result();
}

std::string text_of(const StepBench& bench) {
    std::string text = bench.title + "\n";
    text += table_of(
        bench.rows, {{.fact = "tokens", .title = "tokens"},
                     {.fact = "longest", .title = "longest lane"},
                     {.fact = "ratio_by_round", .title = "of longest, by round", .decimals = 2},
                     {.fact = "of_one_op_at_a_time", .title = "of one op at a time", .decimals = 2},
                     {.fact = "of_classic_order", .title = "of the classic order", .decimals = 2}});
    for (const std::string& note : bench.notes) text += "  " + note + "\n";
    return text;
}

}  // namespace headrace::engine
