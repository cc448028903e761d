#include "nvme/probe.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <latch>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "nvme/process_io.h"
#include "offload/check.h"
#include "offload/page_sum.h"

namespace headrace::nvme {

using offload::Direction;
using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;
using Clock = std::chrono::steady_clock;

namespace {

// Per path: twice the depth, so that the queue of a drive always has the next block; the small pool
// of one drive is exactly its depth.
constexpr uint32_t blocks_ahead = 2;

constexpr double sample_seconds = 0.25;
constexpr int turn_count_max = 5;
constexpr double turn_seconds_min = 0.1;
constexpr double seconds_min = 1;
constexpr double seconds_after_fall = 2;
constexpr uint64_t quick_file_bytes = 64 * offload::mib;
constexpr double quick_seconds = 0.45;
constexpr uint64_t quick_pool_bytes = 256 * offload::mib;  // of a run's memory, which may be large

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

double cpu_seconds_now() {
    rusage usage{};
    CHECK_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

uint32_t window_of(const ProbeOptions& options, Buffers buffers) {
    const auto path_count = static_cast<uint32_t>(options.paths.size());
    if (buffers == Buffers::small_pool && path_count == 1) return options.depth;
    return blocks_ahead * options.depth * path_count;
}

// Zeros would flatter a drive that compresses, and memory that was never touched the reads.
void fill_with_noise(std::span<std::byte> memory) {
    uint64_t state = 1;
    for (size_t i = 0; i + sizeof(state) <= memory.size(); i += sizeof(state)) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::memcpy(memory.data() + i, &state, sizeof(state));
    }
}

// A share of what was read, by the kernel's account of the time between.
std::optional<double> cached_share_of(uint64_t read_bytes, const ProcessIo& moved) {
    if (read_bytes == 0 || !moved.is_known) return std::nullopt;
    const double served = static_cast<double>(moved.read_bytes) / static_cast<double>(read_bytes);
    return std::max(0.0, 1 - served);
}

// A descriptor of its own, closed again.
class RawFile {
  public:
    RawFile(const std::string& path, int flags) : descriptor_(::open(path.c_str(), flags)) {}
    ~RawFile() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    RawFile(const RawFile&) = delete;
    RawFile& operator=(const RawFile&) = delete;
    int descriptor() const { return descriptor_; }

  private:
    int descriptor_ = -1;
};

}  // namespace

std::string_view name_of(Pattern pattern) {
    switch (pattern) {
        case Pattern::read: return "read";
        case Pattern::write: return "write";
        case Pattern::mixed: return "mixed";
    }
    CHECK_TEXT(false, "not a pattern");
    return "";
}

Result<Pattern> parse_pattern(std::string_view name) {
    for (const Pattern pattern : {Pattern::read, Pattern::write, Pattern::mixed}) {
        if (name == name_of(pattern)) return pattern;
    }
    return Error{ErrorCode::usage, fmt::format("'{}' is not a pattern", name),
                 "the patterns are read, write and mixed"};
}

double Measured::bytes_per_s() const {
    CHECK_GT(seconds, 0.0);
    return static_cast<double>(read_bytes + write_bytes) / seconds;
}

double Measured::cpu_seconds_per_gb() const {
    CHECK_GT(read_bytes + write_bytes, 0u);
    return cpu_seconds / (static_cast<double>(read_bytes + write_bytes) / 1e9);
}

// One measurement. A lane is one of the blocks in flight: it has buffers of its own, and where its
// transfer ends its next one starts, on the thread that the store calls back on.
class DriveProbe::Run {
  public:
    Run(const ProbeOptions& options, NvmeStore& store, const Load& load,
        std::vector<uint32_t>& chunk_of_place)
        : store_(store),
          load_(load),
          block_bytes_(options.block_bytes),
          pool_(options.pool),
          lanes_(window_of(options, load.buffers)),
          is_busy_(store.places().size(), false),
          chunk_of_buffer_(pool_.size() / block_bytes_),
          chunk_of_place_(chunk_of_place) {
        const auto place_count = static_cast<uint32_t>(store.places().size());
        const bool is_mixed = load.pattern == Pattern::mixed;
        const uint32_t read_end = is_mixed ? place_count / 2 : place_count;
        reads_ = {.begin = 0, .end = read_end, .next = 0};
        writes_ = {.begin = is_mixed ? read_end : 0, .end = place_count, .next = 0};
        writes_.next = writes_.begin;
        const uint64_t buffer_count = pool_.size() / block_bytes_;
        buffers_per_lane_ = load.buffers == Buffers::small_pool ? 1 : buffer_count / lanes_.size();
        CHECK_GE(buffers_per_lane_, 1u);
        CHECK_LE(buffers_per_lane_ * lanes_.size(), buffer_count);
        CHECK_GE(reads_.end - reads_.begin, lanes_.size());
        CHECK_GE(writes_.end - writes_.begin, lanes_.size());
        fill_with_noise(pool_);
        std::iota(chunk_of_buffer_.begin(), chunk_of_buffer_.end(), 0u);
    }

