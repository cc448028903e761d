#include "offload/room.h"

namespace headrace::offload {

Room::Room(const Question& question) : question_(question), sizes_(question.workload) {}

Plan Room::plan_of(const Choice& choice) const {
    return offload::plan_of({.workload = workload(),
                             .fixed = question_.fixed,
                             .commits = question_.commits,
                             .path_count = question_.path_count},
                            choice);
}

TierBytes Room::with_store(TierBytes needs, const Plan& plan) const {
    if (needs.nvme_bytes > 0 && question_.store_bytes) {
        needs.nvme_bytes = question_.store_bytes(lay_slots(workload(), plan));
    }
    return needs;
}

TierBytes Room::needs_of(const Plan& plan) const {
    return with_store(sizes_.of(plan), plan);
}

// As needs_of, but the store is asked only where its answer matters.
TierBytes Room::quick_needs_of(const Plan& plan) const {
    const TierBytes needs = sizes_.of(plan);
    return missing_of(needs) == 0 ? with_store(needs, plan) : needs;
}

uint64_t Room::missing_of(const TierBytes& needs) const {
    return shortfall(needs, question_.ceilings) +
           excess(needs.gpu_bytes + needs.ram_bytes, question_.memory_ceiling_bytes);
}

bool Room::fits(const Choice& choice) {
    const uint64_t missing = missing_of(quick_needs_of(plan_of(choice)));
    if (missing > 0 && missing < least_missing_) {
        least_missing_ = missing;
        nearest_ = choice;
    }
    return missing == 0;
}

bool Room::has_room_for(const Choice& choice) const {
    return missing_of(quick_needs_of(plan_of(choice))) == 0;
}

TierBytes Room::nearest_miss() const {
    return nearest_ ? needs_of(plan_of(*nearest_)) : TierBytes{};
}

}  // namespace headrace::offload
