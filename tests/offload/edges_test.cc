// Goal: edges are exactly what the accesses demand. Method: lists of two or three ops, each for one
// rule; then every edge of a built list against a second statement of the rule, pair by pair.
#include "offload/edges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "offload/build.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Op op_of(std::vector<std::pair<SlotId, Mode>> touches) {
    Op op;
    for (const auto& [slot, mode] : touches) op.accesses.push_back({slot, {}, mode});
    return op;
}

constexpr Mode read = Mode::read;
constexpr Mode write = Mode::write;

TEST(Edges, AReadWaitsForTheWriterAndTheNextWriteForTheRead) {
    const std::vector<Op> ops = {op_of({{0, write}}), op_of({{0, read}})};
    EXPECT_THAT(derive_edges(ops, 1), ElementsAre(Edge{0, 1, 0}, Edge{1, 0, 1}));
}

TEST(Edges, AWriteWaitsForAllReadersButNotForTheWriterBeforeThem) {
    const std::vector<Op> ops = {op_of({{0, write}}), op_of({{0, read}}), op_of({{0, read}}),
                                 op_of({{0, write}})};
    EXPECT_THAT(derive_edges(ops, 1), ElementsAre(Edge{0, 1, 0}, Edge{0, 2, 0}, Edge{1, 3, 0},
                                                  Edge{2, 3, 0}, Edge{3, 0, 1}));
}

TEST(Edges, AWriteWaitsForTheWriterWhereNobodyHasRead) {
    const std::vector<Op> ops = {op_of({{0, write}}), op_of({{0, write}})};
    EXPECT_THAT(derive_edges(ops, 1), ElementsAre(Edge{0, 1, 0}, Edge{1, 0, 1}));
}

TEST(Edges, AnOpInPlaceIsAWriterAndWaitsForItsOwnPastSelf) {
    const std::vector<Op> ops = {op_of({{0, read}, {0, write}})};
    EXPECT_THAT(derive_edges(ops, 1), ElementsAre(Edge{0, 0, 1}));
}

TEST(Edges, ReadersAndOtherSlotsDoNotWait) {
    EXPECT_THAT(derive_edges({op_of({{0, read}}), op_of({{0, read}})}, 1), IsEmpty());
    EXPECT_THAT(derive_edges({op_of({{0, write}}), op_of({{1, read}})}, 2),
                ElementsAre(Edge{0, 0, 1}));
    EXPECT_THAT(derive_edges({}, 0), IsEmpty());
}

TEST(Edges, TwoSlotsThatDemandTheSameAreOneEdge) {
    const std::vector<Op> ops = {op_of({{0, write}, {1, write}}), op_of({{0, read}, {1, read}})};
    EXPECT_THAT(derive_edges(ops, 2), ElementsAre(Edge{0, 1, 0}, Edge{1, 0, 1}));
}

// What an op does to one slot, as far as order cares.
struct Use {
    bool reads = false;
    bool writes = false;
};

Use use_of(const Op& op, SlotId slot) {
    Use use;
    for (const Access& access : op.accesses) {
        if (access.slot != slot) continue;
        (access.mode == Mode::read ? use.reads : use.writes) = true;
    }
    return use;
}

// Whether, of the list written twice, `target` in the second copy must wait for `source` because of
// `slot`: they conflict, and no op between them makes the pair implied.
bool must_wait(const std::vector<Op>& ops, size_t source, size_t target, SlotId slot) {
    const Use first = use_of(ops[source % ops.size()], slot);
    const Use last = use_of(ops[target % ops.size()], slot);
    const bool reads_written = first.writes && last.reads;
    const bool overwrites_read = first.reads && !first.writes && last.writes;
    const bool overwrites_written = first.writes && last.writes;
    if (!reads_written && !overwrites_read && !overwrites_written) return false;
    for (size_t between = source + 1; between < target; ++between) {
        const Use use = use_of(ops[between % ops.size()], slot);
        if (use.writes) return false;
        if (use.reads && !reads_written && !overwrites_read) return false;
    }
    return true;
}

TEST(Edges, OfABuiltListAreThoseOfThePairwiseRule) {
    for (const bool tied : {false, true}) {
        const Workload workload = small_workload({1, 2, tied, 2});
        Plan plan = uniform_plan(workload, {}, Tier::nvme);
        plan.path_count = 1;
        const Schedule schedule = *build(workload, plan);
        const size_t op_count = schedule.ops.size();
        std::vector<Edge> expected;
        for (size_t target = op_count; target < 2 * op_count; ++target) {
            for (size_t source = 0; source < target; ++source) {
                bool waits = false;
                for (const Access& access : schedule.ops[target % op_count].accesses) {
                    waits = waits || must_wait(schedule.ops, source, target, access.slot);
                }
                if (!waits) continue;
                expected.push_back({static_cast<OpId>(source % op_count),
                                    static_cast<OpId>(target % op_count),
                                    static_cast<uint8_t>(source < op_count ? 1 : 0)});
            }
        }
        std::ranges::sort(expected);
        EXPECT_GT(expected.size(), op_count);
        EXPECT_TRUE(schedule.edges == expected);
    }
}

}  // namespace
}  // namespace headrace::offload
