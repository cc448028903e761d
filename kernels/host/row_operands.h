// The operands of the row kernels (kernels/host/row_kernels.h). Plain structs only: the translation
// units with instruction-set flags include this header, and an inline function here could be kept
// by the linker in a form that not every machine can run.
//
// Matrices are contiguous, rows one after another; `column_count` is a row's elements. A function
// works on the rows or elements that it is given and nothing else: whoever calls it cuts a matrix
// into ranges of rows. Memory need not be aligned beyond its elements. Arithmetic is fp32; results
// are rounded to nearest even as they are written, every NaN to the format's quiet one.
#pragma once

#include <cstdint>

namespace headrace::kernels {

enum class Element : uint8_t { fp32, bf16, fp16 };

// storage: weights, hidden states, what is kept. work: what lies between two matrix products, fp32
// or storage. Pairs: {x, fp32} for every x, {bf16, bf16}.
struct Formats {
    Element storage = Element::fp32;
    Element work = Element::fp32;
};

// inverse_rms[r] = 1 / sqrt(mean of x[r]^2 + epsilon); y = round(x * inverse_rms) * weight.
struct NormRows {
    Formats formats;
    int64_t row_count = 0;
    int64_t column_count = 0;
    float epsilon = 0;
    const void* x = nullptr;       // storage
    const void* weight = nullptr;  // storage, one row
    void* y = nullptr;             // work
    float* inverse_rms = nullptr;
};

// With u = x * inverse_rms and d = dy * weight, summed up in fp32:
// sum += (d - u * mean of (d * u)) * inverse_rms; weight_gradient = sum over the rows of dy * u.
struct NormBackwardRows {
    Formats formats;
    int64_t row_count = 0;
    int64_t column_count = 0;
    const void* dy = nullptr;            // work
    const void* x = nullptr;             // storage
    const float* inverse_rms = nullptr;  // of these rows
    const void* weight = nullptr;        // storage, one row
    void* sum = nullptr;                 // work
    float* weight_gradient = nullptr;    // one row, overwritten
};

// product = round(silu(gate)) * up
struct SwiGluElements {
    Formats formats;
    int64_t element_count = 0;
    const void* gate = nullptr;  // storage
    const void* up = nullptr;    // storage
    void* product = nullptr;     // work
};

// d_product becomes the gradient of gate; d_up is overwritten with that of up.
struct SwiGluBackwardElements {
    Formats formats;
    int64_t element_count = 0;
    const void* gate = nullptr;  // storage
    const void* up = nullptr;    // storage
    void* d_product = nullptr;   // work
    void* d_up = nullptr;        // work
};

// out = x + y
struct ResidualElements {
    Formats formats;
    int64_t element_count = 0;
    const void* x = nullptr;  // storage
    const void* y = nullptr;  // work
    void* out = nullptr;      // storage, may be x
};

// Cross entropy of rows of logits, which become scales[r] * d losses[r] / d logits.
// losses[r] = log of the sum of exp(logits[r]) - logits[r][targets[r]], in double.
struct CrossEntropyRows {
    Element element = Element::fp32;
    int64_t row_count = 0;
    int64_t column_count = 0;
    void* logits = nullptr;
    const int32_t* targets = nullptr;  // in [0, column_count)
    const float* scales = nullptr;
    double* losses = nullptr;
};

// A table of rows is read with its rows' distance, so that a part of its columns can be converted.
// target[r][c] = source[r][c], from one format to another.
struct ConvertRows {
    Element from = Element::fp32;
    Element to = Element::fp32;
    int64_t row_count = 0;
    int64_t column_count = 0;
    const void* source = nullptr;
    int64_t source_stride = 0;  // elements from row to row
    void* target = nullptr;
    int64_t target_stride = 0;
};

// accumulator = or += the gradient, rounded to `rounded` on the way.
struct GradientElements {
    Element gradient_element = Element::fp32;  // fp32, or `rounded`
    Element rounded = Element::fp32;
    int64_t element_count = 0;
    const void* gradient = nullptr;
    float* accumulator = nullptr;
    bool add = false;  // else stored: the old bytes are never read
};

// What one instruction set offers.
struct RowFunctions {
    void (*rms_norm)(const NormRows&) = nullptr;
    void (*rms_norm_backward)(const NormBackwardRows&) = nullptr;
    void (*swiglu)(const SwiGluElements&) = nullptr;
    void (*swiglu_backward)(const SwiGluBackwardElements&) = nullptr;
    void (*add_residual)(const ResidualElements&) = nullptr;
    void (*cross_entropy)(const CrossEntropyRows&) = nullptr;
    void (*convert)(const ConvertRows&) = nullptr;
    void (*add_gradient)(const GradientElements&) = nullptr;
};
extern const RowFunctions row_functions_avx512;
extern const RowFunctions row_functions_avx2;
extern const RowFunctions row_functions_baseline;

}  // namespace headrace::kernels
