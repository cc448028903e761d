// Goal: whatever a drive answers, the bytes are right or one error names path, offset, size and
// remedy; the other transfers end well, two-copy places keep their truth, and nothing hangs.
// Method: seeded faults under both engines, a thousand runs, and every position of a short result;
// a failure prints its seed. Case NVME-9.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::kib;
using offload::page_bytes;
using offload::Status;

constexpr uint64_t block_bytes = 8 * kib;
constexpr uint64_t place_bytes = 2 * block_bytes;
constexpr offload::PlaceId place_count = 6;

// Even places have one copy, odd ones two.
StoreOptions faulty_store(const std::string& path, IoEngine engine) {
    StoreOptions options{.paths = {path}, .run_name = "run"};
    for (offload::PlaceId place = 0; place < place_count; place++) {
        options.places.push_back(
            {.name = "place " + std::to_string(place),
             .size_bytes = place_bytes,
             .copies = place % 2 == 1 ? offload::Copies::two : offload::Copies::scratch});
    }
    options.engine = engine;
    options.block_bytes = block_bytes;
    options.depth = 4;
    return options;
}

std::vector<IoEngine> engines() {
    if (probe_io_uring().ok()) return {IoEngine::uring, IoEngine::threads};
    return {IoEngine::threads};
}

// What the world answers when it is not merely slow.
constexpr std::array hard_errors = {EIO, ENOSPC, EROFS, EDQUOT, ENODEV, EFBIG, EBADF};

// Draws the fate of each request from a seed. Short results may end inside a page; what they leave
// out must come by another request.
class Fates {
  public:
    void begin(uint64_t seed, bool has_hard_errors) {
        std::lock_guard lock(mutex_);
        random_.seed(seed);
        is_on_ = true;
        has_hard_errors_ = has_hard_errors;
    }
    void end() {
        std::lock_guard lock(mutex_);
        is_on_ = false;
    }
    uint64_t fault_count() const { return fault_count_; }

    void install(FileOperations& operations) {
        operations.before_request = [this](const Request& request) { return draw(request); };
        operations.before_submit = [this] {
            std::lock_guard lock(mutex_);
            const uint64_t choice = is_on_ ? random_() % 128 : 127;
            return choice == 0 ? -EBUSY : choice < 32 ? -EINTR : 0;
        };
    }

  private:
    std::optional<Fault> draw(const Request& request) {
        std::lock_guard lock(mutex_);
        if (!is_on_) return {};
        const uint64_t choice = random_() % 64;
        if (choice < 40) return {};
        fault_count_++;
        if (choice < 44) return Fault{.executed_bytes = 0, .result = -EINTR};
        if (choice < 48) return Fault{.executed_bytes = 0, .result = -EAGAIN};
        if (choice < 52) return Fault{.result = -EAGAIN, .ends_submission = true};
        if (choice == 52 && has_hard_errors_) return Fault{.executed_bytes = 0, .result = 0};
        if (choice == 53 && has_hard_errors_) {
            const int error_number = hard_errors[random_() % hard_errors.size()];
            return Fault{.executed_bytes = 0, .result = -error_number};
        }
        const uint64_t count = 1 + random_() % request.memory.size();
        return Fault{.executed_bytes = count / page_bytes * page_bytes,
                     .result = static_cast<int64_t>(count)};
    }

    std::mutex mutex_;
    std::mt19937_64 random_;
    bool is_on_ = false;
    bool has_hard_errors_ = false;
    uint64_t fault_count_ = 0;
};

// Empty, or what the text of an error lacks.
std::string missing_in(const std::string& text, const std::string& path) {
    for (const std::string& part :
         {std::string("the place 'place "), std::string(" bytes at offset "),
          path + "/headrace-run/data"}) {
        if (text.find(part) == std::string::npos) return part;
    }
    if (text.find("0 bytes were moved") != std::string::npos) return "";
    for (const int error_number : hard_errors) {
        if (text.find(strerrorname_np(error_number)) != std::string::npos) return "";
    }
    return "a cause";
}

