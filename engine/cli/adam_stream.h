// The ceiling of the update: a loop that moves the bytes of the update, through the same pool and
// the same cut, and does nothing with them. All arrays advance together, 64 elements at a time;
// what the update writes is loaded and stored as it was, the gradient is only loaded. So a stream
// may run over a run's memory between updates.
//
// It is a row like those of cpu_adam/variants.h, and takes any operands; it ignores what is left
// of them behind a multiple of 64 elements.
#pragma once

#include <cstdint>
#include <string_view>

#include "cpu_adam/variants.h"

namespace headrace::engine {

enum class StreamLoop : uint8_t {
    regular,
    prefetched,    // software prefetch, 1 KiB ahead in each array
    non_temporal,  // stores past the caches
};
inline constexpr StreamLoop stream_loops[] = {StreamLoop::regular, StreamLoop::prefetched,
                                              StreamLoop::non_temporal};

std::string_view name_of(StreamLoop loop);

cpu_adam::Row stream_row(StreamLoop loop);

// The yardstick that people know machines by, STREAM's triad, through the same pool and the same
// cut: weight = m + 3 v over a plain fp32 part; nothing else of it is touched. 12 bytes an element,
// as STREAM counts: two arrays read, one written.
cpu_adam::Row triad_row();
inline constexpr uint64_t triad_element_bytes = 12;

// The other bound: the update as it is, but over the first elements of its range again and again,
// as many as the nearest cache holds: its arithmetic alone. Leaves those elements as they come.
cpu_adam::Row in_cache_row(const cpu_adam::Row& row);

}  // namespace headrace::engine
