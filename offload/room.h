// Room: whether choices fit under a question's ceilings. Of those that do not it remembers the
// nearest miss: the placement that lacks the fewest bytes, which is what a refusal tells of.
#pragma once

#include <limits>
#include <optional>

#include "offload/planner.h"

namespace headrace::offload {

class Room {
  public:
    // The question outlives it.
    explicit Room(const Question& question);

    const Question& question() const { return question_; }
    const Workload& workload() const { return question_.workload; }
    Plan plan_of(const Choice& choice) const;

    // What the slots of a plan take; on nvme what the store takes for them, if there is one to ask.
    TierBytes needs_of(const Plan& plan) const;
    // What the slots alone take.
    TierBytes slot_bytes_of(const Choice& choice) const { return sizes_.of(plan_of(choice)); }
    // Bytes beyond the ceilings; 0: it fits.
    uint64_t missing_of(const TierBytes& needs) const;

    // If it does not fit, it is a miss.
    bool fits(const Choice& choice);

    // The same for what is tried beyond what is needed: no miss if it does not fit.
    bool has_room_for(const Choice& choice) const;

    // What the nearest miss needs; zeros if nothing missed.
    TierBytes nearest_miss() const;

  private:
    TierBytes with_store(TierBytes needs, const Plan& plan) const;
    TierBytes quick_needs_of(const Plan& plan) const;

    const Question& question_;
    const Sizes sizes_;
    uint64_t least_missing_ = std::numeric_limits<uint64_t>::max();
    std::optional<Choice> nearest_;
};

}  // namespace headrace::offload
