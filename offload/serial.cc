#include "offload/serial.h"

#include <utility>

namespace headrace::offload {

SerialBackend::SerialBackend(Hooks hooks) : hooks_(std::move(hooks)) {
    CHECK(hooks_.execute);
}

Status SerialBackend::open(const Period& period) {
    return hooks_.open ? hooks_.open(period) : Status{};
}

void SerialBackend::start(const Ticket& ticket) {
    CHECK(!completion_.has_value());
    Result<Verdict> result = hooks_.execute(ticket);
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
