#include "offload/memory_store.h"

#include <algorithm>
#include <utility>

#include "offload/units.h"

namespace headrace::offload {

MemoryStore::MemoryStore(std::vector<PlaceSpec> places)
    : places_(std::move(places)), bytes_(places_.size()) {}

void MemoryStore::start(Transfer transfer) {
    CHECK_LT(transfer.place, places_.size());
    CHECK_LE(transfer.memory.size(), places_[transfer.place].size_bytes);
    CHECK_EQ(transfer.memory.size() % page_bytes, 0u);
    {
        std::lock_guard lock(mutex_);
        std::vector<std::byte>& truth = bytes_[transfer.place];
        if (transfer.direction == Direction::write) {
            // A durable copy starts as zeros; scratch keeps what the write does not reach.
            const Copies copies = places_[transfer.place].copies;
            if (is_durable(copies)) {
                CHECK(!recorded_.has_value());  // the commit that releases the spare is not made
                CHECK(copies == Copies::two || !committed_.has_value());
                is_synced_ = false;
                truth.clear();
            }
            truth.resize(places_[transfer.place].size_bytes);
            std::ranges::copy(transfer.memory, truth.begin());
        } else if (truth.empty()) {
            std::ranges::fill(transfer.memory, std::byte{0});
        } else {
            std::copy_n(truth.begin(), transfer.memory.size(), transfer.memory.begin());
        }
    }
    transfer.done({});
}

void MemoryStore::sync(uint32_t path, Done done) {
    CHECK_EQ(path, 0u);
    {
        std::lock_guard lock(mutex_);
        is_synced_ = true;
    }
    done({});
}

void MemoryStore::record(const CommitRecord& record, Done done) {
    {
        std::lock_guard lock(mutex_);
        CHECK(is_synced_);
        CHECK(!recorded_.has_value());
        recorded_ = record;
    }
    done({});
}

void MemoryStore::seal(Done done) {
    {
        std::lock_guard lock(mutex_);
        CHECK(recorded_.has_value());
        committed_ = std::exchange(recorded_, std::nullopt);
    }
    done({});
}

void MemoryStore::withdraw(Done done) {
    {
        std::lock_guard lock(mutex_);
        CHECK(!recorded_.has_value());
        committed_.reset();
    }
    done({});
}

std::optional<CommitRecord> MemoryStore::newest_commit() const {
    std::lock_guard lock(mutex_);
    return committed_;
}

}  // namespace headrace::offload
