#include "engine/config/run_config.h"

#include <fmt/format.h>

#include "offload/check.h"

namespace headrace::engine {

std::string_view name_of(Device device) {
    switch (device) {
        case Device::automatic: return "auto";
        case Device::cuda: return "cuda";
        case Device::host: return "host";
    }
    CHECK(false);
}

std::string_view name_of(LrSchedule schedule) {
    switch (schedule) {
        case LrSchedule::linear: return "linear";
        case LrSchedule::cosine: return "cosine";
        case LrSchedule::constant: return "constant";
        case LrSchedule::constant_with_warmup: return "constant_with_warmup";
    }
    CHECK(false);
}

std::string_view name_of(IoEngine engine) {
    switch (engine) {
        case IoEngine::automatic: return "auto";
        case IoEngine::uring: return "uring";
        case IoEngine::threads: return "threads";
    }
    CHECK(false);
}

std::string_view name_of(CommitMode commit) {
    switch (commit) {
        case CommitMode::automatic: return "auto";
        case CommitMode::every_step: return "every_step";
        case CommitMode::at_saves: return "at_saves";
    }
    CHECK(false);
}

std::string text_of(const TierShares& shares) {
    std::string text;
    for (const offload::Tier tier : offload::all_tiers) {
        if (shares.share(tier) == 1) return std::string(name_of(tier));
        if (shares.share(tier) == 0) continue;
        // A fraction, not a percentage: dividing by 100 again could change the last bit.
        text +=
            fmt::format("{}{}: {}", text.empty() ? "" : ", ", name_of(tier), shares.share(tier));
    }
    CHECK(!text.empty());
    return "{" + text + "}";
}

}  // namespace headrace::engine
