// Goal: the order that a built schedule asks for is the one that makes commits safe: whatever the
// timing, a crash leaves a commit whose places are all of one step. Method: offload::run over a
// real list that commits every step, on a backend that carries the ops in flight out in seeded
// random order, with a store on a CrashDisk; every cut is looked at (crash_fixture.h).
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "nvme/nvme_store.h"
#include "offload/build.h"
#include "offload/find_fault.h"
#include "offload/run.h"
#include "tests/nvme/crash_fixture.h"
#include "tests/offload/small_workloads.h"

namespace headrace::nvme {
namespace {

using offload::Access;
using offload::Mode;
using offload::Op;
using offload::OpKind;
using offload::Period;
using offload::PlaceSpec;
using offload::Schedule;
using offload::Ticket;
using offload::Tier;

Schedule schedule_of(uint32_t path_count, Tier opt_tier) {
    const offload::Workload workload = offload::small_workload({.block_count = 1, .tied = true});
    offload::Plan plan = uniform_plan(
        workload, {.hi = Tier::nvme, .opt = opt_tier, .stash = Tier::nvme, .acc = Tier::ram},
        Tier::ram);
    plan.path_count = path_count;
    plan.commit_at = offload::CommitAt::every_step;
    Schedule schedule = build(workload, plan).value();
    CHECK(!find_fault(schedule).has_value());
    return schedule;
}

std::vector<PlaceSpec> places_of(const Schedule& schedule) {
    std::map<uint64_t, PlaceSpec> by_number;
    for (const offload::Slot& slot : schedule.slots) {
        if (slot.tier != Tier::nvme) continue;
        by_number[slot.offset_bytes] = {.name = fmt::format("{} {}", name_of(slot.kind), slot.of),
                                        .size_bytes = slot.size_bytes,
                                        .copies = slot.copies};
    }
    std::vector<PlaceSpec> places;
    for (const auto& [number, place] : by_number) {
        CHECK_EQ(number, places.size());
        places.push_back(place);
    }
    return places;
}

// The version of a state's bytes is the step that made it and this; the run begins with -1's.
constexpr int64_t version_of_step_0 = 10;
constexpr uint64_t first_version = version_of_step_0 - 1;
constexpr int64_t skipped_period = 2;

class StoreBackend final : public offload::Backend {
  public:
    StoreBackend(const Schedule& schedule, CrashRun& run, NvmeStore& store)
        : schedule_(schedule), run_(run), store_(store), random_(run.seed()) {}

    offload::Status open(const Period&) override { return {}; }
    offload::Status close(const Period&) override { return {}; }
    bool can_start(offload::LaneKind) const override { return flying_.size() < 6; }
    void start(const Ticket& ticket) override { flying_.push_back(ticket); }
    offload::Completion wait() override {
        const size_t i = random_() % flying_.size();
        const Ticket ticket = flying_[i];
        flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(i));
        execute(ticket);
        return {.ticket = ticket,
                .status = {},
                .verdict = ticket.period == skipped_period ? offload::Verdict::skip
                                                           : offload::Verdict::apply};
    }

  private:
    void execute(const Ticket& ticket) {
        const Op& op = schedule_.ops[ticket.op];
        if (op.kind == OpKind::sync) {
            const uint32_t path = find_access(op, offload::Kind::flushed, Mode::write)->value.of;
            return CrashRun::wait([&](offload::Done done) { store_.sync(path, std::move(done)); });
        }
        if (op.kind == OpKind::record) {
            return run_.record(store_, static_cast<uint64_t>(ticket.period) + 1);
        }
        if (op.kind == OpKind::seal) return run_.seal(store_);
        if (op.kind != OpKind::fetch && op.kind != OpKind::evict) return;
        for (const Access& access : op.accesses) {
            const offload::Slot& slot = schedule_.slots[access.slot];
            if (slot.tier != Tier::nvme) continue;
            const auto place = static_cast<offload::PlaceId>(slot.offset_bytes);
            if (access.mode == Mode::write) {
                const int64_t version = version_of_step_0 + ticket.period + access.value.step;
                run_.write(store_, place, static_cast<uint64_t>(version));
            } else {
                const PageBuffer buffer(slot.size_bytes);
                const offload::Status status = read_place(store_, place, buffer.span());
                CHECK_TEXT(status.ok(), status.ok() ? "" : status.error().text());
            }
        }
    }

    const Schedule& schedule_;
    CrashRun& run_;
    NvmeStore& store_;
    std::mt19937_64 random_;
    std::vector<Ticket> flying_;
};

struct Case {
    uint32_t path_count = 1;
    Tier opt_tier = Tier::nvme;  // ram: the places of opt are mirrors
};

class CrashSchedule : public testing::TestWithParam<Case> {};

TEST_P(CrashSchedule, ckpt_1_CommitsAreOfOneStep) {
    CrashRun run;
    std::vector<std::string> paths;
    for (uint32_t path = 0; path < GetParam().path_count; path++) {
        paths.push_back(run.disk().make_path(std::string(1, static_cast<char>('a' + path))));
    }
    const Schedule schedule = schedule_of(GetParam().path_count, GetParam().opt_tier);
    const std::vector<PlaceSpec> places = places_of(schedule);
    const auto options = [&](Opening opening) {
        StoreOptions wanted = CrashRun::options(paths, places, opening);
        wanted.block_bytes = 4 * offload::page_bytes;
        return wanted;
    };
    size_t begin = 0;
    {
        auto store = run.open_watched(options(Opening::fresh));
        for (offload::PlaceId place = 0; place < places.size(); place++) {
            if (is_durable(places[place].copies)) run.write(*store, place, first_version);
        }
        run.commit(*store, 0);
        begin = run.disk().notes().size();
        StoreBackend backend(schedule, run, *store);
        int64_t next = 0;
        const auto verdict =
            offload::run(schedule, backend, {.next_period = [&next]() -> std::optional<Period> {
                             const int64_t index = next++;
                             if (index > 4) return std::nullopt;
                             return Period{.index = index, .trains = index < 4};
                         }});
        ASSERT_TRUE(verdict.ok()) << verdict.error().text();
    }
    ASSERT_EQ(run.commits().size(), 6u);
    std::set<uint64_t> kept;
    for (const CrashRun::Made& made : run.commits()) {
        const uint64_t version = made.versions.begin()->second;
        for (const auto& [name, other] : made.versions) EXPECT_EQ(other, version) << name;
        kept.insert(version);
    }
    EXPECT_EQ(kept.size(), 4u) << "the first, and those of the three steps that were applied";
    run.for_every_image(begin, [&](const CrashRun::Found& found) {
        auto store = open_store(options(Opening::resume));
        ASSERT_TRUE(store.ok()) << store.error().text();
        run.expect_commit(**store, found);
    });
    RecordProperty("images", static_cast<int>(run.image_count()));
}

INSTANTIATE_TEST_SUITE_P(Placements, CrashSchedule,
                         testing::Values(Case{1, Tier::nvme}, Case{2, Tier::nvme},
                                         Case{2, Tier::ram}));

}  // namespace
}  // namespace headrace::nvme
