// Goal: a store of one copy of everything is found where it was committed, until it goes on; from
// then on until the next commit nothing is found, and never bytes that no commit named.
// Method: as crash_test.cc; marks tell of a withdrawal that what was sealed may be gone, and, when
// it is done, that it must be.
#include <gtest/gtest.h>

#include <set>

#include "nvme/nvme_store.h"
#include "tests/nvme/crash_fixture.h"

namespace headrace::nvme {
namespace {

using offload::Copies;
using offload::page_bytes;
using offload::PlaceId;
using offload::PlaceSpec;

const std::vector<PlaceSpec>& places() {
    static const std::vector<PlaceSpec> specs = {
        {.name = "hi", .size_bytes = page_bytes, .copies = Copies::one},
        {.name = "opt", .size_bytes = 2 * page_bytes, .copies = Copies::one},
        {.name = "never", .size_bytes = page_bytes, .copies = Copies::one},
        {.name = "scratch", .size_bytes = page_bytes}};
    return specs;
}

// CKPT-1: three saves, the last one after a resume.
TEST(CrashInPlace, ckpt_1_ASaveIsFoundUntilTheRunGoesOn) {
    CrashRun run;
    const std::vector<std::string> paths = {run.disk().make_path("a"), run.disk().make_path("b")};
    const size_t begin = run.disk().notes().size();
    const auto options = [&](Opening opening) {
        return CrashRun::options(paths, places(), opening);
    };
    {
        auto store = run.open_watched(options(Opening::fresh));
        for (uint64_t save = 1; save <= 3; save++) {
            if (save == 3) {
                store.reset();
                store = run.open_watched(options(Opening::resume));
            }
            run.disk().mark(1);  // it need not be found any more
            ASSERT_TRUE(offload::withdraw_and_wait(*store).ok());
            run.disk().mark(0);  // nor may it
            for (const uint64_t step : {10 * save, 10 * save + 1}) {
                for (const PlaceId place : {0u, 1u, 3u}) run.write(*store, place, step);
            }
            run.commit(*store, save);
        }
    }
    std::set<size_t> found_commits;
    size_t none_count = 0;
    run.for_every_image(begin, [&](const CrashRun::Found& found) {
        auto store = open_store(options(Opening::resume));
        if (store.ok()) {
            found_commits.insert(run.expect_commit(**store, found));
            return;
        }
        none_count++;
        EXPECT_EQ(found.at_least, 0u) << store.error().text();
        EXPECT_EQ(store.error().code, offload::ErrorCode::bad_data) << store.error().text();
        store = open_store(options(Opening::fresh));
        ASSERT_TRUE(store.ok()) << store.error().text();
        CrashRun::expect_versions(**store, {});
    });
    EXPECT_EQ(run.commits().size(), 3u);
    EXPECT_EQ(found_commits, (std::set<size_t>{1, 2, 3}));
    EXPECT_GT(none_count, 100u);
}

}  // namespace
}  // namespace headrace::nvme
