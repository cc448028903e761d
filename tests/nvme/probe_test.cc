// Goal: a probe measures what it says on both engines, over one path and two, ends when told to,
// passes errors on, and leaves nothing behind.
// Method: real files of a few megabytes; the figures themselves are not judged, the counts are.
#include "nvme/probe.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>

#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::Error;
using offload::ErrorCode;
using offload::kib;
using offload::mib;
using offload::Result;
using ::testing::HasSubstr;

class ProbeTest : public testing::TestWithParam<IoEngine> {
  protected:
    ProbeOptions options() {
        ProbeOptions options{.paths = {folder_.path()},
                             .run_name = "probe",
                             .size_bytes = 8 * mib,
                             .block_bytes = 64 * kib,
                             .depth = 4,
                             .engine = GetParam(),
                             .pool = pool_.span()};
        options.operations.before_request = [this](const Request& request) -> std::optional<Fault> {
            (request.direction == Direction::read ? reads_ : writes_) += request.memory.size();
            if (request.direction == Direction::write && writes_ > fail_writes_from_) {
                return Fault{.executed_bytes = 0, .result = -EIO};
            }
            return std::nullopt;
        };
        return options;
    }
    bool is_empty() { return std::filesystem::is_empty(folder_.path()); }

    TempFolder folder_;
    PageBuffer pool_{4 * mib};
    std::atomic<uint64_t> reads_{0};
    std::atomic<uint64_t> writes_{0};
    std::atomic<uint64_t> fail_writes_from_{std::numeric_limits<uint64_t>::max()};
};

TEST_P(ProbeTest, moves_what_it_says_and_leaves_nothing_behind) {
    {
        const auto probe = DriveProbe::open(options());
        ASSERT_TRUE(probe.ok()) << probe.error().text();
        const uint64_t first_bytes = (*probe)->written_bytes();
        EXPECT_GE(first_bytes, 8 * mib) << "written once before anything is measured";
        reads_ = 0;
        writes_ = 0;
        const auto measured =
            (*probe)->measure({.pattern = Pattern::read, .bytes_min = 20 * mib, .seconds_min = 0});
        ASSERT_TRUE(measured.ok()) << measured.error().text();
        EXPECT_EQ(measured->read_bytes, reads_.load()) << "real reads, each counted once";
        EXPECT_GE(measured->read_bytes, 20 * mib);
        EXPECT_LE(measured->read_bytes, 20 * mib + 8 * 64 * kib);
        EXPECT_EQ(measured->write_bytes, 0u);
        EXPECT_EQ((*probe)->written_bytes(), first_bytes);
        EXPECT_GT(measured->seconds, 0.0);
        EXPECT_GE(measured->cpu_seconds, 0.0);
        EXPECT_DOUBLE_EQ(measured->bytes_per_s(),
                         static_cast<double>(measured->read_bytes) / measured->seconds);
        EXPECT_TRUE(is_empty()) << "what kills the process now leaves nothing either";
    }
    EXPECT_TRUE(is_empty());
}

TEST_P(ProbeTest, takes_turns_so_that_all_patterns_see_the_same_minute) {
    const auto probe = DriveProbe::open(options());
    ASSERT_TRUE(probe.ok()) << probe.error().text();
    reads_ = 0;
    writes_ = 0;
    const auto measured = (*probe)->measure_in_turns(0.1);
    ASSERT_TRUE(measured.ok()) << measured.error().text();
    const auto& [read, write, mixed] = *measured;
    EXPECT_EQ(read.write_bytes, 0u);
    EXPECT_EQ(write.read_bytes, 0u);
    EXPECT_EQ(read.read_bytes + mixed.read_bytes, reads_.load());
    EXPECT_EQ(write.write_bytes + mixed.write_bytes, writes_.load());
    for (const Measured& one : {read, write, mixed}) {
        EXPECT_GE(one.seconds, 0.1) << "of all its turns";
        EXPECT_GT(one.bytes_per_s(), 0.0);
    }
    fail_writes_from_ = 0;
    EXPECT_FALSE((*probe)->measure_in_turns(0.1).ok());
}

TEST_P(ProbeTest, mixes_as_a_step_does) {
    const auto probe = DriveProbe::open(options());
    ASSERT_TRUE(probe.ok()) << probe.error().text();
    const uint64_t before = (*probe)->written_bytes();
    for (const Buffers buffers : {Buffers::small_pool, Buffers::whole_pool}) {
        const auto measured = (*probe)->measure({.pattern = Pattern::mixed,
                                                 .buffers = buffers,
                                                 .bytes_min = 30 * mib,
                                                 .seconds_min = 0});
        ASSERT_TRUE(measured.ok()) << measured.error().text();
        const double ratio =
            static_cast<double>(measured->read_bytes) / static_cast<double>(measured->write_bytes);
        EXPECT_NEAR(ratio, 16.0 / 14, 0.1);
    }
    EXPECT_GT((*probe)->written_bytes(), before + 2 * 13 * mib);
}

