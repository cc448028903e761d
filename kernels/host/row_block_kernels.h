// The row kernels of a block (kernels/host/row_kernels.h): RMSNorm, SwiGLU, residual sums. Included
// once by one file per instruction set, through kernels/host/row_kernels_body.h.
#pragma once

#include <cmath>

#include "kernels/host/row_operands.h"
#include "kernels/host/row_vectors.h"

namespace headrace::kernels {

namespace {

template <class Storage, class Work>
struct Norm {
    using S = typename Storage::Type;
    using W = typename Work::Type;
    static void run(const NormRows& rows) {
        const int64_t columns = rows.column_count;
        const S* weight = static_cast<const S*>(rows.weight);
        for (int64_t row = 0; row < rows.row_count; ++row) {
            const S* x = static_cast<const S*>(rows.x) + row * columns;
            W* y = static_cast<W*>(rows.y) + row * columns;
            const float squares = sum_lanes(columns, [&](int64_t i, auto lanes) {
                const Floats value = load<Storage>(x + i, lanes);
                return value * value;
            });
            const float mean = squares / static_cast<float>(columns);
            const float inverse_rms = 1.0f / std::sqrt(mean + rows.epsilon);
            rows.inverse_rms[row] = inverse_rms;
            for_lanes(columns, [&](int64_t i, auto lanes) {
                const Floats unit = Work::round(load<Storage>(x + i, lanes) * inverse_rms);
                store<Work>(y + i, unit * load<Storage>(weight + i, lanes), lanes);
            });
        }
    }
};

template <class Storage, class Work>
struct NormBackward {
    using S = typename Storage::Type;
    using W = typename Work::Type;
    static void run(const NormBackwardRows& rows) {
        const int64_t columns = rows.column_count;
        const S* weight = static_cast<const S*>(rows.weight);
        float* weight_gradient = rows.weight_gradient;
        std::memset(weight_gradient, 0, static_cast<size_t>(columns) * sizeof(float));
        for (int64_t row = 0; row < rows.row_count; ++row) {
            const S* x = static_cast<const S*>(rows.x) + row * columns;
            const W* dy = static_cast<const W*>(rows.dy) + row * columns;
            W* sum = static_cast<W*>(rows.sum) + row * columns;
            const float inverse_rms = rows.inverse_rms[row];
            const float along = sum_lanes(columns, [&](int64_t i, auto lanes) {
                const Floats unit = load<Storage>(x + i, lanes) * inverse_rms;
                const Floats gradient = load<Work>(dy + i, lanes);
                store<Fp32>(weight_gradient + i,
                            load<Fp32>(weight_gradient + i, lanes) + gradient * unit, lanes);
                return gradient * load<Storage>(weight + i, lanes) * unit;
            });
            const float mean = along / static_cast<float>(columns);
            for_lanes(columns, [&](int64_t i, auto lanes) {
                const Floats unit = load<Storage>(x + i, lanes) * inverse_rms;
                const Floats d_unit = load<Work>(dy + i, lanes) * load<Storage>(weight + i, lanes);
                const Floats dx = (d_unit - unit * mean) * inverse_rms;
                store<Work>(sum + i, load<Work>(sum + i, lanes) + dx, lanes);
            });
        }
    }
};

template <class Storage, class Work>
struct SwiGlu {
    using S = typename Storage::Type;
    using W = typename Work::Type;
    static void run(const SwiGluElements& elements) {
        const S* gate = static_cast<const S*>(elements.gate);
        const S* up = static_cast<const S*>(elements.up);
        W* product = static_cast<W*>(elements.product);
        for_lanes(elements.element_count, [&](int64_t i, auto lanes) {
            const Floats g = load<Storage>(gate + i, lanes);
            const Floats silu = Work::round(g * sigmoid(g));
            store<Work>(product + i, silu * load<Storage>(up + i, lanes), lanes);
        });
    }
};

template <class Storage, class Work>
struct SwiGluBackward {
    using S = typename Storage::Type;
    using W = typename Work::Type;
    static void run(const SwiGluBackwardElements& elements) {
        const S* gate = static_cast<const S*>(elements.gate);
        const S* up = static_cast<const S*>(elements.up);
        W* d_product = static_cast<W*>(elements.d_product);
        W* d_up = static_cast<W*>(elements.d_up);
        for_lanes(elements.element_count, [&](int64_t i, auto lanes) {
            const Floats g = load<Storage>(gate + i, lanes);
            const Floats d = load<Work>(d_product + i, lanes);
            const Floats s = sigmoid(g);
            const Floats slope = s * (1.0f + g * (1.0f - s));
            store<Work>(d_up + i, d * Work::round(g * s), lanes);
            store<Work>(d_product + i, d * load<Storage>(up + i, lanes) * slope, lanes);
        });
    }
};

template <class Storage, class Work>
struct Residual {
    using S = typename Storage::Type;
    using W = typename Work::Type;
    static void run(const ResidualElements& elements) {
        const S* x = static_cast<const S*>(elements.x);
        const W* y = static_cast<const W*>(elements.y);
        S* out = static_cast<S*>(elements.out);
        for_lanes(elements.element_count, [&](int64_t i, auto lanes) {
            store<Storage>(out + i, load<Storage>(x + i, lanes) + load<Work>(y + i, lanes), lanes);
        });
    }
};

}  // namespace

}  // namespace headrace::kernels
