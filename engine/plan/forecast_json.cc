#include <nlohmann/json.hpp>

#include "engine/models/json.h"
#include "engine/plan/forecast.h"
#include "engine/plan/purposes.h"

namespace headrace::engine {

namespace {

using nlohmann::ordered_json;

ordered_json tiers_json(const offload::TierBytes& bytes) {
    const bool is_unlimited = bytes.nvme_bytes == unlimited_bytes;
    return {{"gpu_bytes", bytes.gpu_bytes},
            {"ram_bytes", bytes.ram_bytes},
            {"nvme_bytes", is_unlimited ? ordered_json() : ordered_json(bytes.nvme_bytes)}};
}

ordered_json purposes_json(const Placement& placement) {
    ordered_json tiers = ordered_json::object();
    const auto bytes = bytes_by_purpose(placement);
    for (const offload::Tier tier : offload::all_tiers) {
        ordered_json purposes = ordered_json::object();
        for (const PurposeBytes& one : bytes[static_cast<size_t>(tier)]) {
            purposes[std::string(one.purpose)] = one.size_bytes;
        }
        tiers[std::string(name_of(tier))] = purposes;
    }
    return tiers;
}

ordered_json placement_json(const Placement& placement) {
    const offload::Choice& choice = placement.choice;
    return {{"base", name_of(placement.base)},
            {"cached_share", choice.cached_share},
            {"update_twice", placement.plan.twice.empty() ? 0.0 : choice.twice_share},
            {"kept_block_count", choice.kept.count()},
            {"activations", text_of(activation_shares(placement.workload, placement.plan))},
            {"stash_tier", text_of(stash_shares(placement.plan))},
            {"accumulator_tier", name_of(choice.accumulators)},
            {"micro_batches_per_pass", choice.group},
            {"layers_in_flight", choice.window},
            {"part_bytes", placement.part_bytes}};
}

ordered_json lanes_json(const offload::Forecast& forecast) {
    ordered_json lanes = ordered_json::object();
    for (int lane = 0; lane < offload::lane_kind_count; ++lane) {
        const auto i = static_cast<size_t>(lane);
        if (forecast.alone_s[i] == 0) continue;
        lanes[std::string(name_of(static_cast<offload::LaneKind>(lane)))] = {
            {"alone_s", forecast.alone_s[i]}, {"busy_s", forecast.busy_s[i]}};
    }
    return lanes;
}

ordered_json commit_json(const Placement& placement) {
    const auto commit_at = commit_of(placement.plan);
    if (!commit_at) return nullptr;
    return *commit_at == offload::CommitAt::every_step ? "every_step" : "at_saves";
}

}  // namespace

std::string json_of(const RunForecast& forecast, const Prices& prices) {
    const double step_s = forecast.placement.forecast.step_s;
    ordered_json remedies = ordered_json::array();
    for (const Remedy& remedy : forecast.remedies) {
        remedies.push_back({{"change", remedy.change}, {"step_s", remedy.step_s}});
    }
    ordered_json states = ordered_json::array();
    for (const SmallerStates& one : forecast.smaller_states) {
        states.push_back({{"optimizer_states", name_of(one.states)},
                          {"step_s", one.step_s},
                          {"nvme_write_bytes", one.written_bytes}});
    }
    ordered_json json = {{"parameter_count", forecast.parameter_count},
                         {"machine", forecast.machine.machine.name},
                         {"tokens_per_step", forecast.tokens_per_step},
                         {"step_s", step_s},
                         {"tokens_per_s", static_cast<double>(forecast.tokens_per_step) / step_s},
                         {"placement", placement_json(forecast.placement)},
                         {"needs", tiers_json(forecast.placement.needs)},
                         {"bytes_by_purpose", purposes_json(forecast.placement)},
                         {"ceilings", tiers_json(forecast.placement.budgets)},
                         {"lanes", lanes_json(forecast.placement.forecast)},
                         {"commit", commit_json(forecast.placement)},
                         {"nvme_read_bytes", forecast.read_bytes},
                         {"nvme_write_bytes", forecast.written_bytes},
                         {"remedies", remedies},
                         {"smaller_states", states},
                         {"large_budgets", forecast.large_budgets},
                         {"untrained", forecast.untrained}};
    if (forecast.at_saves) {
        json["commit_at_saves"] = {{"step_s", forecast.at_saves->step_s},
                                   {"nvme_write_bytes", forecast.at_saves->written_bytes},
                                   {"nvme_bytes", forecast.at_saves->nvme_bytes},
                                   {"nvme_bytes_with_one_copy", forecast.at_saves->one_copy_bytes}};
    }
    if (const auto& lora = forecast.lora) {
        json["lora"] = {{"is_estimate", true},
                        {"rank", lora->rank},
                        {"trained_parameter_count", lora->trained_count},
                        {"step_s", lora->step_s},
                        {"longest_lane", lora->longest_lane},
                        {"base_tier", name_of(lora->base_tier)},
                        {"nvme_read_bytes", lora->read_bytes},
                        {"nvme_write_bytes", 0},
                        {"nvme_bytes", lora->nvme_bytes}};
    }
    if (prices.step_count > 0) {
        const double hours = static_cast<double>(prices.step_count) * step_s / 3600;
        json["step_count"] = prices.step_count;
        json["hours"] = hours;
        if (prices.per_hour > 0) json["price"] = hours * prices.per_hour;
    }
    // A machine may be named after its file, and so by any bytes.
    return json_text(json);
}

}  // namespace headrace::engine
