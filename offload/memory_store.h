// MemoryStore: the in-memory twin of a Store. start() copies and calls `done` before it returns.
// For tests and for resident runs of the schedule's tests; any thread may call it.
#pragma once

#include <mutex>
#include <vector>

#include "offload/store.h"

namespace headrace::offload {

class MemoryStore final : public Store {
  public:
    explicit MemoryStore(std::vector<PlaceSpec> places);

    void start(Transfer transfer) override;
    Status flush() override { return {}; }
    const std::vector<PlaceSpec>& places() const override { return places_; }

  private:
    const std::vector<PlaceSpec> places_;
    std::mutex mutex_;
    std::vector<std::vector<std::byte>> bytes_;  // empty: never written
};

}  // namespace headrace::offload
