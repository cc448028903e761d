// CHECK states what must hold; a failure is a bug, so it prints the expression, the values and the
// place, and aborts, in release builds too. DCHECK is for checks that cost O(n): Debug builds only.
// Faults of the outside world are never CHECKed: they travel as Result (offload/result.h).
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

namespace headrace::offload {

// Prints `file:line: CHECK failed: expression (details)` to stderr and aborts. Any thread.
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& details);

// "left vs right", for the two-valued checks below; small integers and enums print as numbers.
template <typename Left, typename Right>
std::string describe_values(const Left& left, const Right& right) {
    std::ostringstream text;
    auto put = [&text](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_enum_v<Value>) {
            text << static_cast<int64_t>(value);
        } else if constexpr (std::is_integral_v<Value> && sizeof(Value) == 1) {
            text << static_cast<int>(value);
        } else {
            text << value;
        }
    };
    put(left);
    text << " vs ";
    put(right);
    return text.str();
}

}  // namespace headrace::offload

#define CHECK(expression)          \
    (static_cast<bool>(expression) \
         ? static_cast<void>(0)    \
         : ::headrace::offload::check_failed(__FILE__, __LINE__, #expression, ""))

// CHECK with a sentence that a reader of the crash report needs; `text` is a std::string.
#define CHECK_TEXT(expression, text) \
    (static_cast<bool>(expression)   \
         ? static_cast<void>(0)      \
         : ::headrace::offload::check_failed(__FILE__, __LINE__, #expression, (text)))

#define CHECK_OP(left, op, right)                                               \
    do {                                                                        \
        const auto& check_left = (left);                                        \
        const auto& check_right = (right);                                      \
        if (!(check_left op check_right)) {                                     \
            ::headrace::offload::check_failed(                                  \
                __FILE__, __LINE__, #left " " #op " " #right,                   \
                ::headrace::offload::describe_values(check_left, check_right)); \
        }                                                                       \
    } while (false)

#define CHECK_EQ(left, right) CHECK_OP(left, ==, right)
#define CHECK_NE(left, right) CHECK_OP(left, !=, right)
#define CHECK_LT(left, right) CHECK_OP(left, <, right)
#define CHECK_LE(left, right) CHECK_OP(left, <=, right)
#define CHECK_GT(left, right) CHECK_OP(left, >, right)
#define CHECK_GE(left, right) CHECK_OP(left, >=, right)

#ifdef NDEBUG
#define DCHECK(expression) static_cast<void>(0)
#else
#define DCHECK(expression) CHECK(expression)
#endif
