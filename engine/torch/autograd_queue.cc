#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <memory>

#include "engine/torch/autograd_queue.h"

namespace headrace::engine {

namespace {

// The queue gives out the node with the highest number first, and drops tasks of dead passes when
// it comes to them. So a pass whose only node has number 0 sees all of them out.
struct LastNode : torch::autograd::Node {
    LastNode() : Node(/*sequence_nr=*/0) {}
    torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
};

}  // namespace

void drop_stale_autograd_tasks() {
    float zero = 0.0f;
    const at::TensorOptions fp32 = at::TensorOptions().dtype(at::kFloat);
    at::Tensor root;
    {
        const at::NoGradGuard no_graph;
        root = at::from_blob(&zero, at::IntArrayRef{1}, fp32);
    }
    const auto node = std::make_shared<LastNode>();
    torch::autograd::create_gradient_edge(root, node);
    CHECK_EQ(node->sequence_nr(), 0u);
    torch::autograd::backward({root}, {at::from_blob(&zero, at::IntArrayRef{1}, fp32)});
    CHECK(root.requires_grad());
}

}  // namespace headrace::engine
