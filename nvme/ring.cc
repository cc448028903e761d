#include "nvme/ring.h"

#include <fmt/core.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "nvme/clock.h"
#include "nvme/io_error.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::Direction;
using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

// The kernel takes at most 1 GiB per registered buffer and 1024 of them per call.
constexpr uint64_t registered_piece_bytes_max = offload::gib;
constexpr size_t registered_piece_count_max = 1024;

// No kernel knows it: the request fails where it stands, and the submission ends behind it.
constexpr uint8_t opcode_of_none = 255;

// How often a refused submission is tried again, 1 ms apart, before the ring counts as broken.
constexpr int submit_retries_max = 1000;

std::vector<iovec> pieces_of(const std::vector<std::span<std::byte>>& buffers) {
    std::vector<iovec> pieces;
    for (std::span<std::byte> rest : buffers) {
        while (!rest.empty()) {
            const uint64_t piece_bytes =
                std::min<uint64_t>(rest.size(), registered_piece_bytes_max);
            pieces.push_back({.iov_base = rest.data(), .iov_len = piece_bytes});
            rest = rest.subspan(piece_bytes);
        }
    }
    return pieces;
}

// Why registering failed, with the limit that did it.
Error registration_error(const std::string& path, uint64_t wanted_bytes, int error_number) {
    Error error{.code = ErrorCode::failed,
                .what = fmt::format("cannot register {} ({} bytes) of I/O buffers for {}",
                                    offload::format_bytes(wanted_bytes), wanted_bytes, path),
                .cause = describe_errno(error_number)};
    rlimit limit{};
    if (error_number == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        error.cause += fmt::format(
            "; locked memory is limited to {} bytes (soft) and {} (hard) for this user: raise "
            "ulimit -l, or memlock in /etc/security/limits.conf",
            limit.rlim_cur, limit.rlim_max);
    }
    return error;
}

}  // namespace

struct Ring::State {
    struct InFlight {
        Block block;
        uint64_t offset_bytes = 0;  // of the whole block, for the page cache and the statistics
        uint64_t size_bytes = 0;
        std::optional<Fault> fault;  // injected
        bool is_issued = false;
    };

    explicit State(const DirectFile& file_in) : file(file_in) {}

    const DirectFile& file;
    io_uring ring{};
    uint32_t depth = 0;
    std::vector<iovec> registered;
    bool is_file_registered = false;
    std::vector<InFlight> slots;
    std::vector<uint32_t> free_slots;
    std::vector<uint32_t> unsubmitted;  // prepared, in order, not yet taken by the kernel
    bool is_wake_armed = false;
    uint64_t wake_count = 0;  // target of the eventfd read
    std::optional<Error> broken;

    uint64_t wake_tag() const { return depth; }
    uint32_t in_flight_count() const { return depth - static_cast<uint32_t>(free_slots.size()); }

    Status register_file(std::vector<std::string>& notes);
    Status register_buffers(const RingOptions& options, std::vector<std::string>& notes);
    void arm_wake(BlockQueue& queue);
    void issue(uint32_t slot);
    void begin(Block block);
    void submit(BlockQueue& queue);
    void complete(BlockQueue& queue, uint32_t slot, int64_t result);
    void end(BlockQueue& queue, uint32_t slot, Status status);
    void break_down(BlockQueue& queue, int error_number);
    void wait_until(uint64_t until_ns);
    void reap(BlockQueue& queue, std::optional<uint64_t> until_ns);
    int registered_index(std::span<std::byte> memory) const;
};

