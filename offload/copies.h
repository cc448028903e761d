// Copies: how a place of a store keeps what it holds, and what commits say of it.
#pragma once

#include <cstdint>

namespace headrace::offload {

enum class Copies : uint8_t {
    scratch,  // one, of which no commit speaks
    one,      // commits name it; written over in place, so only while no commit stands
    two,      // {truth, spare}: commits name the truth, and a write goes to the spare
};

constexpr bool is_durable(Copies copies) {
    return copies != Copies::scratch;
}
constexpr uint8_t count_of(Copies copies) {
    return copies == Copies::two ? 2 : 1;
}

}  // namespace headrace::offload