    // Until the load says so, `watch` (bytes and seconds so far, ten times a second) returns true,
    // `should_stop` does, or the drive fails. Everything in flight is over when it returns.
    Result<Measured> go(const std::function<bool(uint64_t, double)>& watch,
                        const std::function<bool()>& should_stop) {
        const ProcessIo io_before = read_process_io();
        const double cpu_before = cpu_seconds_now();
        begin_ = Clock::now();
        for (size_t lane = 0; lane < lanes_.size(); lane++) start(lane);
        bool was_stopped = false;
        std::unique_lock lock(mutex_);
        while (in_flight_count_ > 0) {
            changed_.wait_for(lock, std::chrono::milliseconds(50));
            if (is_over_) continue;
            const uint64_t bytes = read_bytes_ + write_bytes_;
            const double seconds = seconds_since(begin_);
            lock.unlock();  // neither may hold up the drive
            was_stopped = should_stop && should_stop();
            const bool is_enough = was_stopped || (watch && watch(bytes, seconds));
            lock.lock();
            is_over_ |= is_enough;
        }
        CHECK(is_over_);
        if (!outcome_.ok()) return outcome_.error();
        if (was_stopped) return Error{ErrorCode::stopped, "the measurement was stopped", ""};
        return Measured{
            .read_bytes = read_bytes_,
            .write_bytes = write_bytes_,
            .seconds = std::chrono::duration<double>(end_ - begin_).count(),
            .cpu_seconds = cpu_seconds_now() - cpu_before,
            .cached_share = cached_share_of(read_bytes_, read_process_io() - io_before)};
    }

  private:
    struct Range {  // of places, gone through in a circle
        uint32_t begin = 0;
        uint32_t end = 0;
        uint32_t next = 0;
    };
    struct Lane {
        uint64_t transfer_count = 0;
        uint64_t buffer = 0;
        offload::PlaceId place = 0;
        bool is_read = false;
    };

    // Reads are to writes as in a step, at every moment.
    bool is_reads_turn() const {
        if (load_.pattern != Pattern::mixed) return load_.pattern == Pattern::read;
        return read_count_ * step_write_bytes_per_parameter <=
               write_count_ * step_read_bytes_per_parameter;
    }

    // The next place that no transfer is using: on unequal drives the circle may come round before
    // a slow block is done. There is one, as places are no fewer than lanes.
    offload::PlaceId take_place(Range& range) {
        for (uint32_t tried = range.begin; tried < range.end; tried++) {
            const offload::PlaceId place = range.next;
            range.next = place + 1 == range.end ? range.begin : place + 1;
            if (is_busy_[place]) continue;
            is_busy_[place] = true;
            return place;
        }
        CHECK_TEXT(false, "every place is in use");
        return 0;
    }

    void start(size_t index) {
        offload::Transfer transfer;
        {
            std::lock_guard lock(mutex_);
            Lane& lane = lanes_[index];
            lane.is_read = is_reads_turn();
            (lane.is_read ? read_count_ : write_count_)++;
            lane.place = take_place(lane.is_read ? reads_ : writes_);
            const uint64_t turn = lane.transfer_count++ % buffers_per_lane_;
            lane.buffer = turn * lanes_.size() + index;
            if (!lane.is_read) chunk_of_place_[lane.place] = chunk_of_buffer_[lane.buffer];
            transfer.direction = lane.is_read ? Direction::read : Direction::write;
            transfer.place = lane.place;
            transfer.memory = pool_.subspan(lane.buffer * block_bytes_, block_bytes_);
            in_flight_count_++;
        }
        transfer.done = [this, index](Status status) { finish(index, std::move(status)); };
        store_.start(std::move(transfer));
    }