// What a place must hold: the seed of its last write, or nothing sure after a failed write over the
// only copy.
using Truth = std::array<std::optional<uint64_t>, place_count>;

// All places at once, each with an outcome of its own.
std::array<Status, place_count> move_all(offload::Store& store, Direction direction,
                                         const std::deque<PageBuffer>& memory) {
    std::array<Status, place_count> outcomes;
    Waiter waiter;
    for (offload::PlaceId place = 0; place < place_count; place++) {
        store.start({direction, place, memory[place].span(), [&, place](Status status) {
                         outcomes[place] = std::move(status);
                         waiter.done()({});
                     }});
    }
    waiter.wait_for(place_count);
    return outcomes;
}

// One run: a write and a read of every place under the faults of a seed. The number of errors.
uint64_t run_once(offload::Store& store, const std::string& path, uint64_t seed, Truth& truth) {
    std::deque<PageBuffer> memory;
    uint64_t error_count = 0;
    for (offload::PlaceId place = 0; place < place_count; place++) {
        memory.emplace_back(place_bytes).fill_random(seed * place_count + place);
    }
    const auto written = move_all(store, Direction::write, memory);
    for (offload::PlaceId place = 0; place < place_count; place++) {
        if (written[place].ok()) {
            truth[place] = seed * place_count + place;
            continue;
        }
        error_count++;
        EXPECT_EQ(missing_in(written[place].error().text(), path), "")
            << written[place].error().text() << "\nseed " << seed;
        if (place % 2 == 0) truth[place].reset();
    }
    for (const PageBuffer& buffer : memory) buffer.fill(0xEE);
    const auto read = move_all(store, Direction::read, memory);
    PageBuffer expected(place_bytes);
    for (offload::PlaceId place = 0; place < place_count; place++) {
        if (!read[place].ok()) {
            error_count++;
            EXPECT_EQ(missing_in(read[place].error().text(), path), "")
                << read[place].error().text() << "\nseed " << seed;
        } else if (truth[place]) {
            expected.fill_random(*truth[place]);
            EXPECT_TRUE(expected == memory[place]) << "place " << place << ", seed " << seed;
        }
    }
    return error_count;
}

TEST(Faults, nvme_9_a_thousand_seeded_runs_are_right_or_say_why) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        Fates fates;
        StoreOptions options = faulty_store(folder.path(), engine);
        fates.install(options.operations);
        auto store = open_store(options);
        ASSERT_TRUE(store.ok()) << store.error().text();
        Truth truth;
        uint64_t error_count = 0;
        for (uint64_t seed = 1; seed <= 250; seed++) {  // writes, then reads, two engines
            fates.begin(seed, seed % 2 == 0);
            const uint64_t errors = run_once(**store, folder.path(), seed, truth);
            EXPECT_TRUE(seed % 2 == 0 || errors == 0) << "seed " << seed;
            error_count += errors;
            ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
        }
        EXPECT_GT(fates.fault_count(), 2'000u);
        EXPECT_GT(error_count, 25u);
        fates.end();  // and it goes on
        EXPECT_EQ(run_once(**store, folder.path(), 1000, truth), 0u);
    }
}

