// The oracle of the rope rows.
#include <cmath>
#include <cstring>

#include "kernels/host/rope_span.h"
#include "offload/fp16.h"

namespace headrace::kernels {

namespace {

using offload::Dtype;

float element_at(const char* x, Dtype dtype, int64_t index) {
    if (dtype == Dtype::fp32) {
        float value;
        std::memcpy(&value, x + 4 * index, sizeof value);
        return value;
    }
    uint16_t bits;
    std::memcpy(&bits, x + 2 * index, sizeof bits);
    return dtype == Dtype::bf16 ? offload::bf16_to_float(bits) : offload::fp16_to_float(bits);
}

void put_element(char* x, Dtype dtype, int64_t index, float value) {
    if (dtype == Dtype::fp32) {
        std::memcpy(x + 4 * index, &value, sizeof value);
        return;
    }
    const uint16_t bits =
        dtype == Dtype::bf16 ? offload::float_to_bf16(value) : offload::float_to_fp16(value);
    std::memcpy(x + 2 * index, &bits, sizeof bits);
}

}  // namespace

void turn_tokens_scalar(const RopeOperands& o, int64_t first_token, int64_t last_token) {
    auto* const x = static_cast<char*>(o.x);
    for (int64_t token = first_token; token < last_token; ++token) {
        const int64_t start = o.sample_starts == nullptr ? 0 : o.sample_starts[token];
        const int64_t angles = (token % o.column_count - start) * o.pair_count;
        for (int64_t head = 0; head < o.head_count; ++head) {
            const int64_t first = (token * o.head_count + head) * 2 * o.pair_count;
            for (int64_t i = 0; i < o.pair_count; ++i) {
                const float cosine = o.cosine[angles + i];
                const float sine = o.is_back ? -o.sine[angles + i] : o.sine[angles + i];
                const float low = element_at(x, o.dtype, first + i);
                const float high = element_at(x, o.dtype, first + o.pair_count + i);
                put_element(x, o.dtype, first + i, std::fma(high, -sine, low * cosine));
                put_element(x, o.dtype, first + o.pair_count + i,
                            std::fma(low, sine, high * cosine));
            }
        }
    }
}

}  // namespace headrace::kernels
