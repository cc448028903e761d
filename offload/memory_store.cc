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
            // A new copy starts as zeros; the only copy keeps what the write does not reach.
            if (places_[transfer.place].copy_count == 2) truth.clear();
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

}  // namespace headrace::offload
