// Interleaver: a brute-force oracle for small schedules. It knows neither conflicts nor how edges
// are derived: it lets every op start at any moment its edges allow and finish at any later one,
// over two periods, and looks at the bytes.
//
// Bytes are *terms*: the name of a computation and of what went into it. A straight loop without
// slots (the reference) says which term every value of the two periods is. While an op writes, its
// slot holds garbage; a read must see the term of the value it names when the op starts and still
// when it ends; an op writes the term of what it read, which must be that of the value it names.
// A skipped update leaves the bytes alone, so no relabel is needed here.
//
// Drives may lose power at any moment: of a place with two copies, neither the one that the last
// durable commit names nor the one that a record under way names may be overwritten, and a record
// may only start when every place it names is flushed.
//
// Every state is visited once (memoised), so the answer is exact; outcomes (what the entry verdict
// was, which periods train, what the verdict between them says) are enumerated.
//
// Reduction: starts and finishes of ops that share no byte either of them changes commute. So in
// each state it is enough to move a *stubborn set*: closed under "may interfere with a member that
// can move" and "is needed before a member that cannot move". Every complete interleaving has a
// reordering of independent moves among those visited, in which each op reads and leaves the same
// bytes (Valmari 1989; the state graph has no cycles, so nothing is put off for ever). The edges
// play no part in which ops interfere. The tests compare it with the search without reduction.
#pragma once

#include <optional>
#include <string>

#include "offload/schedule.h"
#include "offload/slots.h"

namespace headrace::offload {

inline constexpr size_t interleaver_op_count_max = 128;

// in_list: ops of an in-order lane start in list order, as run issues them. ignored: edges alone
// must do; every interleaving of in_list is one of ignored.
enum class LaneOrder : uint8_t { ignored, in_list };

enum class Reduction : uint8_t { none, stubborn };

struct Finding {
    std::optional<std::string> violation;  // the first one found
    size_t state_count = 0;
    bool is_complete = true;  // false: no violation in the first `state_count_max` states
};

struct InterleaverOptions {
    LaneOrder lane_order = LaneOrder::ignored;
    Reduction reduction = Reduction::stubborn;
    size_t state_count_max = 3'000'000;  // per outcome
};

// `schedule.ops` is what the ops do, `schedule.edges` what they wait for; the two need not belong
// together. `table` says where the values live between periods. CHECKs that the list is small.
Finding interleave(const Schedule& schedule, const SlotTable& table,
                   const InterleaverOptions& options);

}  // namespace headrace::offload