TEST_P(ProbeTest, two_paths_take_blocks_by_their_weights) {
    const TempFolder other;
    ProbeOptions both = options();
    both.paths = {folder_.path(), other.path()};
    both.weights = {3, 1};
    const auto probe = DriveProbe::open(both);
    ASSERT_TRUE(probe.ok()) << probe.error().text();
    const auto measured =
        (*probe)->measure({.pattern = Pattern::write, .bytes_min = 64 * mib, .seconds_min = 0});
    ASSERT_TRUE(measured.ok()) << measured.error().text();
    const auto written = [&](size_t path) {
        return static_cast<double>((*probe)->store().statistics(path).write_bytes);
    };
    EXPECT_NEAR(written(0) / written(1), 3, 0.1);
}

TEST_P(ProbeTest, ends_at_its_time_and_when_told_to_stop) {
    std::atomic<bool> is_told{false};
    ProbeOptions stoppable = options();
    stoppable.should_stop = [&is_told] { return is_told.load(); };
    {
        const auto probe = DriveProbe::open(stoppable);
        ASSERT_TRUE(probe.ok()) << probe.error().text();
        const auto measured = (*probe)->measure({.bytes_min = 1 << 30, .seconds_max = 0.1});
        ASSERT_TRUE(measured.ok()) << measured.error().text();
        EXPECT_NEAR(measured->seconds, 0.1, 0.09);
        is_told = true;
        const auto stopped =
            (*probe)->measure({.bytes_min = 1ull << 40, .seconds_min = 60, .seconds_max = 60});
        ASSERT_FALSE(stopped.ok());
        EXPECT_EQ(stopped.error().code, ErrorCode::stopped);
    }
    EXPECT_TRUE(is_empty());
}

TEST_P(ProbeTest, a_drive_that_fails_is_an_error_that_names_the_file) {
    {
        const auto probe = DriveProbe::open(options());
        ASSERT_TRUE(probe.ok()) << probe.error().text();
        fail_writes_from_ = writes_ + 1 * mib;
        const auto measured = (*probe)->measure({.pattern = Pattern::write, .bytes_min = 64 * mib});
        ASSERT_FALSE(measured.ok());
        EXPECT_THAT(measured.error().text(), HasSubstr("EIO"));
        EXPECT_THAT(measured.error().text(), HasSubstr(folder_.path()));
    }
    EXPECT_TRUE(is_empty());
    fail_writes_from_ = writes_ + 1 * mib;
    EXPECT_FALSE(DriveProbe::open(options()).ok()) << "while it is written for the first time";
    EXPECT_TRUE(is_empty());
}

TEST_P(ProbeTest, samples_of_writing_are_without_a_gap) {
    const auto probe = DriveProbe::open(options());
    ASSERT_TRUE(probe.ok()) << probe.error().text();
    const uint64_t before = (*probe)->written_bytes();
    const auto samples = (*probe)->write_until_it_falls(1 * mib);
    ASSERT_TRUE(samples.ok()) << samples.error().text();
    ASSERT_GE(samples->size(), 3u) << "a second at least";
    uint64_t expected = before;
    for (const WriteSample& sample : *samples) {
        EXPECT_EQ(sample.written_before_bytes, expected);
        EXPECT_GE(sample.seconds, 0.25);
        expected += sample.size_bytes;
    }
    EXPECT_GE((*probe)->written_bytes(), expected);
}

TEST_P(ProbeTest, a_quick_look_takes_a_second_and_knows_every_rate) {
    PageBuffer pool(64 * mib);
    ProbeOptions quick = options();
    quick.pool = pool.span();
    quick.block_bytes = 1 * mib;
    const auto begin = std::chrono::steady_clock::now();
    const Result<Drive> drive = quick_measure(quick);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ASSERT_TRUE(drive.ok()) << drive.error().text();
    EXPECT_GT(drive->read_bytes_per_s, 0);
    EXPECT_GT(drive->write_burst_bytes_per_s, 0);
    EXPECT_EQ(drive->write_sustained_bytes_per_s, drive->write_burst_bytes_per_s);
    EXPECT_GT(drive->mixed_bytes_per_s, 0);
    EXPECT_FALSE(drive->has_fallen);
    EXPECT_LT(seconds, 5) << "1.5 where nothing else uses the drive";
    EXPECT_TRUE(is_empty());
}

