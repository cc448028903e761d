// One square matrix product on torch's threads, in what products of `dtype` are multiplied in here,
// as a ceiling: the best that the products of a layer could do.
#pragma once

#include <cstdint>
#include <memory>

#include "offload/dtype.h"

namespace headrace::engine {

class SquareProduct {
  public:
    SquareProduct(int64_t side, offload::Dtype dtype);
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
