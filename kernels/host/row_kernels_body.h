// The row kernels (kernels/host/row_kernels.h), included by one file per instruction set, each of
// which names its table in HEADRACE_ROW_FUNCTIONS and the lanes of its vectors in HEADRACE_LANES.
// Everything but the table has internal linkage. Here: cross entropy, conversions, gradients, and
// the choice by format.
#pragma once

#include "kernels/host/natural_log.h"
#include "kernels/host/row_block_kernels.h"
#include "kernels/host/row_operands.h"
#include "kernels/host/row_vectors.h"

namespace headrace::kernels {

namespace {

template <class Format>
struct CrossEntropy {
    using T = typename Format::Type;
    // Sums of exp are fp32 within this many elements, double beyond.
    static constexpr int64_t block_elements = 2048;
    static_assert(block_elements % sum_lane_count == 0);

    HEADRACE_INLINE static float highest_of(const T* logits, int64_t columns) {
        const Floats lowest = all(-__builtin_inff());
        Floats low = lowest;
        Floats high = lowest;
        int64_t i = 0;
        for (; i + 2 * lane_count <= columns; i += 2 * lane_count) {
            const Floats a = Format::widen(logits + i);
            const Floats b = Format::widen(logits + i + lane_count);
            low = a > low ? a : low;
            high = b > high ? b : high;
        }
        low = high > low ? high : low;
        float highest = -__builtin_inff();
        for (int64_t lane = 0; lane < lane_count; ++lane) {
            highest = low[lane] > highest ? low[lane] : highest;
        }
        for (; i < columns; ++i) {
            const float value = load<Format>(logits + i, Rest{1})[0];
            highest = value > highest ? value : highest;
        }
        return highest;
    }

    static void run(const CrossEntropyRows& rows) {
        const int64_t columns = rows.column_count;
        for (int64_t row = 0; row < rows.row_count; ++row) {
            T* logits = static_cast<T*>(rows.logits) + row * columns;
            T* target = logits + rows.targets[row];
            const float scale = rows.scales[row];
            const float highest = highest_of(logits, columns);
            const Floats below = load<Format>(target, Rest{1}) - highest;  // lane 0 counts
            double sum = 0;
            for (int64_t first = 0; first < columns; first += block_elements) {
                const int64_t left = columns - first;
                T* block = logits + first;
                sum += static_cast<double>(sum_lanes(
                    left < block_elements ? left : block_elements,
                    [&](int64_t i, auto lanes) { return exp_at(block + i, highest, lanes); }));
            }
            rows.losses[row] = natural_log(sum) - static_cast<double>(below[0]);
            const float factor = static_cast<float>(static_cast<double>(scale) / sum);
            for_lanes(columns, [&](int64_t i, auto lanes) {
                const Floats power = Format::rounds
                                         ? exp_of(load<Format>(logits + i, lanes) - highest)
                                         : load<Format>(logits + i, lanes);
                store<Format>(logits + i, power * factor, lanes);
            });
            store<Format>(target, exp_of(below) * factor - scale, Rest{1});
        }
    }

    // fp32 logits are replaced by their exp on the way, so that it is computed once.
    HEADRACE_INLINE static Floats exp_at(T* logits, float highest, Whole whole) {
        const Floats power = exp_of(load<Format>(logits, whole) - highest);
        if constexpr (!Format::rounds) store<Format>(logits, power, whole);
        return power;
    }
    HEADRACE_INLINE static Floats exp_at(T* logits, float highest, Rest rest) {
        const Floats power = exp_of(load<Format>(logits, rest) - highest);
        if constexpr (!Format::rounds) store<Format>(logits, power, rest);
        Floats counted = {};
        for (int64_t lane = 0; lane < rest.count; ++lane) counted[lane] = power[lane];
        return counted;
    }
};

template <class From, class To>
struct Convert {
    static void run(const ConvertRows& rows) {
        for (int64_t row = 0; row < rows.row_count; ++row) {
            const auto* source =
                static_cast<const typename From::Type*>(rows.source) + row * rows.source_stride;
            auto* target = static_cast<typename To::Type*>(rows.target) + row * rows.target_stride;
            for_lanes(rows.column_count, [&](int64_t i, auto lanes) {
                store<To>(target + i, load<From>(source + i, lanes), lanes);
            });
        }
    }
};

template <class From, class Rounded>
struct Gradient {
    static void run(const GradientElements& elements) {
        const auto* gradient = static_cast<const typename From::Type*>(elements.gradient);
        float* accumulator = elements.accumulator;
        const auto rounded = [&](int64_t i, auto lanes) {
            return Rounded::round(load<From>(gradient + i, lanes));
        };
        if (elements.add) {
            for_lanes(elements.element_count, [&](int64_t i, auto lanes) {
                store<Fp32>(accumulator + i, load<Fp32>(accumulator + i, lanes) + rounded(i, lanes),
                            lanes);
            });
        } else {
            for_lanes(elements.element_count, [&](int64_t i, auto lanes) {
                store<Fp32>(accumulator + i, rounded(i, lanes), lanes);
            });
        }
    }
};

// ---- by format ----------------------------------------------------------------------------------

template <template <class, class> class Kernel, class Operands>
void by_formats(const Operands& operands) {
    const Formats formats = operands.formats;
    if (formats.work == Element::bf16) return Kernel<Bf16, Bf16>::run(operands);
    switch (formats.storage) {
        case Element::fp32: return Kernel<Fp32, Fp32>::run(operands);
        case Element::bf16: return Kernel<Bf16, Fp32>::run(operands);
        case Element::fp16: return Kernel<Fp16, Fp32>::run(operands);
    }
}

void cross_entropy(const CrossEntropyRows& rows) {
    switch (rows.element) {
        case Element::fp32: return CrossEntropy<Fp32>::run(rows);
        case Element::bf16: return CrossEntropy<Bf16>::run(rows);
        case Element::fp16: return CrossEntropy<Fp16>::run(rows);
    }
}

void convert(const ConvertRows& rows) {
    if (rows.from == Element::bf16) return Convert<Bf16, Fp32>::run(rows);
    if (rows.from == Element::fp16) return Convert<Fp16, Fp32>::run(rows);
    switch (rows.to) {
        case Element::fp32: return Convert<Fp32, Fp32>::run(rows);
        case Element::bf16: return Convert<Fp32, Bf16>::run(rows);
        case Element::fp16: return Convert<Fp32, Fp16>::run(rows);
    }
}

void add_gradient(const GradientElements& elements) {
    if (elements.gradient_element == Element::bf16) return Gradient<Bf16, Fp32>::run(elements);
    if (elements.gradient_element == Element::fp16) return Gradient<Fp16, Fp32>::run(elements);
    switch (elements.rounded) {
        case Element::fp32: return Gradient<Fp32, Fp32>::run(elements);
        case Element::bf16: return Gradient<Fp32, Bf16>::run(elements);
        case Element::fp16: return Gradient<Fp32, Fp16>::run(elements);
    }
}

}  // namespace

const RowFunctions HEADRACE_ROW_FUNCTIONS = {
    .rms_norm = &by_formats<Norm, NormRows>,
    .rms_norm_backward = &by_formats<NormBackward, NormBackwardRows>,
    .swiglu = &by_formats<SwiGlu, SwiGluElements>,
    .swiglu_backward = &by_formats<SwiGluBackward, SwiGluBackwardElements>,
    .add_residual = &by_formats<Residual, ResidualElements>,
    .cross_entropy = &cross_entropy,
    .convert = &convert,
    .add_gradient = &add_gradient,
};

}  // namespace headrace::kernels

#undef HEADRACE_INLINE
