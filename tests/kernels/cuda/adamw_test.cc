// Goal: the update on the card has the bits of the host twin, touches no element beyond its count,
// and where there is no card says so.
// Method: the built module; operands in the card's memory; all formats, counts with and without a
// tail, more elements than the grid has threads, several steps. Skips itself without a card.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kernels/cuda_module.h"
#include "tests/kernels/update_case.h"

namespace headrace::kernels {
namespace {

constexpr uint64_t guard_elements = 16;  // behind every array, to stay as they are

int device_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// One array on the card, and its guard.
template <typename T>
class DeviceArray {
  public:
    explicit DeviceArray(const std::vector<T>& values) : element_count_(values.size()) {
        if (values.empty()) return;
        std::vector<T> padded = values;
        padded.resize(element_count_ + guard_elements, guard());
        EXPECT_EQ(cudaMalloc(&data_, padded.size() * sizeof(T)), cudaSuccess);
        EXPECT_EQ(
            cudaMemcpy(data_, padded.data(), padded.size() * sizeof(T), cudaMemcpyHostToDevice),
            cudaSuccess);
    }
    DeviceArray(const DeviceArray&) = delete;
    ~DeviceArray() { cudaFree(data_); }

    T* get() const { return static_cast<T*>(data_); }
    std::vector<T> values() const {
        if (element_count_ == 0) return {};
        std::vector<T> padded(element_count_ + guard_elements);
        EXPECT_EQ(
            cudaMemcpy(padded.data(), data_, padded.size() * sizeof(T), cudaMemcpyDeviceToHost),
            cudaSuccess);
        for (uint64_t i = element_count_; i < padded.size(); ++i) EXPECT_EQ(padded[i], guard());
        padded.resize(element_count_);
        return padded;
    }

  private:
    static T guard() { return static_cast<T>(77); }

    uint64_t element_count_ = 0;
    void* data_ = nullptr;
};

UpdateCase updated_on_card(const CudaUpdate& update, const UpdateCase& before) {
    const DeviceArray<uint16_t> hi(before.hi), lo(before.lo), gradient_bf16(before.gradient_bf16);
    const DeviceArray<float> weight(before.weight), m(before.m), v(before.v);
    const DeviceArray<float> gradient_fp32(before.gradient_fp32);
    const DeviceArray<uint16_t> m_bf16(before.m_bf16), v_bf16(before.v_bf16);
    const DeviceArray<uint16_t> steps(before.steps);
    const DeviceArray<int8_t> m_int8(before.m_int8);
    const DeviceArray<uint8_t> root_uint8(before.root_uint8);
    const UpdateOperands operands{.element_count = before.element_count(),
                                  .hi = hi.get(),
                                  .lo = lo.get(),
                                  .weight = weight.get(),
                                  .m = m.get(),
                                  .v = v.get(),
                                  .gradient_bf16 = gradient_bf16.get(),
                                  .gradient_fp32 = gradient_fp32.get(),
                                  .m_bf16 = m_bf16.get(),
                                  .v_bf16 = v_bf16.get(),
                                  .first_element = case_first_element,
                                  .rounding = case_rounding,
                                  .m_int8 = m_int8.get(),
                                  .root_uint8 = root_uint8.get(),
                                  .steps = steps.get()};
    EXPECT_EQ(find_fault(operands), nullptr);
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    for (const UpdateFactors& factors : case_factors()) {
        EXPECT_EQ(update.start(&factors, &operands, stream), 0);
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    UpdateCase after;
    after.hi = hi.values();
    after.lo = lo.values();
    after.gradient_bf16 = gradient_bf16.values();
    after.weight = weight.values();
    after.m = m.values();
    after.v = v.values();
    after.gradient_fp32 = gradient_fp32.values();
    after.m_bf16 = m_bf16.values();
    after.v_bf16 = v_bf16.values();
    after.steps = steps.values();
    after.m_int8 = m_int8.values();
    after.root_uint8 = root_uint8.values();
    return after;
}

TEST(CudaAdamw, has_the_bits_of_the_host_twin) {
    if (device_count() == 0) GTEST_SKIP() << "no card";
    const auto update = find_cuda_update(cuda_module_path());
    ASSERT_TRUE(update.ok()) << update.error().text();
    for (const uint64_t element_count : {1u, 4u, 1023u, 65536u, 5000003u}) {
        for (CaseShape shape : case_shapes()) {
            shape.element_count = element_count;
            UpdateCase twin = make_case(shape, 12);
            const UpdateCase after = updated_on_card(*update, twin);
            for (const UpdateFactors& factors : case_factors()) {
                update_on_host(factors, twin.operands());
            }
            EXPECT_TRUE(after == twin) << element_count << " elements";
        }
    }
}

TEST(CudaAdamw, without_a_card_it_says_so) {
    if (device_count() > 0) GTEST_SKIP() << "there is a card";
    const auto update = find_cuda_update(cuda_module_path());
    ASSERT_TRUE(update.ok()) << update.error().text();
    UpdateCase one = make_case({.element_count = 8}, 1);
    const UpdateOperands operands = one.operands();
    EXPECT_NE(update->start(&case_factors()[0], &operands, nullptr), 0);
}

}  // namespace
}  // namespace headrace::kernels
