#include "offload/fit.h"

#include <algorithm>

#include "offload/fill.h"

namespace headrace::offload {

namespace {

template <typename T>
std::vector<T> fixed_or(const std::optional<T>& fixed, const std::vector<T>& open) {
    return fixed ? std::vector<T>{*fixed} : open;
}

std::vector<uint32_t> groups(const Question& question, Reach reach) {
    const uint32_t most = question.workload.micro_batch_count_max;
    if (question.fixed.group) return {std::min(*question.fixed.group, most)};
    if (reach == Reach::memory) return {most};
    std::vector<uint32_t> groups;
    for (uint32_t group = most; group >= 1; group /= 2) groups.push_back(group);
    return groups;
}

// Each choice with each of the values: what is varied last changes first.
template <typename T>
void vary(T Choice::*member, const std::vector<T>& values, std::vector<Choice>& choices) {
    std::vector<Choice> varied;
    varied.reserve(choices.size() * values.size());
    for (const Choice& choice : choices) {
        for (const T& value : values) {
            varied.push_back(choice);
            varied.back().*member = value;
        }
    }
    choices = std::move(varied);
}

// All ways to fill in what is open, the best first.
std::vector<Choice> ways(const Question& question, Reach reach, const Choice& choice,
                         const Open& open) {
    const Fixed& fixed = question.fixed;
    const bool on_card = choice.hi == Tier::gpu && choice.opt == Tier::gpu;
    const std::vector<Tier> far = usable_tiers(question, reach, {Tier::ram, Tier::nvme});
    const std::vector<Tier> any = usable_tiers(question, reach, {Tier::gpu, Tier::ram, Tier::nvme});
    const std::vector<Tier> activations = fixed.activations ? std::vector{Tier::gpu} : any;
    const std::vector<Tier> stashes = fixed.stash ? std::vector{Tier::ram} : open.stashes;
    std::vector<Choice> ways = {choice};
    vary(&Choice::group, groups(question, reach), ways);
    vary(&Choice::window, fixed_or(fixed.window, {2u, 1u}), ways);
    vary(&Choice::activations, activations, ways);
    vary(&Choice::stash, stashes, ways);
    vary(&Choice::accumulators, fixed_or(fixed.accumulators, on_card ? any : far), ways);
    vary(&Choice::ring_slots, fixed_or(fixed.ring_slots, open.ring_slots), ways);
    return ways;
}

// Keeps as many layers as are fixed: so many, or all of them, where what is tried keeps on the gpu
// all that it can.
void keep_fixed(const Room& room, Reach reach, Choice& choice) {
    const Fixed& fixed = room.question().fixed;
    choice.kept = {};
    if (fixed.kept) keep_counts(room, *fixed.kept, choice);
    if (!fixed.keeps.value_or(false)) return;
    if (room.has_room_for(choice)) {
        const Tier farthest = usable_tiers(room.question(), reach, {Tier::ram, Tier::nvme}).back();
        keep_most(room, farthest, choice);
    }
    const uint32_t all = can_keep_count(room.workload());
    if (choice.kept.count() != all) choice.kept = {.gpu = all};  // for the numbers
}

}  // namespace

std::vector<Tier> usable_tiers(const Question& question, Reach reach,
                               std::initializer_list<Tier> tiers) {
    std::vector<Tier> usable;
    for (const Tier tier : tiers) {
        const bool is_near = tier != Tier::nvme;
        if (is_near || (question.path_count > 0 && reach == Reach::all)) usable.push_back(tier);
    }
    return usable;
}

Result<std::optional<Choice>> fit(Room& room, Reach reach, const Choice& choice, const Open& open) {
    const Question& question = room.question();
    Choice first = choice;
    first.group = groups(question, reach).front();
    first.window = question.fixed.window.value_or(1);
    // What is tried differs in nothing that can be a fault of a plan.
    if (const char* fault = find_fault(room.workload(), room.plan_of(first))) {
        return Error{ErrorCode::usage, "the placement cannot be", fault};
    }
    // Rings of one slot, without any overlap, come last of all.
    for (const Open& some : {open, Open{.ring_slots = {1}, .stashes = open.stashes}}) {
        for (Choice& way : ways(question, reach, choice, some)) {
            keep_fixed(room, reach, way);
            if (room.fits(way)) return std::optional(way);
        }
    }
    return std::optional<Choice>();
}

}  // namespace headrace::offload
