#include "nvme/chores.h"

#include <utility>

#include "offload/check.h"

namespace headrace::nvme {

Chores::Chores() : thread_([this] { work(); }) {}

Chores::~Chores() {
    std::lock_guard lock(mutex_);
    is_closing_ = true;
    given_.notify_one();
}

void Chores::add(std::function<void()> chore) {
    CHECK(chore != nullptr);
    std::lock_guard lock(mutex_);
    CHECK(!is_closing_);
    waiting_.push_back(std::move(chore));
    given_.notify_one();
}

void Chores::work() {
    while (true) {
        std::function<void()> chore;
        {
            std::unique_lock lock(mutex_);
            given_.wait(lock, [this] { return is_closing_ || !waiting_.empty(); });
            if (waiting_.empty()) return;
            chore = std::move(waiting_.front());
            waiting_.pop_front();
        }
        chore();
    }
}

}  // namespace headrace::nvme
