// Goal: a ring goes on without what the kernel refuses, and a ring that breaks fails loudly instead
// of hanging. Method: locked-memory limits in a child, and submissions that fail. NVME-7, PIN-1.
#include "nvme/ring.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <fstream>

#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::kib;
using offload::mib;

StoreOptions ring_options(const std::string& path) {
    StoreOptions options{.paths = {path}, .run_name = "ring"};
    options.places = {{.name = "place", .size_bytes = mib, .copies = offload::Copies::scratch}};
    options.engine = IoEngine::uring;
    options.block_bytes = 64 * kib;
    return options;
}

bool has_io_uring() {
    return probe_io_uring().ok();
}

bool round_trips(NvmeStore& store, const PageBuffer& source, const PageBuffer& target) {
    source.fill_random(4);
    return write_place(store, 0, source.first(mib)).ok() &&
           read_place(store, 0, target.first(mib)).ok() &&
           std::ranges::equal(source.first(mib), target.first(mib));
}

// An ordinary user (root is not limited) with a limit of 64 KiB. 0: all as promised.
int use_little_locked_memory(const std::string& path) {
    const rlimit limit{.rlim_cur = 64 * kib, .rlim_max = 64 * kib};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 1;
    if (getuid() == 0) {
        if (chown(path.c_str(), 65534, 65534) != 0 || setgroups(0, nullptr) != 0) return 2;
        if (setgid(65534) != 0 || setuid(65534) != 0) return 3;
    }
    PageBuffer source(mib);
    PageBuffer target(mib);
    StoreOptions options = ring_options(path);
    options.buffers = {source.span(), target.span()};
    options.registration = Registration::required;
    auto strict = open_store(options);
    if (strict.ok()) return 4;
    for (const char* part : {"2097152 bytes", "65536 bytes (soft)", "ulimit -l"}) {
        if (strict.error().text().find(part) == std::string::npos) return 5;
    }
    if (std::filesystem::exists(path + "/headrace-ring")) return 6;
    options.registration = Registration::preferred;
    auto store = open_store(options);
    if (!store) return 7;
    if ((*store)->engine_name() != "io_uring" || (*store)->registered_bytes() != 0) return 8;
    if ((*store)->notes().size() != 1) return 9;
    if ((*store)->notes()[0].find("unregistered") == std::string::npos) return 10;
    return round_trips(**store, source, target) ? 0 : 11;
}

TEST(Ring, nvme_7_little_locked_memory_goes_on_unregistered) {
    if (!has_io_uring()) GTEST_SKIP() << "io_uring is forbidden here";
    TempFolder folder;
    const std::string path = folder.make("path");
    std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
    EXPECT_EQ(run_in_child([&] { return use_little_locked_memory(path); }), 0);
}

uint64_t pinned_bytes() {
    std::ifstream status("/proc/self/status");
    std::string word;
    while (status >> word) {
        uint64_t pinned_kib = 0;
        if (word == "VmPin:" && status >> pinned_kib) return pinned_kib * kib;
    }
    return 0;
}

TEST(Ring, pin_1_registering_pins_what_was_asked_and_no_more) {
    if (!has_io_uring()) GTEST_SKIP() << "io_uring is forbidden here";
    TempFolder folder;
    std::vector<PageBuffer> slabs;
    StoreOptions options = ring_options(folder.path());
    uint64_t wanted_bytes = 0;
    for (const uint64_t size_bytes : {36 * mib, 18 * mib, 10'000 * kib, 4 * kib}) {
        slabs.emplace_back(size_bytes);
        options.buffers.push_back(slabs.back().span());
        wanted_bytes += size_bytes;
    }
    const uint64_t before = pinned_bytes();
    auto store = open_store(options);
    ASSERT_TRUE(store.ok()) << store.error().text();
    if ((*store)->registered_bytes() == 0) GTEST_SKIP() << (*store)->notes()[0];
    EXPECT_EQ((*store)->registered_bytes(), wanted_bytes);
    const auto grown = static_cast<double>(pinned_bytes() - before);
    EXPECT_GE(grown, static_cast<double>(wanted_bytes));
    EXPECT_LE(grown, 1.02 * static_cast<double>(wanted_bytes));
    EXPECT_TRUE(round_trips(**store, slabs[0], slabs[1]));
}

TEST(Ring, SubmissionsThatFailForAWhileAreTriedAgain) {
    if (!has_io_uring()) GTEST_SKIP() << "io_uring is forbidden here";
    TempFolder folder;
    std::atomic<int> call_count = 0;
    StoreOptions options = ring_options(folder.path());
    options.operations.before_submit = [&] {
        const int call = call_count++;
        return call % 3 == 0 ? 0 : call % 3 == 1 ? -EINTR : -EAGAIN;
    };
    PageBuffer source(mib);
    PageBuffer target(mib);
    auto store = open_store(options);
    ASSERT_TRUE(store.ok());
    EXPECT_TRUE(round_trips(**store, source, target));
    EXPECT_GT(call_count, 3);
}

// Everything in flight is drained, everything else fails with the same words; nothing hangs.
TEST(Ring, ABrokenRingFailsEveryTransferAndEnds) {
    if (!has_io_uring()) GTEST_SKIP() << "io_uring is forbidden here";
    for (const int last_good : {0, 1, 3}) {
        TempFolder folder;
        std::atomic<int> call_count = 0;
        StoreOptions options = ring_options(folder.path());
        options.operations.before_submit = [&, last_good] {
            return call_count++ < last_good ? 0 : -EBADF;
        };
        PageBuffer source(mib);
        Waiter waiter;
        auto store = open_store(options);
        ASSERT_TRUE(store.ok());
        (*store)->start({Direction::write, 0, source.span(), waiter.done()});
        waiter.wait_for(1);
        (*store)->start({Direction::write, 0, source.span(), waiter.done()});
        store->reset();
        EXPECT_EQ(waiter.count(), 2u);
        EXPECT_NE(waiter.error().find("cannot submit"), std::string::npos) << waiter.error();
        EXPECT_NE(waiter.error().find(folder.path()), std::string::npos);
    }
}

}  // namespace
}  // namespace headrace::nvme