    void finish(size_t index, Status status) {
        const double seconds = seconds_since(begin_);
        bool goes_on = false;
        {
            std::lock_guard lock(mutex_);
            const Lane& lane = lanes_[index];
            CHECK(is_busy_[lane.place]);
            is_busy_[lane.place] = false;
            if (lane.is_read) chunk_of_buffer_[lane.buffer] = chunk_of_place_[lane.place];
            if (!status.ok() && outcome_.ok()) outcome_ = std::move(status);
            (lane.is_read ? read_bytes_ : write_bytes_) += block_bytes_;
            const bool has_enough =
                read_bytes_ + write_bytes_ >= load_.bytes_min && seconds >= load_.seconds_min;
            is_over_ |= !outcome_.ok() || has_enough || seconds >= load_.seconds_max;
            goes_on = !is_over_;
        }
        if (goes_on) start(index);
        // Last: once nothing is in flight, this object may be gone.
        std::lock_guard lock(mutex_);
        CHECK_GT(in_flight_count_, 0u);
        in_flight_count_--;
        if (in_flight_count_ > 0) return;
        end_ = Clock::now();
        changed_.notify_all();
    }

    NvmeStore& store_;
    const Load load_;
    const uint64_t block_bytes_;
    const std::span<std::byte> pool_;
    uint64_t buffers_per_lane_ = 0;
    Clock::time_point begin_{};
    Clock::time_point end_{};

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Lane> lanes_;
    std::vector<bool> is_busy_;              // per place
    std::vector<uint32_t> chunk_of_buffer_;  // of the pool: which noise it holds
    std::vector<uint32_t>& chunk_of_place_;
    Range reads_;
    Range writes_;
    uint64_t read_count_ = 0;
    uint64_t write_count_ = 0;
    uint64_t read_bytes_ = 0;
    uint64_t write_bytes_ = 0;
    size_t in_flight_count_ = 0;
    bool is_over_ = false;
    Status outcome_;
};

DriveProbe::DriveProbe(ProbeOptions options) : options_(std::move(options)) {}

DriveProbe::~DriveProbe() {
    if (!store_) return;
    store_.reset();
    // Only what unlink_names left. Nobody is left to tell; the next probe of this name replaces
    // what could not be removed.
    static_cast<void>(remove_store(options_.paths, options_.run_name));
}

uint64_t DriveProbe::pool_bytes_min(const ProbeOptions& options) {
    CHECK(!options.paths.empty());
    return window_of(options, Buffers::whole_pool) * options.block_bytes;
}

uint64_t DriveProbe::size_bytes() const {
    return store_->places().size() * options_.block_bytes;
}

Result<std::unique_ptr<DriveProbe>> DriveProbe::open(ProbeOptions options) {
    CHECK(!options.paths.empty());
    CHECK_GE(options.pool.size(), pool_bytes_min(options));
    const uint64_t place_count = options.size_bytes / options.block_bytes;
    // Reads and writes of a mix have places of their own, as many as can be in flight.
    const uint64_t place_count_min = 2 * window_of(options, Buffers::whole_pool);
    if (place_count < place_count_min) {
        return Error{ErrorCode::usage,
                     fmt::format("{} is too small to measure on {} paths with {} blocks of {} in "
                                 "flight on each",
                                 offload::format_bytes(options.size_bytes), options.paths.size(),
                                 options.depth, offload::format_bytes(options.block_bytes)),
                     fmt::format("the least is {}",
                                 offload::format_bytes(place_count_min * options.block_bytes))};
    }
    StoreOptions wanted{.paths = options.paths,
                        .run_name = options.run_name,
                        .weights = options.weights,
                        .engine = options.engine,
                        .depth = options.depth,
                        .block_bytes = options.block_bytes,
                        .buffers = {options.pool},
                        .stuck_after = options.stuck_after,
                        .on_stuck = options.on_stuck,
                        .operations = options.operations};
    for (uint64_t place = 0; place < place_count; place++) {
        wanted.places.push_back({.name = fmt::format("block {}", place),
                                 .size_bytes = options.block_bytes,
                                 .copies = offload::Copies::scratch});
    }
    Result<std::unique_ptr<NvmeStore>> store = open_store(std::move(wanted));
    if (!store) return store.error();
    const size_t store_place_count = (*store)->places().size();
    std::unique_ptr<DriveProbe> probe(new DriveProbe(std::move(options)));
    probe->store_ = std::move(*store);
    probe->chunk_of_place_.resize(store_place_count);
    if (Status status = probe->store_->unlink_names(); !status) return status.error();
    // All places once, in turn: what is read or verified later was written.
    const double no_limit = std::numeric_limits<double>::infinity();
    const Result<Measured> first = probe->run({.pattern = Pattern::write,
                                               .bytes_min = probe->size_bytes(),
                                               .seconds_min = 0,
                                               .seconds_max = no_limit},
                                              {});
    if (!first) return first.error();
    return probe;
}

Result<Measured> DriveProbe::run(const Load& load,
                                 const std::function<bool(uint64_t, double)>& watch) {
    Run run(options_, *store_, load, chunk_of_place_);
    Result<Measured> measured = run.go(watch, options_.should_stop);
    if (!measured) return measured;
    written_bytes_ += measured->write_bytes;
    return measured;
}

Result<MeasuredInTurns> DriveProbe::measure_in_turns(double seconds) {
    CHECK_GT(seconds, 0.0);
    const int turn_count =
        std::clamp(static_cast<int>(seconds / turn_seconds_min), 1, turn_count_max);
    const double turn_s = seconds / turn_count;
    MeasuredInTurns sums;
    for (int turn = 0; turn < turn_count; ++turn) {
        for (const auto& [pattern, sum] :
             {std::pair(Pattern::read, &sums.read), std::pair(Pattern::write, &sums.write),
              std::pair(Pattern::mixed, &sums.mixed)}) {
            const Result<Measured> one =
                measure({.pattern = pattern, .seconds_min = turn_s, .seconds_max = turn_s});
            if (!one) return one.error();
            sum->read_bytes += one->read_bytes;
            sum->write_bytes += one->write_bytes;
            sum->seconds += one->seconds;
            sum->cpu_seconds += one->cpu_seconds;
        }
    }
    return sums;
}

Result<Measured> DriveProbe::measure(const Load& load) {
    return run(load, {});
}

bool DriveProbe::is_buffered() const {
    for (size_t path = 0; path < options_.paths.size(); ++path) {
        if (store_->is_buffered(path)) return true;
    }
    return false;
}

Result<Measured> DriveProbe::read_raw(const Load& load) {
    CHECK_EQ(options_.paths.size(), 1u);
    const std::string path = store_->data_file(0);
    const RawFile file(path, O_RDONLY | O_CLOEXEC | (store_->is_buffered(0) ? 0 : O_DIRECT));
    const auto failed = [&](int error) {
        return Error{
            ErrorCode::failed,
            fmt::format("reading the file of a probe in {} by plain calls", options_.paths[0]),
            std::strerror(error)};
    };
    if (file.descriptor() < 0) return failed(errno);
    const uint64_t file_bytes = size_bytes();
    const uint64_t request_bytes = options_.depth * options_.block_bytes;
    CHECK_LE(request_bytes, options_.pool.size());
    Measured measured;
    const ProcessIo io_before = read_process_io();
    const double cpu_before = cpu_seconds_now();
    const Clock::time_point begin = Clock::now();
    for (uint64_t offset = 0; measured.seconds < load.seconds_max;) {
        const bool is_enough =
            measured.read_bytes >= load.bytes_min && measured.seconds >= load.seconds_min;
        if (measured.read_bytes > 0 && is_enough) break;
        const uint64_t wanted_bytes = std::min(request_bytes, file_bytes - offset);
        const ssize_t count = ::pread(file.descriptor(), options_.pool.data(), wanted_bytes,
                                      static_cast<off_t>(offset));
        if (count <= 0) return failed(count < 0 ? errno : EIO);
        measured.read_bytes += static_cast<uint64_t>(count);
        offset += static_cast<uint64_t>(count);
        if (offset >= file_bytes) offset = 0;
        measured.seconds = seconds_since(begin);
        if (options_.should_stop && options_.should_stop()) {
            return Error{ErrorCode::stopped, "the measurement was stopped", ""};
        }
    }
    measured.cpu_seconds = cpu_seconds_now() - cpu_before;
    measured.cached_share = cached_share_of(measured.read_bytes, read_process_io() - io_before);
    return measured;
}

Result<uint64_t> DriveProbe::verify() {
    const uint64_t block_bytes = options_.block_bytes;
    const auto buffer = [&](uint64_t index) {
        return options_.pool.subspan(index * block_bytes, block_bytes);
    };
    fill_with_noise(options_.pool);
    std::vector<uint64_t> sums(options_.pool.size() / block_bytes);
    for (size_t chunk = 0; chunk < sums.size(); ++chunk) {
        sums[chunk] = offload::page_sum(buffer(chunk));
    }
    const uint32_t batch_count = window_of(options_, Buffers::whole_pool);
    const auto place_count = static_cast<uint32_t>(chunk_of_place_.size());
    uint64_t verified_bytes = 0;
    for (uint32_t first = 0; first < place_count; first += batch_count) {
        if (options_.should_stop && options_.should_stop()) {
            return Error{ErrorCode::stopped, "the measurement was stopped", ""};
        }
        const uint32_t count = std::min(batch_count, place_count - first);
        std::vector<Status> outcomes(count);
        std::latch all_done(count);
        for (uint32_t i = 0; i < count; ++i) {
            store_->start({Direction::read, first + i, buffer(i), [&, i](Status status) {
                               outcomes[i] = std::move(status);
                               all_done.count_down();
                           }});
        }
        all_done.wait();
        for (uint32_t i = 0; i < count; ++i) {
            if (!outcomes[i].ok()) return outcomes[i].error();
            if (offload::page_sum(buffer(i)) != sums[chunk_of_place_[first + i]]) {
                return Error{ErrorCode::bad_data,
                             fmt::format("block {} of the {} measured in {} reads back other bytes "
                                         "than were written to it",
                                         first + i, place_count, options_.paths[0]),
                             "the drive, its cable or its memory is faulty: no figure of it means "
                             "anything"};
            }
            verified_bytes += block_bytes;
        }
    }
    return verified_bytes;
}

Result<std::vector<WriteSample>> DriveProbe::write_until_it_falls(uint64_t budget_bytes) {
    std::vector<WriteSample> samples;
    const uint64_t before_bytes = written_bytes_;
    uint64_t sampled_bytes = 0;
    double sampled_seconds = 0;
    const auto watch = [&](uint64_t bytes, double seconds) {
        if (seconds - sampled_seconds < sample_seconds || bytes == sampled_bytes) return false;
        samples.push_back({.written_before_bytes = before_bytes + sampled_bytes,
                           .size_bytes = bytes - sampled_bytes,
                           .seconds = seconds - sampled_seconds});
        sampled_bytes = bytes;
        sampled_seconds = seconds;
        if (seconds < seconds_min) return false;
        const std::optional<size_t> fall = find_fall(samples);
        if (!fall) return bytes >= budget_bytes;
        const double after = static_cast<double>(samples.size() - *fall) * sample_seconds;
        return after >= seconds_after_fall;
    };
    const double no_limit = std::numeric_limits<double>::infinity();
    const Result<Measured> measured =
        run({.pattern = Pattern::write, .seconds_min = no_limit, .seconds_max = no_limit}, watch);
    if (!measured) return measured.error();
    CHECK(!samples.empty());
    return samples;
}

Result<Drive> quick_measure(ProbeOptions options) {
    CHECK_EQ(options.paths.size(), 1u);
    options.size_bytes = quick_file_bytes;
    const uint64_t pool_bytes = std::max(quick_pool_bytes, DriveProbe::pool_bytes_min(options));
    options.pool = options.pool.first(std::min<uint64_t>(options.pool.size(), pool_bytes));
    Result<std::unique_ptr<DriveProbe>> probe = DriveProbe::open(std::move(options));
    if (!probe) return probe.error();
    Drive drive;
    for (const Pattern pattern : {Pattern::write, Pattern::read}) {
        const Result<Measured> measured = (*probe)->measure(
            {.pattern = pattern, .seconds_min = quick_seconds, .seconds_max = quick_seconds});
        if (!measured) return measured.error();
        const double rate = measured->bytes_per_s();
        (pattern == Pattern::read ? drive.read_bytes_per_s : drive.write_burst_bytes_per_s) = rate;
    }
    drive.write_sustained_bytes_per_s = drive.write_burst_bytes_per_s;
    drive.mixed_bytes_per_s = step_bytes_per_s(drive);
    drive.burst_bytes = (*probe)->written_bytes();
    return drive;
}

}  // namespace headrace::nvme
