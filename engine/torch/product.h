// One square matrix product in fp32 on torch's threads, as a ceiling: the best that the products of
// a layer could do here.
#pragma once

#include <cstdint>
#include <memory>

namespace headrace::engine {

class SquareProduct {
  public:
    explicit SquareProduct(int64_t side);
    ~SquareProduct();
    SquareProduct(const SquareProduct&) = delete;
    SquareProduct& operator=(const SquareProduct&) = delete;

    // Returns its floating-point operations, 2 side^3.
    double multiply();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace headrace::engine
