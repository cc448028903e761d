// repack: copies the weights and states of a run from one store to another whose parts are cut
// differently, or whose states are kept in another format. Element by element: of weights and their
// masters the bits stay, and of states too where the format does; cpu_adam/convert.h says what a
// conversion keeps. A resume under another part size, or that asks for another format, does this
// once, into a successor of the run's store.
#pragma once

#include "offload/dtype.h"
#include "offload/part.h"
#include "offload/result.h"
#include "offload/state_format.h"
#include "offload/store.h"

namespace headrace::engine {

// A store and how its durable places are cut: hi of every part, then opt of every part.
struct CutStore {
    offload::Store* store = nullptr;
    const offload::Layout* layout = nullptr;
    offload::StateFormat states = offload::StateFormat::fp32;
};

// Both layouts are of one model (CHECK). Takes the memory of the largest part of each for as long
// as it runs, at most ram_bytes; nothing else is in flight. Commits nothing. Error: a store's, or
// does_not_fit.
offload::Status repack(const CutStore& source, const CutStore& target, offload::Dtype dtype,
                       uint64_t ram_bytes);

}  // namespace headrace::engine
