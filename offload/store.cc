#include "offload/store.h"

#include <condition_variable>
#include <mutex>

namespace headrace::offload {

Status wait_for(const std::function<void(Done)>& begin) {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    Status outcome;
    begin([&](Status status) {
        std::lock_guard lock(mutex);
        outcome = std::move(status);
        is_done = true;
        changed.notify_one();  // under the lock: `changed` must outlive the call
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_done; });
    return outcome;
}

Status transfer_and_wait(Store& store, Direction direction, PlaceId place,
                         std::span<std::byte> memory) {
    return wait_for([&](Done done) {
        store.start(
            {.direction = direction, .place = place, .memory = memory, .done = std::move(done)});
    });
}

Status sync_and_wait(Store& store) {
    for (uint32_t path = 0; path < store.path_count(); ++path) {
        const Status status = wait_for([&](Done done) { store.sync(path, std::move(done)); });
        if (!status) return status;
    }
    return {};
}

Status commit_and_wait(Store& store, const CommitRecord& record) {
    if (Status status = sync_and_wait(store); !status) return status;
    const Status written = wait_for([&](Done done) { store.record(record, std::move(done)); });
    if (!written) return written;
    return wait_for([&](Done done) { store.seal(std::move(done)); });
}

Status withdraw_and_wait(Store& store) {
    return wait_for([&](Done done) { store.withdraw(std::move(done)); });
}

}  // namespace headrace::offload
