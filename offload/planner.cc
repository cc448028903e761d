#include "offload/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/fastest.h"
#include "offload/promise.h"
#include "offload/room.h"
#include "offload/units.h"

namespace headrace::offload {

std::string_view name_of(Base base) {
    switch (base) {
        case Base::card: return "card";
        case Base::states_in_ram: return "states in ram";
        case Base::ram: return "ram";
        case Base::states_on_nvme: return "states on nvme";
        case Base::weights_in_ram: return "weights in ram";
        case Base::weights_on_nvme: return "weights on nvme";
        case Base::nvme: return "nvme";
    }
    CHECK(false);
}

Base base_of(const Plan& plan) {
    Tier hi = Tier::gpu;
    Tier opt = Tier::gpu;
    for (const PartHomes& homes : plan.homes) {
        hi = std::max(hi, homes.hi);
        opt = std::max(opt, homes.opt);
    }
    if (hi == Tier::nvme) return opt == Tier::nvme ? Base::nvme : Base::weights_on_nvme;
    if (opt == Tier::nvme) return hi == Tier::gpu ? Base::states_on_nvme : Base::weights_in_ram;
    if (hi == Tier::ram) return Base::ram;
    return opt == Tier::gpu ? Base::card : Base::states_in_ram;
}

namespace {

bool is_on_nvme(const std::optional<TierShares>& shares) {
    return shares && shares->share(Tier::nvme) > 0;
}

// The first thing that a run has there; empty: nothing.
std::string_view fixed_on_nvme(const Fixed& fixed) {
    if (is_on_nvme(fixed.parameters)) return "weights are fixed";
    if (is_on_nvme(fixed.optimizer)) return "optimizer states are fixed";
    if (is_on_nvme(fixed.activations)) return "activations are fixed";
    if (is_on_nvme(fixed.stash)) return "gradients are fixed";
    if (fixed.accumulators == Tier::nvme) return "accumulators are fixed";
    if (fixed.kept && fixed.kept->nvme > 0) return "blocks are kept";
    return {};
}

}  // namespace

Result<Findings> search(const Question& question) {
    CHECK_EQ(question.workload.purpose, Purpose::train);
    CHECK_EQ(question.effort.layers.size(), question.workload.layout.layers.size());
    if (std::string fault = find_fault(question.machine); !fault.empty()) {
        return Error{ErrorCode::usage, "the machine's rates cannot be", std::move(fault)};
    }
    if (question.path_count > 0 && question.machine.drive.read_bytes_per_s == 0) {
        return Error{ErrorCode::usage,
                     "the machine has no rates of a drive, and the run has a path",
                     "measure it with headrace bench nvme"};
    }
    if (const std::string_view what = fixed_on_nvme(question.fixed);
        question.path_count == 0 && !what.empty()) {
        return Error{ErrorCode::usage, fmt::format("{} on nvme, and there is no drive", what),
                     "leave them to the planner, or name a machine and folders with drives"};
    }
    Room room(question);
    Result<std::vector<Promise>> promises = find_promises(room);
    if (!promises) return promises.error();
    std::vector<Candidate> candidates = find_fastest(room, std::move(*promises));
    Findings findings{.answer = std::nullopt, .nearest = room.nearest_miss()};
    if (candidates.empty()) return findings;
    if (candidates.front().forecast.step_s <= 0) {
        return Error{ErrorCode::usage,
                     "a step on this machine takes less than a nanosecond or more than a century",
                     "one of its rates is far from what there is"};
    }
    findings.answer = Answer{.best = std::move(candidates.front()), .others = {}};
    candidates.erase(candidates.begin());
    findings.answer->others = std::move(candidates);
    return findings;
}

Result<Answer> find_plan(const Question& question) {
    Result<Findings> findings = search(question);
    if (!findings) return findings.error();
    if (findings->answer) return std::move(*findings->answer);
    const auto tier = [](std::string_view name, uint64_t needed, uint64_t given) {
        return fmt::format("{} {} of {}{}", name, format_bytes(needed), format_bytes(given),
                           needed > given ? " (too little)" : "");
    };
    const TierBytes& given = question.ceilings;
    const TierBytes& needs = findings->nearest;
    return Error{ErrorCode::does_not_fit,
                 fmt::format("no placement fits; the nearest needs {}, {}, {}",
                             tier("gpu", needs.gpu_bytes, given.gpu_bytes),
                             tier("ram", needs.ram_bytes, given.ram_bytes),
                             tier("nvme", needs.nvme_bytes, given.nvme_bytes)),
                 question.path_count == 0 ? "a drive would take what ram cannot" : ""};
}

}  // namespace headrace::offload
