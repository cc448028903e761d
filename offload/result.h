// Result<T>: a value, or an Error that says why the world refused (missing file, short read, full
// drive, bad config). A text says what was attempted, on which object, with which numbers, the
// likely cause and the remedy: it is shown to the user as it stands. Bugs are CHECKs, not Errors.
// Nothing here throws. Only engine/cli turns an ErrorCode into an exit code.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "offload/check.h"

namespace headrace::offload {

// What kind of refusal. The numbers are exit codes, but for the last, which has that of a signal.
enum class ErrorCode {
    failed = 1,        // the system refused: I/O error, lost drive, no permission
    usage = 2,         // the command line or the run file is wrong
    does_not_fit = 3,  // budgets are too small for the job
    bad_data = 4,      // a checkpoint, a data file or a store is damaged or foreign
    diverged = 5,      // too many steps in a row were not finite
    stopped = 6,       // nothing is wrong: a signal asked for it
};

struct Error {
    ErrorCode code = ErrorCode::failed;
    std::string what;   // attempted, on which object, with which numbers; ends without a full stop
    std::string cause;  // the error below, or the system's words; may be empty

    // "what: cause", or "what" alone.
    std::string text() const { return cause.empty() ? what : what + ": " + cause; }
};

// The same code, with `what` said above the error's own text.
inline Error wrap(Error below, std::string what) {
    return Error{below.code, std::move(what), below.text()};
}

template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::move(value)) {}
    Result(Error error) : state_(std::move(error)) {}

    bool ok() const { return std::holds_alternative<T>(state_); }
    explicit operator bool() const { return ok(); }

    T& value() & { return checked(); }
    const T& value() const& { return const_cast<Result*>(this)->checked(); }
    T&& value() && { return std::move(checked()); }
    T& operator*() & { return checked(); }
    const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
    T&& operator*() && { return std::move(checked()); }
    T* operator->() { return &checked(); }
    const T* operator->() const { return &const_cast<Result*>(this)->checked(); }

    const Error& error() const {
        CHECK(!ok());
        return *std::get_if<Error>(&state_);
    }

  private:
    T& checked() {
        CHECK_TEXT(ok(), ok() ? "" : error().text());
        return *std::get_if<T>(&state_);
    }
    std::variant<T, Error> state_;
};

// Success without a value. `return {};` is success.
template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)), ok_(false) {}

    bool ok() const { return ok_; }
    explicit operator bool() const { return ok_; }
    const Error& error() const {
        CHECK(!ok_);
        return error_;
    }

  private:
    Error error_;
    bool ok_ = true;
};

using Status = Result<void>;

}  // namespace headrace::offload
