#include "offload/store.h"

#include <condition_variable>
#include <mutex>

namespace headrace::offload {

Status transfer_and_wait(Store& store, Direction direction, PlaceId place,
                         std::span<std::byte> memory) {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    Status outcome;
    store.start(
        {.direction = direction, .place = place, .memory = memory, .done = [&](Status status) {
             std::lock_guard lock(mutex);
             outcome = std::move(status);
             is_done = true;
             changed.notify_one();  // under the lock: `changed` must outlive the call
         }});
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_done; });
    return outcome;
}

}  // namespace headrace::offload
