#include "engine/torch/product.h"

#include "engine/torch/ops/matmul.h"
#include "engine/torch/scalar_type.h"
#include "engine/torch/torch.h"

namespace headrace::engine {

struct SquareProduct::State {
    at::Tensor left, right, out;
};

SquareProduct::SquareProduct(int64_t side, offload::Dtype dtype) {
    CHECK_GT(side, 0);
    const at::TensorOptions options = at::TensorOptions().dtype(scalar_type_of(work_dtype(dtype)));
    state_ = std::make_unique<State>(State{.left = at::ones({side, side}, options),
                                           .right = at::ones({side, side}, options),
                                           .out = at::empty({side, side}, options)});
}

SquareProduct::~SquareProduct() = default;

double SquareProduct::multiply() {
    const at::NoGradGuard no_graph;
    at::mm_out(state_->out, state_->left, state_->right);
    const auto side = static_cast<double>(state_->left.size(0));
    return 2 * side * side * side;
}

}  // namespace headrace::engine
