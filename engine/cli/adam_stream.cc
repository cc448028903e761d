#include "engine/cli/adam_stream.h"

#include <immintrin.h>

#include <algorithm>
#include <array>

#include "offload/check.h"

namespace headrace::engine {

using cpu_adam::Operands;
using cpu_adam::StepFactors;

namespace {

constexpr uint64_t step_elements = 64;
constexpr uint64_t line_bytes = 64;
constexpr uint64_t prefetch_bytes = 1024;

enum class Access : uint8_t { read, read_write };

// What one array has of 64 elements: whole lines, or the 8 bytes of two blocks' steps (int8).
struct Array {
    std::byte* begin = nullptr;
    uint64_t step_bytes = 0;
    Access access = Access::read_write;
};

class Arrays {
  public:
    explicit Arrays(const Operands& o) {
        add(o.hi, 2);
        add(o.lo, 2);
        add(o.weight, 4);
        add(o.weight_fp16, 2);
        add(o.m, 4);
        add(o.v, 4);
        add(o.m_bf16, 2);
        add(o.v_bf16, 2);
        add(o.m_int8, 1);
        add(o.root_uint8, 1);
        if (o.steps != nullptr) put(o.steps, step_elements / 32 * 2 * sizeof(uint16_t));
        add(o.gradient_bf16, 2);
        add(o.gradient_fp16, 2);
        add(o.gradient_fp32, 4);
    }
    const Array* begin() const { return arrays_.data(); }
    const Array* end() const { return arrays_.data() + count_; }

  private:
    template <typename T>
    void add(T* data, uint64_t element_bytes) {
        if (data != nullptr) put(data, step_elements * element_bytes);
    }
    template <typename T>
    void put(T* data, uint64_t step_bytes) {
        CHECK_LT(count_, arrays_.size());
        const auto access = std::is_const_v<T> ? Access::read : Access::read_write;
        auto* begin = reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(data));
        arrays_[count_++] = {.begin = begin, .step_bytes = step_bytes, .access = access};
    }

    std::array<Array, 8> arrays_;
    size_t count_ = 0;
};

// 16 bytes; SSE2 is no narrower than memory. The empty asm keeps the compiler from seeing that
// what is stored is what was loaded.
template <StreamLoop loop>
void move_16(std::byte* at, Access access) {
    auto* vector = reinterpret_cast<__m128i*>(at);
    __m128i value = _mm_load_si128(vector);
    asm volatile("" : "+x"(value));
    if (access == Access::read) return;
    if constexpr (loop == StreamLoop::non_temporal) {
        _mm_stream_si128(vector, value);
    } else {
        _mm_store_si128(vector, value);
    }
}

template <StreamLoop loop>
void move_lines(std::byte* begin, const Array& array) {
    for (std::byte* at = begin; at < begin + array.step_bytes; at += line_bytes) {
        if constexpr (loop == StreamLoop::prefetched) {
            _mm_prefetch(reinterpret_cast<const char*>(at + prefetch_bytes), _MM_HINT_T0);
        }
        for (uint64_t offset = 0; offset < line_bytes; offset += 16) {
            move_16<loop>(at + offset, array.access);
        }
    }
}

void move_8(std::byte* at) {
    uint64_t value = *reinterpret_cast<uint64_t*>(at);
    asm volatile("" : "+r"(value));
    *reinterpret_cast<uint64_t*>(at) = value;
}

template <StreamLoop loop>
void stream(const StepFactors&, const Operands& operands) {
    const Arrays arrays(operands);
    const uint64_t step_count = operands.element_count / step_elements;
    for (uint64_t step = 0; step < step_count; ++step) {
        for (const Array& array : arrays) {
            std::byte* at = array.begin + step * array.step_bytes;
            if (array.step_bytes >= line_bytes) {
                move_lines<loop>(at, array);
            } else {
                move_8(at);
            }
        }
    }
    if constexpr (loop == StreamLoop::non_temporal) _mm_sfence();
}

void triad(const StepFactors&, const Operands& operands) {
    CHECK(operands.weight != nullptr && operands.m != nullptr && operands.v != nullptr);
    float* const sum = operands.weight;
    const float* const one = operands.m;
    const float* const other = operands.v;
    const __m128 factor = _mm_set1_ps(3);
    for (uint64_t i = 0; i + 4 <= operands.element_count; i += 4) {
        const __m128 product = _mm_mul_ps(factor, _mm_load_ps(other + i));
        _mm_store_ps(sum + i, _mm_add_ps(_mm_load_ps(one + i), product));
    }
}

// 14 KiB of weights, states in fp32 and gradients in bf16.
constexpr uint64_t cached_elements = 1024;

template <void (*update)(const StepFactors&, const Operands&)>
void update_in_cache(const StepFactors& factors, const Operands& operands) {
    Operands some = operands;
    for (uint64_t done = 0; done < operands.element_count; done += some.element_count) {
        some.element_count = std::min(cached_elements, operands.element_count - done);
        update(factors, some);
    }
}

}  // namespace

cpu_adam::Row triad_row() {
    return {"triad", cpu_adam::Isa::baseline, &triad};
}

cpu_adam::Row in_cache_row(const cpu_adam::Row& row) {
    cpu_adam::Row same = row;
    switch (row.required_isa) {
        case cpu_adam::Isa::baseline:
            same.update = &update_in_cache<&cpu_adam::update_scalar>;
            return same;
        case cpu_adam::Isa::avx2_fma_f16c:
            same.update = &update_in_cache<&cpu_adam::update_avx2>;
            return same;
        case cpu_adam::Isa::avx512f_bw:
            same.update = &update_in_cache<&cpu_adam::update_avx512>;
            return same;
    }
    CHECK(false);
}

std::string_view name_of(StreamLoop loop) {
    switch (loop) {
        case StreamLoop::regular: return "regular";
        case StreamLoop::prefetched: return "prefetched";
        case StreamLoop::non_temporal: return "non-temporal";
    }
    CHECK(false);
}

cpu_adam::Row stream_row(StreamLoop loop) {
    using cpu_adam::Isa;
    switch (loop) {
        case StreamLoop::regular: return {"stream", Isa::baseline, &stream<StreamLoop::regular>};
        case StreamLoop::prefetched:
            return {"stream", Isa::baseline, &stream<StreamLoop::prefetched>};
        case StreamLoop::non_temporal:
            return {"stream", Isa::baseline, &stream<StreamLoop::non_temporal>};
    }
    CHECK(false);
}

}  // namespace headrace::engine