// What lies in the file is known after any mix of transfers, in the memory that another probe used.
TEST_P(ProbeTest, speed_4_every_block_is_verified_and_a_changed_one_is_found) {
    const auto probe = DriveProbe::open(options());
    ASSERT_TRUE(probe.ok()) << probe.error().text();
    ProbeOptions other_options = options();
    other_options.run_name = "other";
    const auto other = DriveProbe::open(other_options);
    ASSERT_TRUE(other.ok()) << other.error().text();
    for (const Pattern pattern : {Pattern::mixed, Pattern::read, Pattern::write, Pattern::mixed}) {
        for (const auto& one : {probe->get(), other->get()}) {
            ASSERT_TRUE(
                one->measure({.pattern = pattern, .bytes_min = 5 * mib, .seconds_min = 0}).ok());
        }
    }
    ASSERT_TRUE((*probe)->read_raw({.bytes_min = 20 * mib, .seconds_min = 0}).ok());
    for (const auto& one : {probe->get(), other->get()}) {
        const auto verified = one->verify();
        ASSERT_TRUE(verified.ok()) << verified.error().text();
        EXPECT_EQ(*verified, 8 * mib);
    }
    {
        std::fstream file((*probe)->store().data_file(0),
                          std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(3 * mib + 12345);
        const char before = static_cast<char>(file.peek());
        file.put(static_cast<char>(before ^ 1));
        ASSERT_TRUE(file.flush().good());
    }
    const auto damaged = (*probe)->verify();
    ASSERT_FALSE(damaged.ok());
    EXPECT_EQ(damaged.error().code, ErrorCode::bad_data);
    EXPECT_THAT(damaged.error().text(), HasSubstr("block "));
    EXPECT_THAT(damaged.error().text(), HasSubstr(folder_.path()));
    EXPECT_TRUE((*other)->verify().ok());
}

TEST_P(ProbeTest, speed_4_the_raw_read_takes_the_file_from_its_beginning_to_its_end) {
    const auto probe = DriveProbe::open(options());
    ASSERT_TRUE(probe.ok()) << probe.error().text();
    reads_ = 0;
    const auto raw = (*probe)->read_raw({.bytes_min = 20 * mib, .seconds_min = 0});
    ASSERT_TRUE(raw.ok()) << raw.error().text();
    EXPECT_EQ(reads_.load(), 0u) << "nothing of the store";
    EXPECT_GE(raw->read_bytes, 20 * mib);
    EXPECT_LE(raw->read_bytes, 20 * mib + 4 * 64 * kib);
    EXPECT_GT(raw->bytes_per_s(), 0);
    std::filesystem::resize_file((*probe)->store().data_file(0), 0);
    const auto gone = (*probe)->read_raw({});
    ASSERT_FALSE(gone.ok());
    EXPECT_THAT(gone.error().text(), HasSubstr(folder_.path()));
}

TEST_P(ProbeTest, speed_4_what_no_drive_served_is_counted) {
    const auto share_of = [&](ProbeOptions from) {
        const auto probe = DriveProbe::open(std::move(from));
        CHECK(probe.ok());
        const auto measured = (*probe)->measure({.bytes_min = 20 * mib, .seconds_min = 0});
        const auto raw = (*probe)->read_raw({.bytes_min = 20 * mib, .seconds_min = 0});
        CHECK(measured.ok() && raw.ok());
        EXPECT_EQ(measured->cached_share.has_value(), raw->cached_share.has_value());
        const auto both = std::pair(measured->cached_share, raw->cached_share);
        return std::pair((*probe)->is_buffered(), both);
    };
    const auto [is_buffered, shares] = share_of(options());
    if (!shares.first) GTEST_SKIP() << "this kernel keeps no account";
    if (!is_buffered) {
        EXPECT_LT(*shares.first, 0.01);
        EXPECT_LT(*shares.second, 0.01);
    }
    const std::string memory = "/dev/shm";
    if (!std::filesystem::is_directory(memory)) GTEST_SKIP() << "no file system in memory";
    ProbeOptions in_memory = options();
    in_memory.paths = {memory};
    in_memory.run_name = "probe" + std::to_string(getpid());
    const auto [is_memory_buffered, memory_shares] = share_of(in_memory);
    EXPECT_TRUE(is_memory_buffered);
    EXPECT_GT(*memory_shares.first, 0.99);
    EXPECT_GT(*memory_shares.second, 0.99);
}

INSTANTIATE_TEST_SUITE_P(Engines, ProbeTest,
                         testing::Values(IoEngine::threads, IoEngine::automatic),
                         [](const auto& engine) {
                             return engine.param == IoEngine::threads ? "threads" : "automatic";
                         });

TEST(ProbeOptionsTest, a_size_that_cannot_keep_the_depth_is_refused_with_the_least) {
    const TempFolder folder;
    const PageBuffer pool(4 * mib);
    const auto probe = DriveProbe::open({.paths = {folder.path()},
                                         .run_name = "probe",
                                         .size_bytes = 15 * 64 * kib,
                                         .block_bytes = 64 * kib,
                                         .depth = 4,
                                         .pool = pool.span()});
    ASSERT_FALSE(probe.ok());
    EXPECT_EQ(probe.error().code, ErrorCode::usage);
    EXPECT_THAT(probe.error().text(), HasSubstr("the least is 1.00 MiB"));
}

TEST(ProbeOptionsTest, patterns_have_names) {
    for (const Pattern pattern : {Pattern::read, Pattern::write, Pattern::mixed}) {
        const auto parsed = parse_pattern(name_of(pattern));
        ASSERT_TRUE(parsed.ok());
        EXPECT_EQ(*parsed, pattern);
    }
    EXPECT_THAT(parse_pattern("reed").error().text(), HasSubstr("read, write and mixed"));
}

}  // namespace
}  // namespace headrace::nvme
