// A part of a model: its first and last layer and some of the blocks between, at full width, placed
// as the whole is. Every layer of the part stands for one of the whole and is where that one is.
#pragma once

#include "engine/plan/placement.h"

namespace headrace::engine {

// The layer of the whole that a layer of the part stands for: the first and the last for
// themselves, blocks evenly taken from those between.
uint32_t source_layer(uint32_t layer, uint32_t layer_count, uint32_t whole_layer_count);

// part_model: the whole's with fewer blocks, at least one (CHECK). Budgets and forecast stay those
// of the whole; needs are the part's.
Placement part_of(const Placement& whole, const LlamaConfig& part_model);

}  // namespace headrace::engine
