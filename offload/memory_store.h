// MemoryStore: the in-memory twin of a Store, with one path. Everything is done, and `done` called,
// before a call returns. It CHECKs the order of a commit's moves. For tests; any thread may call
// it.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "offload/store.h"

namespace headrace::offload {

class MemoryStore final : public Store {
  public:
    explicit MemoryStore(std::vector<PlaceSpec> places);

    void start(Transfer transfer) override;
    void sync(uint32_t path, Done done) override;
    void record(const CommitRecord& record, Done done) override;
    void seal(Done done) override;
    void withdraw(Done done) override;
    std::optional<CommitRecord> newest_commit() const override;
    uint32_t path_count() const override { return 1; }
    const std::vector<PlaceSpec>& places() const override { return places_; }

  private:
    const std::vector<PlaceSpec> places_;
    mutable std::mutex mutex_;
    std::vector<std::vector<std::byte>> bytes_;  // empty: never written
    bool is_synced_ = true;                      // no durable place was written since
    std::optional<CommitRecord> recorded_;       // and not sealed yet
    std::optional<CommitRecord> committed_;
};

}  // namespace headrace::offload
