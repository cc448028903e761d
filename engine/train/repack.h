// repack: copies the weights and states of a run from one store to another whose parts are cut
// differently. Element by element: the bits stay, only where they lie changes. A resume under
// another part size does this once, into a successor of the run's store.
#pragma once

#include "offload/dtype.h"
#include "offload/part.h"
#include "offload/result.h"
#include "offload/store.h"

namespace headrace::engine {

// A store and how its durable places are cut: hi of every part, then opt of every part.
struct CutStore {
    offload::Store* store = nullptr;
    const offload::Layout* layout = nullptr;
};

// Both layouts are of one model (CHECK). Takes the memory of the largest part of each for as long
// as it runs, at most ram_bytes; nothing else is in flight. Commits nothing. Error: a store's, or
// does_not_fit.
offload::Status repack(const CutStore& source, const CutStore& target, offload::Dtype dtype,
                       uint64_t ram_bytes);

}  // namespace headrace::engine
