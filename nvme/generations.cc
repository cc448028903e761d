#include "nvme/generations.h"

#include <algorithm>

#include "offload/check.h"

namespace headrace::nvme {

using offload::Copies;
using offload::is_durable;
using offload::PlaceId;

Generations::Generations(const std::vector<offload::PlaceSpec>& places, uint32_t path_count)
    : synced_to_(path_count, 0) {
    for (const offload::PlaceSpec& place : places) {
        if (is_durable(place.copies)) durable_.push_back(static_cast<PlaceId>(states_.size()));
        State state;
        state.size_bytes = place.size_bytes;
        state.copies = place.copies;
        states_.push_back(state);
    }
    truths_.reserve(durable_.size());
}

void Generations::restore(const Commit& commit) {
    CHECK_EQ(commit.places.size(), durable_.size());
    CHECK_EQ(writes_in_flight_, 0u);
    CHECK(!is_recording_);
    for (size_t i = 0; i < durable_.size(); i++) {
        const PlaceTruth& truth = commit.places[i];
        State& state = states_[durable_[i]];
        CHECK_EQ(state.readers, 0u);
        CHECK_LT(truth.copy, count_of(state.copies));
        state.truth = truth.copy;
        state.written_bytes = {0, 0};
        state.sealed_copy.reset();
        state.is_unverified = truth.is_written;
        if (!truth.is_written) continue;
        state.written_bytes[truth.copy] = state.size_bytes;
        state.sum[truth.copy] = truth.sum;
        state.sealed_copy = truth.copy;
    }
}

Generations::Reading Generations::begin_read(PlaceId place, uint64_t size_bytes) {
    CHECK_LT(place, states_.size());
    State& state = states_[place];
    CHECK_LE(size_bytes, state.size_bytes);
    CHECK_EQ(state.writers, 0u);
    state.readers++;
    const uint64_t written_bytes = state.written_bytes[state.truth];
    Reading reading{.copy = state.truth,
                    .size_bytes = std::min(size_bytes, written_bytes),
                    .sum = std::nullopt};
    // The sum is of the whole place: a prefix cannot be verified.
    if (state.is_unverified && size_bytes == state.size_bytes) {
        reading.sum = state.sum[state.truth];
    }
    return reading;
}

void Generations::end_read(PlaceId place, bool is_verified) {
    State& state = states_[place];
    CHECK_GT(state.readers, 0u);
    state.readers--;
    if (is_verified) state.is_unverified = false;
}

uint8_t Generations::begin_write(PlaceId place) {
    CHECK_LT(place, states_.size());
    State& state = states_[place];
    CHECK_EQ(state.readers, 0u);
    CHECK_EQ(state.writers, 0u);
    state.writers++;
    if (!is_durable(state.copies)) return state.truth;
    CHECK(!is_recording_);  // the commit that releases the spare is not made
    CHECK(!fault_.has_value());
    writes_in_flight_++;
    if (state.copies == Copies::one) {
        CHECK(!state.sealed_copy.has_value());  // withdraw comes first
        return 0;
    }
    const uint8_t kept = state.sealed_copy.value_or(state.truth);
    CHECK_LT(kept, 2);
    return 1 - kept;
}

void Generations::end_write(PlaceId place, const Writing& writing, bool is_good) {
    State& state = states_[place];
    CHECK_GT(state.writers, 0u);
    CHECK_LE(writing.size_bytes, state.size_bytes);
    state.writers--;
    if (is_durable(state.copies)) {
        CHECK(state.sealed_copy != writing.copy);
        writes_in_flight_--;
        write_count_++;
    }
    if (!is_good) {
        if (is_durable(state.copies) && writing.copy == state.truth) state.is_unverified = true;
        return;
    }
    const uint64_t kept_bytes = is_durable(state.copies) ? 0 : state.written_bytes[writing.copy];
    state.truth = writing.copy;
    state.written_bytes[writing.copy] = std::max(kept_bytes, writing.size_bytes);
    state.sum[writing.copy] = writing.sum;
    state.is_unverified = false;
}

void Generations::end_sync(uint32_t path, uint64_t begun_at) {
    CHECK_LT(path, synced_to_.size());
    CHECK_LE(begun_at, write_count_);
    synced_to_[path] = std::max(synced_to_[path], begun_at);
}

PlaceTruth Generations::truth_of(const State& state) const {
    const uint64_t written_bytes = state.written_bytes[state.truth];
    if (written_bytes == 0) return {};
    CHECK_EQ(written_bytes, state.size_bytes);  // a commit finds places written whole
    return {.is_written = true, .copy = state.truth, .sum = state.sum[state.truth]};
}

const std::vector<PlaceTruth>& Generations::begin_record() {
    CHECK(!is_recording_);
    CHECK(!fault_.has_value());
    CHECK_EQ(writes_in_flight_, 0u);
    for (const uint64_t synced_to : synced_to_) CHECK_EQ(synced_to, write_count_);
    is_recording_ = true;
    truths_.clear();
    for (const PlaceId place : durable_) truths_.push_back(truth_of(states_[place]));
    return truths_;
}

void Generations::end_seal() {
    CHECK(is_recording_);
    is_recording_ = false;
    for (const PlaceId place : durable_) {
        State& state = states_[place];
        if (state.written_bytes[state.truth] > 0) state.sealed_copy = state.truth;
    }
}

void Generations::withdraw() {
    CHECK(!is_recording_);
    CHECK_EQ(writes_in_flight_, 0u);
    for (const PlaceId place : durable_) states_[place].sealed_copy.reset();
}

void Generations::fail(const offload::Error& error) {
    if (!fault_) {
        fault_ = wrap(error,
                      "no commit can be made any more: an earlier one failed; stop, and "
                      "resume from the last good one");
    }
}

}  // namespace headrace::nvme
