// Homes: the weights and states of a run where they live between periods, as streams over the
// model. What reads or writes all of them at once (loading a checkpoint, exporting one, hashing)
// goes part by part through ring slots of the engine, so that it needs no memory of its own beyond
// the budgets. Only while nothing runs: before the first step, or after a drain.
#pragma once

#include <array>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/writer.h"
#include "engine/train/executor.h"
#include "offload/store.h"

namespace headrace::engine {

struct Homes {
    const Executor* executor = nullptr;
    offload::Store* store = nullptr;  // null where no slot is on nvme
};

// Streams the checkpoint into hi and the master beside it (lo, or an fp16 weight's master); moments
// become zero. In a bf16 run whose checkpoint is bf16, states on nvme are not written at all: a
// place that was never written reads as zeros. The checkpoint has been checked against the model.
// Error: the checkpoint's, or bad_data, a weight that fp16 cannot hold.
offload::Status load_homes(const Homes& homes, const Checkpoint& checkpoint);

// The same with weights that mean nothing: finite, small, and not all alike.
offload::Status make_up_homes(const Homes& homes);

// What lives in memory, from its mirrors; and back. Places on nvme are their own mirrors.
offload::Status load_memory_homes(const Homes& homes);
offload::Status write_mirrors(const Homes& homes);

// Streams hi into the writer, tensor by tensor; not finish().
offload::Status export_homes(const Homes& homes, CheckpointWriter& writer);

// SHA-256, in hex, of all weights and of all states (master, m, v), each as one stream in model
// order, so that it does not depend on how parts are cut or where they live.
struct HomesDigest {
    std::string weights_sha256;
    std::string states_sha256;
    bool operator==(const HomesDigest&) const = default;
};
offload::Result<HomesDigest> digest_homes(const Homes& homes);

}  // namespace headrace::engine
