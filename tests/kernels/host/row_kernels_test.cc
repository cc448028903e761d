// Goal: the row kernels compute what their contract says, and every row of the table the same bits.
// Method: each kernel against its definition in double; conversions against the definitions of
// offload/ for every 16-bit pattern and for awkward floats; then all rows against each other, bit
// for bit, over lengths around every vector width, at odd addresses, in all formats.
#include "kernels/host/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "offload/fp16.h"

namespace headrace::kernels {

extern const RowFunctions row_functions_sixteen_lanes;

namespace {

constexpr Element elements[] = {Element::fp32, Element::bf16, Element::fp16};
constexpr Formats formats[] = {{Element::fp32, Element::fp32},
                               {Element::bf16, Element::fp32},
                               {Element::fp16, Element::fp32},
                               {Element::bf16, Element::bf16}};

// Elements of a format, a chosen number of bytes away from a 64-byte boundary.
class Values {
  public:
    Values(Element element, size_t element_count, size_t shift_bytes = 0)
        : element_(element), bytes_(element_count * 4 + 192, std::byte{0xFF}) {
        const size_t misaligned = reinterpret_cast<uintptr_t>(bytes_.data()) % 64;
        first_ = 64 - misaligned + shift_bytes;
        count_ = element_count;
    }
    static Values random(Element element, size_t element_count, uint32_t seed,
                         size_t shift_bytes = 0) {
        Values values(element, element_count, shift_bytes);
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal(0.0f, 2.0f);
        for (size_t i = 0; i < element_count; ++i) values.set(i, normal(generator));
        return values;
    }
    void* data() { return bytes_.data() + first_; }
    void set(size_t i, float value) {
        if (element_ == Element::fp32) {
            std::memcpy(bytes_.data() + first_ + 4 * i, &value, 4);
        } else {
            const uint16_t bits = element_ == Element::bf16 ? offload::float_to_bf16(value)
                                                            : offload::float_to_fp16(value);
            std::memcpy(bytes_.data() + first_ + 2 * i, &bits, 2);
        }
    }
    float at(size_t i) const {
        if (element_ == Element::fp32) {
            float value;
            std::memcpy(&value, bytes_.data() + first_ + 4 * i, 4);
            return value;
        }
        uint16_t bits;
        std::memcpy(&bits, bytes_.data() + first_ + 2 * i, 2);
        return element_ == Element::bf16 ? offload::bf16_to_float(bits)
                                         : offload::fp16_to_float(bits);
    }
    std::vector<std::byte> content() const {
        const size_t size_bytes = count_ * (element_ == Element::fp32 ? 4 : 2);
        return {bytes_.begin() + static_cast<ptrdiff_t>(first_),
                bytes_.begin() + static_cast<ptrdiff_t>(first_ + size_bytes)};
    }
    // Nothing behind the last element was written.
    bool end_is_untouched() const {
        const size_t end = first_ + count_ * (element_ == Element::fp32 ? 4 : 2);
        for (size_t i = end; i < bytes_.size(); ++i) {
            if (bytes_[i] != std::byte{0xFF}) return false;
        }
        return true;
    }

  private:
    Element element_;
    std::vector<std::byte> bytes_;
    size_t first_ = 0;
    size_t count_ = 0;
};

double tolerance(Element element) {
    return element == Element::fp32 ? 2e-6 : element == Element::fp16 ? 2e-3 : 1.2e-2;
}

// Everything that the kernels make of the same operands, as bytes.
struct Results {
    std::vector<std::vector<std::byte>> bytes;
    bool ends_are_untouched = true;

