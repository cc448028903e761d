#include "engine/torch/product.h"

#include "engine/torch/torch.h"

namespace headrace::engine {

struct SquareProduct::State {
    at::Tensor left, right, out;
};

SquareProduct::SquareProduct(int64_t side)
    : state_(std::make_unique<State>(
          State{.left = at::ones({side, side}, at::TensorOptions().dtype(at::kFloat)),
                .right = at::ones({side, side}, at::TensorOptions().dtype(at::kFloat)),
                .out = at::empty({side, side}, at::TensorOptions().dtype(at::kFloat))})) {
    CHECK_GT(side, 0);
}

SquareProduct::~SquareProduct() = default;

double SquareProduct::multiply() {
    const at::NoGradGuard no_graph;
    at::mm_out(state_->out, state_->left, state_->right);
    const auto side = static_cast<double>(state_->left.size(0));
    return 2 * side * side * side;
}

}  // namespace headrace::engine
