// Effort: the arithmetic of a workload's compute ops, which layouts do not tell: floating-point
// operations per layer and micro-batch (a multiply and an add are two). The engine that knows the
// model counts them, for the largest micro-batch.
#pragma once

#include <vector>

namespace headrace::offload {

struct LayerEffort {
    double forward_flop = 0;
    double recompute_flop = 0;  // of backward, where the layer's values were not kept
    double backward_flop = 0;   // without it. The head: forward is 0, all is here
};

struct Effort {
    std::vector<LayerEffort> layers;  // as Layout::layers
    double loss_flop = 0;             // the head without backward, in an evaluation
};

// Of micro-batches that are so much smaller, in [0, 1], than those it was counted for.
inline Effort scaled(Effort effort, double share) {
    for (LayerEffort& layer : effort.layers) {
        layer.forward_flop *= share;
        layer.recompute_flop *= share;
        layer.backward_flop *= share;
    }
    effort.loss_flop *= share;
    return effort;
}

}  // namespace headrace::offload
