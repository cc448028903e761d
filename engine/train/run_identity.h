// The identity of a run from its inputs (engine/resume/identity.h says what it is for).
#pragma once

#include "engine/checkpoint/checkpoint.h"
#include "engine/resume/identity.h"
#include "engine/train/train.h"

namespace headrace::engine {

// What a run must have in common with another to give the same bits. `card` is the one that is
// emulated; null: none. That one is, and nothing is computed, changes bits; which one, and where
// its file lies, does not: its name is there to be read.
std::vector<Fact> numerics_of(const TrainInputs& inputs, const MachineFile* card,
                              int compute_threads);

// With the numerics of numerics_of, and without part_bytes, which the placement tells. The model is
// known by its shape and by a sample of every tensor, the data by every token and label: a start
// must not read 26 GB twice. Error: the checkpoint's.
offload::Result<Identity> identity_of(const TrainInputs& inputs, std::vector<Fact> numerics,
                                      const Checkpoint& checkpoint);

}  // namespace headrace::engine
