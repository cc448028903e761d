// Fill: what a choice that fits does with the room that is left. Layers keep what their backward
// needs, parts are cached, activations and gradients wait nearer; a few numbers of the choice, each
// made as large as there is room for. What the question fixes is left as it is.
#pragma once

#include "offload/room.h"

namespace headrace::offload {

// Of the workload's layers, those that can keep: all between the first and the last, or none.
uint32_t can_keep_count(const Workload& workload);

// As many layers as the counts say, the gpu's first, and no more than can keep.
void keep_counts(const Room& room, const KeptCounts& counts, Choice& choice);

// As many layers as there is room for beside the rest of the choice on the gpu and, where it is
// full, in ram, and all others on nvme, as far as `farthest` allows. Ram is reached through a ring
// on the gpu, nvme through one in ram too; whether nvme has room is left to whoever asks next.
void keep_most(const Room& room, Tier farthest, Choice& choice);

// As many parts as ram has room for.
void cache_parts(const Room& room, Choice& choice);

// No more boundary activations than must be are far away: those that backward wants first are as
// near as there is room for, on the gpu too if `nearest` is the gpu.
void bring_activations_near(const Room& room, Tier nearest, Choice& choice);

// The same of gradients, in ram: of all parts, or of the first layer's alone.
enum class WhoseGradients : uint8_t { all, first_layer };
void bring_gradients_near(const Room& room, WhoseGradients whose, Choice& choice);

}  // namespace headrace::offload