    void take(const Values& values) {
        bytes.push_back(values.content());
        ends_are_untouched = ends_are_untouched && values.end_is_untouched();
    }
};

void run_norm(const RowFunctions& run, Formats f, int64_t columns, size_t shift, Results& results) {
    const auto count = static_cast<size_t>(3 * columns);
    const auto width = static_cast<size_t>(columns);
    Values x = Values::random(f.storage, count, 1, shift);
    Values weight = Values::random(f.storage, width, 2, shift);
    Values y(f.work, count, shift);
    Values inverse(Element::fp32, 3, shift);
    Values dy = Values::random(f.work, count, 3, shift);
    Values sum = Values::random(f.work, count, 4, shift);
    Values gradient(Element::fp32, width, shift);
    run.rms_norm({f, 3, columns, 1e-5f, x.data(), weight.data(), y.data(),
                  static_cast<float*>(inverse.data())});
    run.rms_norm_backward({f, 3, columns, dy.data(), x.data(), static_cast<float*>(inverse.data()),
                           weight.data(), sum.data(), static_cast<float*>(gradient.data())});
    for (const Values* values : {&y, &inverse, &sum, &gradient}) results.take(*values);
}

void run_elementwise(const RowFunctions& run, Formats f, int64_t count, size_t shift,
                     Results& results) {
    const auto n = static_cast<size_t>(count);
    Values gate = Values::random(f.storage, n, 5, shift);
    Values up = Values::random(f.storage, n, 6, shift);
    Values product(f.work, n, shift);
    Values d_product = Values::random(f.work, n, 7, shift);
    Values d_up(f.work, n, shift);
    Values out(f.storage, n, shift);
    run.swiglu({f, count, gate.data(), up.data(), product.data()});
    run.swiglu_backward({f, count, gate.data(), up.data(), d_product.data(), d_up.data()});
    run.add_residual({f, count, gate.data(), product.data(), out.data()});
    for (const Values* values : {&product, &d_product, &d_up, &out}) results.take(*values);
    for (const bool add : {false, true}) {
        Values accumulator = Values::random(Element::fp32, n, 8, shift);
        run.add_gradient({f.work, f.storage, count, product.data(),
                          static_cast<float*>(accumulator.data()), add});
        results.take(accumulator);
    }
}

void run_cross_entropy(const RowFunctions& run, Element element, int64_t columns, size_t shift,
                       Results& results) {
    Values logits = Values::random(element, static_cast<size_t>(2 * columns), 9, shift);
    const int32_t targets[] = {0, static_cast<int32_t>(columns - 1)};
    const float scales[] = {0.25f, 0.0f};
    double losses[2];
    run.cross_entropy({element, 2, columns, logits.data(), targets, scales, losses});
    results.take(logits);
    const auto* first = reinterpret_cast<const std::byte*>(losses);
    results.bytes.emplace_back(first, first + sizeof(losses));
}

Results run_all(const RowFunctions& run, int64_t columns, size_t shift) {
    Results results;
    for (const Formats f : formats) {
        run_norm(run, f, columns, shift, results);
        run_elementwise(run, f, columns, shift, results);
    }
    for (const Element element : elements) {
        run_cross_entropy(run, element, columns, shift, results);
    }
    return results;
}

// What the machine can run of the table, and the source of the AVX-512 row without AVX-512.
std::vector<RowKernels> runnable_rows() {
    std::vector<RowKernels> rows = {{"sixteen lanes", Isa::baseline, row_functions_sixteen_lanes}};
    for (const RowKernels& row : row_kernels()) {
        if (has(row.required_isa)) rows.push_back(row);
    }
    return rows;
}

TEST(RowKernels, EveryRowHasTheSameBitsAtEveryLengthAndAddress) {
    const RowFunctions& oracle = row_kernels().back().functions;
    for (const int64_t columns : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40, 67, 576, 2049}) {
        const Results expected = run_all(oracle, columns, 0);
        EXPECT_TRUE(expected.ends_are_untouched);
        for (const RowKernels& row : runnable_rows()) {
            for (const size_t shift_bytes : {0, 4, 32}) {
                const Results results = run_all(row.functions, columns, shift_bytes);
                EXPECT_TRUE(results.ends_are_untouched);
                EXPECT_EQ(results.bytes, expected.bytes)
                    << row.name << ", " << columns << " columns, shift " << shift_bytes;
            }
        }
    }
}

TEST(RowKernels, NormIsItsDefinition) {
    constexpr int64_t columns = 131;
    for (const Formats f : formats) {
        Values x = Values::random(f.storage, columns, 1);
        Values weight = Values::random(f.storage, columns, 2);
        Values dy = Values::random(f.work, columns, 3);
        Values y(f.work, columns), sum(f.work, columns), gradient(Element::fp32, columns);
        for (size_t i = 0; i < columns; ++i) sum.set(i, 0.5f);
        float inverse_rms = 0;
        const RowFunctions& run = best_row_kernels().functions;
        run.rms_norm({f, 1, columns, 1e-5f, x.data(), weight.data(), y.data(), &inverse_rms});
        run.rms_norm_backward({f, 1, columns, dy.data(), x.data(), &inverse_rms, weight.data(),
                               sum.data(), static_cast<float*>(gradient.data())});
        double squares = 0;
        for (size_t i = 0; i < columns; ++i) squares += std::pow(x.at(i), 2.0);
        const double inverse = 1 / std::sqrt(squares / columns + 1e-5);
        double along = 0;
        for (size_t i = 0; i < columns; ++i) along += dy.at(i) * weight.at(i) * x.at(i) * inverse;
        const double limit = tolerance(f.work);
        for (size_t i = 0; i < columns; ++i) {
            const double unit = x.at(i) * inverse;
            const double dx = (dy.at(i) * weight.at(i) - unit * along / columns) * inverse;
            EXPECT_NEAR(y.at(i), unit * weight.at(i), limit * (1e-2 + std::abs(y.at(i))));
            EXPECT_NEAR(sum.at(i), 0.5 + dx, limit * (1 + std::abs(dx)));
            EXPECT_NEAR(gradient.at(i), dy.at(i) * unit, 2e-6 * (1 + std::abs(dy.at(i) * unit)));
        }
    }
}

TEST(RowKernels, SwiGluIsItsDefinition) {
    constexpr size_t count = 2001;
    for (const Formats f : formats) {
        Values gate = Values::random(f.storage, count, 1);
        Values up = Values::random(f.storage, count, 2);
        for (size_t i = 0; i < 400; ++i) gate.set(i, static_cast<float>(i) - 200.0f);
        Values d = Values::random(f.work, count, 3);
        const Values given = d;
        Values product(f.work, count), d_up(f.work, count);
        const RowFunctions& run = best_row_kernels().functions;
        run.swiglu({f, count, gate.data(), up.data(), product.data()});
        run.swiglu_backward({f, count, gate.data(), up.data(), d.data(), d_up.data()});
        const double limit = tolerance(f.work);
        for (size_t i = 0; i < count; ++i) {
            const double g = gate.at(i);
            const double s = 1 / (1 + std::exp(-g));
            const double slope = s * (1 + g * (1 - s));
            const auto near = [&](float got, double factor, double wanted, double least) {
                const double size = std::max(std::abs(wanted), least);
                EXPECT_NEAR(got, factor * wanted, limit * std::abs(factor) * size) << g;
            };
            near(product.at(i), up.at(i), g * s, 1e-3);
            near(d_up.at(i), given.at(i), g * s, 1e-3);
            near(d.at(i), given.at(i) * up.at(i), slope, 0.1);  // the slope has a zero at -1.28
        }
    }
}

TEST(RowKernels, CrossEntropyIsItsDefinition) {
    constexpr int64_t columns = 5003;  // more than a block of sums
    for (const Element element : elements) {
        Values logits = Values::random(element, columns, 1);
        logits.set(17, -60.0f);
        logits.set(4711, 8.0f);
        const Values given = logits;
        const int32_t target = 4711;
        const float scale = 0.125f;
        double loss = 0;
        best_row_kernels().functions.cross_entropy(
            {element, 1, columns, logits.data(), &target, &scale, &loss});
        double highest = 0;
        for (size_t i = 0; i < columns; ++i) {
            highest = std::max(highest, static_cast<double>(given.at(i)));
        }
        double sum = 0;
        for (size_t i = 0; i < columns; ++i) sum += std::exp(given.at(i) - highest);
        EXPECT_NEAR(loss, std::log(sum) + highest - given.at(4711), 1e-6);
        for (size_t i = 0; i < columns; ++i) {
            const double p = std::exp(given.at(i) - highest) / sum;
            const double wanted = scale * (p - (i == 4711 ? 1.0 : 0.0));
            EXPECT_NEAR(logits.at(i), wanted,
                        tolerance(element) * std::abs(wanted) + (i == 4711 ? 1e-8 : 3e-8));
        }
    }
}

uint32_t bits_of_float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

TEST(RowKernels, WidensEverySixteenBitPattern) {
    constexpr int64_t count = 1 << 16;
    std::vector<uint16_t> patterns(count);
    for (size_t i = 0; i < count; ++i) patterns[i] = static_cast<uint16_t>(i);
    for (const RowKernels& row : runnable_rows()) {
        for (const Element from : {Element::bf16, Element::fp16}) {
            std::vector<float> wide(count);
            row.functions.convert(
                {from, Element::fp32, 1, count, patterns.data(), count, wide.data(), count});
            for (size_t i = 0; i < count; ++i) {
                const float expected = from == Element::bf16 ? offload::bf16_to_float(patterns[i])
                                                             : offload::fp16_to_float(patterns[i]);
                if (std::isnan(expected)) {
                    ASSERT_TRUE(std::isnan(wide[i])) << i;
                } else {
                    ASSERT_EQ(bits_of_float(wide[i]), bits_of_float(expected)) << i;
                }
            }
        }
    }
}

// Every upper half with lower halves around the ties of both formats.
TEST(RowKernels, RoundsToNearestEven) {
    std::vector<float> values;
    for (uint32_t upper = 0; upper < 0x10000; ++upper) {
        for (const uint32_t lower :
             {0x0u, 0x1u, 0xFFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
            const uint32_t bits = upper << 16 | lower;
            float value;
            std::memcpy(&value, &bits, sizeof(value));
            values.push_back(value);
        }
    }
    const auto count = static_cast<int64_t>(values.size());
    for (const RowKernels& row : runnable_rows()) {
        for (const Element to : {Element::bf16, Element::fp16}) {
            std::vector<uint16_t> rounded(values.size());
            std::vector<float> accumulator(values.size());
            row.functions.convert(
                {Element::fp32, to, 1, count, values.data(), count, rounded.data(), count});
            row.functions.add_gradient(
                {Element::fp32, to, count, values.data(), accumulator.data(), false});
            for (size_t i = 0; i < values.size(); ++i) {
                const uint16_t expected = to == Element::bf16 ? offload::float_to_bf16(values[i])
                                                              : offload::float_to_fp16(values[i]);
                ASSERT_EQ(rounded[i], expected) << values[i];
                const float wide = to == Element::bf16 ? offload::bf16_to_float(expected)
                                                       : offload::fp16_to_float(expected);
                if (!std::isnan(wide)) {
                    ASSERT_EQ(bits_of_float(accumulator[i]), bits_of_float(wide));
                }
            }
        }
    }
}

TEST(RowKernels, ConvertsAPartOfTheColumnsAndTouchesNoOther) {
    constexpr int64_t stride = 11;
    std::vector<float> source(3 * stride);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i);
    std::vector<uint16_t> target(3 * stride, 0xFFFF);
    best_row_kernels().functions.convert(
        {Element::fp32, Element::bf16, 3, 9, source.data() + 1, stride, target.data() + 1, stride});
    for (size_t i = 0; i < target.size(); ++i) {
        const bool inside = i % stride >= 1 && i % stride < 10;
        EXPECT_EQ(target[i], inside ? offload::float_to_bf16(source[i]) : 0xFFFF) << i;
    }
}

TEST(RowKernels, NotANumberStaysOne) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> gate = {nan, 1.0f}, up = {1.0f, nan}, product(2);
    const RowFunctions& run = best_row_kernels().functions;
    run.swiglu({{Element::fp32, Element::fp32}, 2, gate.data(), up.data(), product.data()});
    EXPECT_TRUE(std::isnan(product[0]));
    EXPECT_TRUE(std::isnan(product[1]));
    std::vector<float> logits = {0.0f, nan, 1.0f};
    const int32_t target = 0;
    const float scale = 1.0f;
    double loss = 0;
    run.cross_entropy({Element::fp32, 1, 3, logits.data(), &target, &scale, &loss});
    EXPECT_TRUE(std::isnan(loss));
    for (const float value : logits) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace headrace::kernels