Ring::Ring(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ring::Ring(Ring&&) noexcept = default;

Ring::~Ring() {
    if (!state_) return;
    CHECK_EQ(state_->in_flight_count(), 0u);
    CHECK(!state_->is_wake_armed);
    // The kernel takes a closed ring apart a little later; the file and the locked pages go now, so
    // that the space of a removed store and the limit are free when this returns.
    if (state_->is_file_registered) io_uring_unregister_files(&state_->ring);
    if (!state_->registered.empty()) io_uring_unregister_buffers(&state_->ring);
    io_uring_queue_exit(&state_->ring);
}

Result<Ring> Ring::make(const DirectFile& file, const RingOptions& options,
                        std::vector<std::string>& notes) {
    CHECK_GE(options.depth, 1u);
    CHECK_LE(options.depth, 4096u);
    auto state = std::make_unique<State>(file);
    // One more than the depth: the read of the eventfd.
    const int made = io_uring_queue_init(options.depth + 1, &state->ring, 0);
    if (made < 0) return io_error("cannot make an io_uring for " + file.path(), file.path(), -made);
    state->depth = options.depth;
    state->slots.resize(options.depth);
    state->unsubmitted.reserve(options.depth + 1);
    for (uint32_t slot = options.depth; slot-- > 0;) state->free_slots.push_back(slot);
    Ring ring(std::move(state));
    // A forked child that kept the mapping would keep the lock of a killed parent's files.
    if (io_uring_ring_dontfork(&ring.state_->ring) < 0) {
        notes.push_back("io_uring: forked children keep the ring of " + file.path());
    }
    if (Status status = ring.state_->register_file(notes); !status) return status.error();
    if (Status status = ring.state_->register_buffers(options, notes); !status) {
        return status.error();
    }
    return ring;
}

void Ring::let_go_in_child() {
    // The mapping did not come along (ring_dontfork); the descriptor did.
    CHECK_EQ(close(state_->ring.ring_fd), 0);
}

uint64_t Ring::registered_bytes() const {
    uint64_t bytes = 0;
    for (const iovec& piece : state_->registered) bytes += piece.iov_len;
    return bytes;
}

Status Ring::State::register_file(std::vector<std::string>& notes) {
    const int descriptor = file.descriptor();
    const int outcome = io_uring_register_files(&ring, &descriptor, 1);
    is_file_registered = outcome == 0;
    if (!is_file_registered) {
        notes.push_back(fmt::format("io_uring: {} is used unregistered: {}", file.path(),
                                    describe_errno(-outcome)));
    }
    return {};
}

Status Ring::State::register_buffers(const RingOptions& options, std::vector<std::string>& notes) {
    std::vector<iovec> pieces = pieces_of(options.buffers);
    if (pieces.empty()) return {};
    uint64_t wanted_bytes = 0;
    for (const iovec& piece : pieces) wanted_bytes += piece.iov_len;
    int outcome = -E2BIG;
    if (pieces.size() <= registered_piece_count_max) {
        const auto count = static_cast<unsigned>(pieces.size());
        outcome = io_uring_register_buffers(&ring, pieces.data(), count);
        if (outcome == -ENOMEM) {
            // The kernel gives back the locked pages of a closed ring a little later.
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            outcome = io_uring_register_buffers(&ring, pieces.data(), count);
        }
    }
    if (outcome == 0) {
        registered = std::move(pieces);
        return {};
    }
    Error error = registration_error(file.path(), wanted_bytes, -outcome);
    if (options.registration == Registration::required) return error;
    notes.push_back("io_uring goes on with unregistered buffers: " + error.text());
    return {};
}

int Ring::State::registered_index(std::span<std::byte> memory) const {
    for (size_t i = 0; i < registered.size(); i++) {
        const auto* begin = static_cast<const std::byte*>(registered[i].iov_base);
        if (memory.data() >= begin &&
            memory.data() + memory.size() <= begin + registered[i].iov_len) {
            return static_cast<int>(i);
        }
    }
    return -1;
}

void Ring::State::arm_wake(BlockQueue& queue) {
    CHECK(!is_wake_armed);
    io_uring_sqe* entry = io_uring_get_sqe(&ring);
    CHECK(entry != nullptr);
    io_uring_prep_read(entry, queue.wake_descriptor(), &wake_count, sizeof(wake_count), 0);
    io_uring_sqe_set_data64(entry, wake_tag());
    unsubmitted.push_back(depth);
    is_wake_armed = true;
}

void Ring::State::begin(Block block) {
    CHECK(!free_slots.empty());
    const uint32_t slot = free_slots.back();
    free_slots.pop_back();
    slots[slot] = {.block = block,
                   .offset_bytes = block.offset_bytes,
                   .size_bytes = block.memory.size(),
                   .fault = {},
                   .is_issued = false};
    issue(slot);
}

// Prepares the request for what is left of a block. There is always an entry: depth + 1 of them.
void Ring::State::issue(uint32_t slot) {
    InFlight& flight = slots[slot];
    CHECK(!flight.is_issued);
    Request request{.direction = flight.block.direction,
                    .descriptor = file.descriptor(),
                    .offset_bytes = flight.block.offset_bytes,
                    .memory = flight.block.memory};
    flight.fault.reset();
    if (file.operations().before_request) flight.fault = file.operations().before_request(request);
    if (flight.fault) {
        CHECK_LE(flight.fault->executed_bytes, request.memory.size());
        request.memory = request.memory.first(flight.fault->executed_bytes);
        if (flight.fault->is_lost) {
            flight.is_issued = true;
            return;
        }
    }
    io_uring_sqe* entry = io_uring_get_sqe(&ring);
    CHECK(entry != nullptr);
    const int target = is_file_registered ? 0 : request.descriptor;
    const auto size_bytes = static_cast<unsigned>(request.memory.size());
    const int buffer = registered_index(request.memory);
    if (size_bytes == 0) {
        io_uring_prep_nop(entry);
        if (flight.fault->ends_submission) entry->opcode = opcode_of_none;
    } else if (request.direction == Direction::read && buffer >= 0) {
        io_uring_prep_read_fixed(entry, target, request.memory.data(), size_bytes,
                                 request.offset_bytes, buffer);
    } else if (request.direction == Direction::read) {
        io_uring_prep_read(entry, target, request.memory.data(), size_bytes, request.offset_bytes);
    } else if (buffer >= 0) {
        io_uring_prep_write_fixed(entry, target, request.memory.data(), size_bytes,
                                  request.offset_bytes, buffer);
    } else {
        io_uring_prep_write(entry, target, request.memory.data(), size_bytes, request.offset_bytes);
    }
    if (is_file_registered && size_bytes > 0) io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(entry, slot);
    flight.is_issued = true;
    unsubmitted.push_back(slot);
}

// Hands everything prepared to the kernel, which may take it in several goes.
void Ring::State::submit(BlockQueue& queue) {
    for (int retry = 0; !unsubmitted.empty() && !broken; retry++) {
        const FileOperations& operations = file.operations();
        int outcome = operations.before_submit ? operations.before_submit() : 0;
        if (outcome >= 0) outcome = io_uring_submit(&ring);
        if (outcome > 0) {
            CHECK_LE(static_cast<size_t>(outcome), unsubmitted.size());
            unsubmitted.erase(unsubmitted.begin(), unsubmitted.begin() + outcome);
            retry = 0;
            continue;
        }
        const bool is_transient = outcome == -EINTR || outcome == -EAGAIN || outcome == -EBUSY ||
                                  outcome == -ENOMEM || outcome == 0;
        if (!is_transient || retry >= submit_retries_max) {
            break_down(queue, outcome < 0 ? -outcome : EAGAIN);
            return;
        }
        // EBUSY: completions wait to be reaped; the rest is submitted after that.
        if (outcome == -EBUSY && io_uring_cq_ready(&ring) > 0) return;
        if (outcome != -EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

// The kernel takes nothing more: what it never saw fails now, what it has is waited for.
void Ring::State::break_down(BlockQueue& queue, int error_number) {
    broken = io_error(fmt::format("cannot submit {} requests to the io_uring of {}",
                                  unsubmitted.size(), file.path()),
                      file.path(), error_number);
    const std::vector<uint32_t> lost = std::exchange(unsubmitted, {});
    for (const uint32_t slot : lost) {
        if (slot == depth) {
            is_wake_armed = false;
        } else {
            slots[slot].is_issued = false;
            end(queue, slot, *broken);
        }
    }
}

void Ring::State::end(BlockQueue& queue, uint32_t slot, Status status) {
    InFlight& flight = slots[slot];
    CHECK(!flight.is_issued);
    if (status.ok()) {
        status = file.drop_cache(flight.block.direction, flight.offset_bytes, flight.size_bytes);
    }
    const Block block = flight.block;
    const uint64_t size_bytes = flight.size_bytes;
    free_slots.push_back(slot);
    queue.finish(block, size_bytes, std::move(status));
}

void Ring::State::complete(BlockQueue& queue, uint32_t slot, int64_t result) {
    CHECK_LT(slot, slots.size());
    InFlight& flight = slots[slot];
    CHECK(flight.is_issued);
    flight.is_issued = false;
    if (flight.fault && (result >= 0 || flight.fault->ends_submission)) {
        result = flight.fault->result;
    }
    const Result<Progress> progress = advance(flight.block, result, file.path());
    if (!progress) {
        end(queue, slot, progress.error());
    } else if (*progress == Progress::finished) {
        end(queue, slot, {});
    } else if (broken) {
        end(queue, slot, *broken);
    } else {
        pause_before_retry(flight.block);
        issue(slot);
    }
}

// For a completion, or until then. The ring is polled: that needs no entry and no feature of newer
// kernels. Too early is fine.
void Ring::State::wait_until(uint64_t until_ns) {
    const uint64_t from_ns = now_ns();
    if (until_ns <= from_ns) return;
    const uint64_t wait_ns = until_ns - from_ns;
    const timespec wait{.tv_sec = static_cast<time_t>(wait_ns / 1'000'000'000),
                        .tv_nsec = static_cast<long>(wait_ns % 1'000'000'000)};
    pollfd ready{.fd = ring.ring_fd, .events = POLLIN, .revents = 0};
    const int outcome = ppoll(&ready, 1, &wait, nullptr);
    CHECK(outcome >= 0 || errno == EINTR || errno == ENOMEM);
}

// Takes all completions there are; waits for the first, or until then.
void Ring::State::reap(BlockQueue& queue, std::optional<uint64_t> until_ns) {
    io_uring_cqe* completion = nullptr;
    if (until_ns) {
        if (io_uring_cq_ready(&ring) == 0) wait_until(*until_ns);
        if (io_uring_peek_cqe(&ring, &completion) != 0) return;
    }
    int outcome = completion != nullptr ? 0 : io_uring_wait_cqe(&ring, &completion);
    while (outcome == -EINTR || outcome == -EAGAIN) {
        outcome = io_uring_wait_cqe(&ring, &completion);
    }
    CHECK_EQ(outcome, 0);
    do {
        const uint64_t tag = io_uring_cqe_get_data64(completion);
        const int64_t result = completion->res;
        io_uring_cqe_seen(&ring, completion);
        if (tag == wake_tag()) {
            CHECK(is_wake_armed);
            is_wake_armed = false;
        } else {
            complete(queue, static_cast<uint32_t>(tag), result);
        }
    } while (io_uring_peek_cqe(&ring, &completion) == 0);
}

void Ring::serve(BlockQueue& queue) {
    State& state = *state_;
    while (!state.broken) {
        if (!state.is_wake_armed && !queue.is_closed()) state.arm_wake(queue);
        while (!state.free_slots.empty()) {
            const std::optional<Block> block = queue.take();
            if (!block) break;
            state.begin(*block);
        }
        state.submit(queue);
        if (state.broken) break;
        const bool is_idle = state.in_flight_count() == 0 && !state.is_wake_armed;
        if (is_idle && queue.is_done()) return;
        // A write that the limit holds is tried again in time; with the depth full, after a
        // completion. Idle but not done: closed, and something may go or will.
        std::optional<uint64_t> until_ns;
        if (!state.free_slots.empty()) until_ns = queue.retry_at_ns();
        if (is_idle && !until_ns) continue;
        state.reap(queue, until_ns);
    }
    while (state.in_flight_count() > 0 || state.is_wake_armed) {
        if (state.in_flight_count() == 0) eventfd_write(queue.wake_descriptor(), 1);
        state.reap(queue, {});
    }
    while (const std::optional<Block> block = queue.wait_and_take()) {
        queue.finish(*block, block->memory.size(), *state.broken);
    }
}

}  // namespace headrace::nvme
