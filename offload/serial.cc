#include "offload/serial.h"

#include <utility>

namespace headrace::offload {

SerialBackend::SerialBackend(const Schedule& schedule, Hooks hooks)
    : schedule_(schedule), hooks_(std::move(hooks)) {
    CHECK(hooks_.execute);
}

Status SerialBackend::open(const Period& period) {
    periods_[static_cast<size_t>(period.index % 2)] = period;
    return hooks_.open ? hooks_.open(period) : Status{};
}

void SerialBackend::start(const Ticket& ticket) {
    CHECK(!completion_.has_value());
    const Period& period = periods_[static_cast<size_t>(ticket.period % 2)];
    CHECK_EQ(period.index, ticket.period);
    Result<Verdict> result = hooks_.execute(period, schedule_.ops[ticket.op]);
    Completion completion{.ticket = ticket, .status = {}};
    if (result.ok()) {
        completion.verdict = *result;
    } else {
        completion.status = result.error();
    }
    completion_ = std::move(completion);
}

Completion SerialBackend::wait() {
    CHECK(completion_.has_value());
    Completion completion = std::move(*completion_);
    completion_.reset();
    return completion;
}

Status SerialBackend::close(const Period& period) {
    return hooks_.close ? hooks_.close(period) : Status{};
}

}  // namespace headrace::offload
