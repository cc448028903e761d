// The serial backend: carries out one op at a time, inside start(), so that run follows the list
// exactly. It is the meaning of a schedule, and the oracle for every other backend.
#pragma once

#include <functional>
#include <optional>

#include "offload/run.h"

namespace headrace::offload {

// Does what an op says, now. The verdict op returns its verdict, the others anything.
using Execute = std::function<Result<Verdict>(const Ticket&)>;

class SerialBackend final : public Backend {
  public:
    struct Hooks {
        Execute execute;
        std::function<Status(const Period&)> open;   // may be empty
        std::function<Status(const Period&)> close;  // may be empty
    };
    explicit SerialBackend(Hooks hooks);

    Status open(const Period& period) override;
    bool can_start(LaneKind) const override { return !completion_.has_value(); }
    void start(const Ticket& ticket) override;
    Completion wait() override;
    Status close(const Period& period) override;

  private:
    const Hooks hooks_;
    std::optional<Completion> completion_;
};

}  // namespace headrace::offload
