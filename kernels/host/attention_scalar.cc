// The oracle of attention's rows: 16 lanes are an array.
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/host/attention_tile.h"
#include "kernels/host/natural_log.h"
#include "offload/fp16.h"

namespace headrace::kernels {

namespace {

struct Lanes {
    float at[16];
};
constexpr int micro_rows = 1;
constexpr int micro_vectors = 1;

template <class Function>
Lanes each(Function function) {
    Lanes result;
    for (int i = 0; i < 16; ++i) result.at[i] = function(i);
    return result;
}

Lanes load(const float* source) {
    return each([&](int i) { return source[i]; });
}
void store(float* target, const Lanes& x) {
    for (int i = 0; i < 16; ++i) target[i] = x.at[i];
}
Lanes fill(float x) {
    return each([&](int) { return x; });
}
Lanes add(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.at[i] + b.at[i]; });
}
Lanes subtract(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.at[i] - b.at[i]; });
}
Lanes multiply(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.at[i] * b.at[i]; });
}
Lanes divide(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.at[i] / b.at[i]; });
}
Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
    return each([&](int i) { return std::fma(a.at[i], b.at[i], c.at[i]); });
}
Lanes larger_of(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; });
}
Lanes smaller_of(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.at[i] < b.at[i] ? a.at[i] : b.at[i]; });
}

// 2^whole; a NaN gives whatever, what it is multiplied with is a NaN too.
Lanes power_of_two(const Lanes& whole) {
    return each([&](int i) {
        const int32_t n = std::isnan(whole.at[i]) ? 0 : static_cast<int32_t>(whole.at[i]);
        return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
    });
}

// value where not (x < limit), else 0.
Lanes zero_below(const Lanes& x, float limit, const Lanes& value) {
    return each([&](int i) { return x.at[i] < limit ? 0.0f : value.at[i]; });
}

float join_sum(Lanes x) {
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) x.at[i] += x.at[i + half];
    }
    return x.at[0];
}
float join_largest(Lanes x) {
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i)
            x.at[i] = x.at[i] > x.at[i + half] ? x.at[i] : x.at[i + half];
    }
    return x.at[0];
}

Lanes widen(const char* source, offload::Dtype dtype) {
    if (dtype == offload::Dtype::fp32) {
        Lanes result;
        std::memcpy(result.at, source, sizeof result.at);
        return result;
    }
    uint16_t bits[16];
    std::memcpy(bits, source, sizeof bits);
    return each([&](int i) {
        return dtype == offload::Dtype::bf16 ? offload::bf16_to_float(bits[i])
                                             : offload::fp16_to_float(bits[i]);
    });
}

void narrow(char* target, const Lanes& x, offload::Dtype dtype) {
    if (dtype == offload::Dtype::fp32) {
        std::memcpy(target, x.at, sizeof x.at);
        return;
    }
    uint16_t bits[16];
    for (int i = 0; i < 16; ++i) {
        bits[i] = dtype == offload::Dtype::bf16 ? offload::float_to_bf16(x.at[i])
                                                : offload::float_to_fp16(x.at[i]);
    }
    std::memcpy(target, bits, sizeof bits);
}

#include "kernels/host/attention_product.inc"
// After the products that it calls.
#include "kernels/host/attention_loops.inc"

}  // namespace

AttentionTasks attention_tasks_scalar() {
    return all_tasks;
}

void attention_exp_scalar(const float* source, float* target, int64_t count) {
    exp_all(source, target, count);
}

}  // namespace headrace::kernels