// Reads and writes of one block that end early at every position: page by page, and beside them.
TEST(Faults, nvme_9_short_results_at_every_position) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        StoreOptions options = faulty_store(folder.path(), engine);
        std::mutex mutex;
        std::optional<std::pair<Direction, uint64_t>> cut;
        options.operations.before_request = [&](const Request& request) -> std::optional<Fault> {
            std::lock_guard lock(mutex);
            if (!cut || cut->first != request.direction) return {};
            const uint64_t count = cut->second;
            cut.reset();
            return Fault{.executed_bytes = count / page_bytes * page_bytes,
                         .result = static_cast<int64_t>(count)};
        };
        auto store = open_store(options);
        ASSERT_TRUE(store.ok()) << store.error().text();
        PageBuffer source(place_bytes);
        PageBuffer target(place_bytes);
        for (uint64_t page = 0; page <= block_bytes; page += page_bytes) {
            for (const int64_t beside : {-1, 0, 1, 512}) {
                const int64_t count = static_cast<int64_t>(page) + beside;
                if (count <= 0 || count > static_cast<int64_t>(block_bytes)) continue;
                for (const Direction direction : {Direction::write, Direction::read}) {
                    source.fill_random(static_cast<uint64_t>(count));
                    target.fill(0xEE);
                    {
                        std::lock_guard lock(mutex);
                        cut = {direction, static_cast<uint64_t>(count)};
                    }
                    ASSERT_TRUE(write_place(**store, 1, source.span()).ok()) << count;
                    ASSERT_TRUE(read_place(**store, 1, target.span()).ok()) << count;
                    ASSERT_FALSE(cut.has_value()) << "it was met";
                    ASSERT_TRUE(source == target) << "cut at " << count;
                }
            }
        }
    }
}

// One transfer of many meets a hard error; those beside it in the same queue end well.
TEST(Faults, nvme_9_an_error_is_of_one_transfer) {
    for (const IoEngine engine : engines()) {
        for (const int error_number : hard_errors) {
            TempFolder folder;
            StoreOptions options = faulty_store(folder.path(), engine);
            std::mutex mutex;
            const std::byte* victim = nullptr;
            options.operations.before_request =
                [&](const Request& request) -> std::optional<Fault> {
                std::lock_guard lock(mutex);
                const bool is_hit = victim != nullptr && request.memory.data() >= victim &&
                                    request.memory.data() < victim + place_bytes;
                if (!is_hit) return {};
                return Fault{.executed_bytes = 0, .result = -error_number};
            };
            auto store = open_store(options);
            ASSERT_TRUE(store.ok()) << store.error().text();
            std::deque<PageBuffer> memory;
            for (uint64_t i = 0; i < place_count; i++) memory.emplace_back(place_bytes);
            {
                std::lock_guard lock(mutex);
                victim = memory[3].span().data();
            }
            const auto outcomes = move_all(**store, Direction::write, memory);
            for (offload::PlaceId place = 0; place < place_count; place++) {
                EXPECT_EQ(outcomes[place].ok(), place != 3) << place;
            }
            ASSERT_FALSE(outcomes[3].ok());
            EXPECT_EQ(missing_in(outcomes[3].error().text(), folder.path()), "")
                << outcomes[3].error().text();
            EXPECT_EQ((*store)->statistics(0).failed_count, 2u) << "both of its blocks";
        }
    }
}

// The kernel takes a submission in pieces: what is prepared behind a request that it cannot take is
// submitted again, in order, and nothing is taken twice.
TEST(Faults, nvme_9_submissions_that_are_partly_taken) {
    if (!probe_io_uring().ok()) GTEST_SKIP() << "io_uring is forbidden here";
    TempFolder folder;
    StoreOptions options = faulty_store(folder.path(), IoEngine::uring);
    options.depth = 12;
    std::mutex mutex;
    uint64_t request_count = 0;
    options.operations.before_request = [&](const Request& request) -> std::optional<Fault> {
        std::lock_guard lock(mutex);
        if (request.memory.size() < block_bytes || ++request_count % 3 != 0) return {};
        return Fault{.result = -EAGAIN, .ends_submission = true};
    };
    auto store = open_store(options);
    ASSERT_TRUE(store.ok()) << store.error().text();
    Truth truth;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ASSERT_EQ(run_once(**store, folder.path(), seed, truth), 0u) << "seed " << seed;
    }
    EXPECT_GT(request_count, 20u * 24u);
}

}  // namespace
}  // namespace headrace::nvme
