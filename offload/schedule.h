// Schedule: one training step as data. Slots hold values; ops read and write (slot, value) pairs on
// lanes; edges say which op waits for which. A schedule is one *period* of an endless list: period
// k runs the updates of step k-1 under the forward of step k. Names of steps are relative to the
// period: 0 is k, -1 is k-1, -2 is k-2.
//
//   forward k:  ... fetch hi(-2) opt(-2) stash(-1) | update -> hi(-1) opt(-1) | copy | compute ...
//   backward k: ... compute -> acc | reduce -> stash(0) norm(0) | evict ...          | verdict(0)
//
// The list order is the meaning (the serial backend runs it as it stands) and the memory order
// (which slot is taken when). Everything here is a plain value without behaviour.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/copies.h"
#include "offload/part.h"
#include "offload/state_format.h"
#include "offload/tier.h"

namespace headrace::offload {

using SlotId = uint32_t;
inline constexpr SlotId no_slot = ~SlotId{0};
using OpId = uint32_t;  // index in Schedule::ops

// What a slot can hold. `of` in a Value is a part (hi to acc, norm), a boundary (act, dact:
// boundary b is the input of layer b), a layer (kept), a path (flushed), or 0.
enum class Kind : uint8_t {
    hi,         // the weight in the compute dtype
    opt,        // the rest of the optimizer state: offload/state_format.h
    stash,      // a part's gradient, waiting for the verdict
    acc,        // a use's fp32 gradient, summed up to and including a micro-batch
    act,        // a boundary activation of one micro-batch
    dact,       // the gradient of a boundary activation
    kept,       // what a layer's forward leaves for its backward, which then recomputes nothing
    norm,       // a part's sum of squares
    verdict,    // finite? clip factor?
    flushed,    // a path's data file is durable
    journal,    // the commit record is written
    committed,  // the commit record is durable
};
std::string_view name_of(Kind kind);

// Kinds that occupy no bytes of a tier: their slots carry order and outcome only.
constexpr bool is_control(Kind kind) {
    return kind >= Kind::norm;
}

// The most micro-batches a step can have: Value counts them in 16 bits.
inline constexpr uint32_t micro_batch_count_limit = 32767;

struct Value {
    Kind kind = Kind::hi;
    uint32_t of = 0;
    uint8_t use = 0;          // acc: 0 the owner's layer, 1 the layer that borrows the part
    int8_t step = 0;          // relative to the period
    int16_t micro_batch = 0;  // acc, act, dact, kept; else 0
    bool operator==(const Value&) const = default;
};

enum class Mode : uint8_t { read, write };

struct Access {
    SlotId slot = 0;
    Value value{};
    Mode mode = Mode::read;
    bool operator==(const Access&) const = default;
};

struct Slot {
    Tier tier = Tier::ram;
    Kind kind = Kind::hi;
    // gpu, ram: bytes from the tier's slab. nvme: the place's number in Schedule order.
    uint64_t offset_bytes = 0;
    uint64_t size_bytes = 0;
    Copies copies = Copies::scratch;  // of a place; all of them count as one slot for order
    // A home outlives the period: what the next one may expect. A mirror is the durable place of a
    // value whose home is in memory: written with it, read only by a resume. The others are ring
    // slots.
    bool is_home = false;
    bool is_mirror = false;
    uint32_t of = 0;  // homes and mirrors: the part, boundary or layer whose value they hold
    bool operator==(const Slot&) const = default;
};

enum class OpKind : uint8_t {
    fetch,    // copies a value one tier towards the gpu
    compute,  // a layer's forward, backward, or both at once (head)
    reduce,   // accumulators of all uses -> stash, norm
    verdict,  // norms -> verdict
    update,   // stash, hi, opt of k-1 in place, on the cpu
    evict,    // copies a value one tier away from the gpu (or home)
    sync,     // a path's data file becomes durable
    record,   // the commit record is written
    seal,     // and becomes durable
};
std::string_view name_of(OpKind kind);

// What a compute op does. head: forward, loss and backward of the last layer; loss: without
// backward.
enum class Pass : uint8_t { none, forward, backward, head, loss };

// An op whose guard is false touches nothing; it still waits for its edges.
struct Guard {
    bool needs_train = false;    // the period trains (it is not a drain)
    bool needs_applied = false;  // the verdict of step -1 was: apply; such an op reads it
    bool operator==(const Guard&) const = default;
};

// When the op's guard is false, the slot's value `before` is from then on called `after`: this is
// what a skipped update means.
struct Relabel {
    SlotId slot = 0;
    Value before{};
    Value after{};
    bool operator==(const Relabel&) const = default;
};

struct Lane {
    LaneKind kind = LaneKind::cpu;
    uint8_t index = 0;
    bool operator==(const Lane&) const = default;
};

struct Op {
    OpKind kind = OpKind::fetch;
    Lane lane{};
    Pass pass = Pass::none;
    uint32_t layer = 0;       // compute
    uint32_t part = 0;        // update, reduce
    int16_t micro_batch = 0;  // compute
    Guard guard{};
    std::vector<Access> accesses{};
    std::vector<Relabel> if_false{};
    bool operator==(const Op&) const = default;
};

// `source` must be complete before `target` starts. Distance 1: the source of the period before.
struct Edge {
    OpId source = 0;
    OpId target = 0;
    uint8_t distance = 0;
    auto operator<=>(const Edge&) const = default;
};

enum class Purpose : uint8_t { train, evaluate };

// What is to be computed. Sizes in bytes follow from layout, dtype, gradients and states
// (bytes_of_value).
struct Workload {
    Layout layout;
    Dtype dtype = Dtype::bf16;      // compute dtype
    Dtype gradients = Dtype::bf16;  // dtype of the stash
    StateFormat states = StateFormat::fp32;
    uint32_t micro_batch_count = 1;
    // Slots are laid out for this many, so that lists with fewer micro-batches share them.
    uint32_t micro_batch_count_max = 1;
    uint64_t act_bytes = 0;        // one boundary activation, the largest; a multiple of page_bytes
    uint64_t kept_bytes = 0;       // one kept value, the largest; a multiple of page_bytes
    uint64_t workspace_bytes = 0;  // gpu: what a compute op needs beside its slots
    Purpose purpose = Purpose::train;
    bool operator==(const Workload&) const = default;
};

struct Schedule {
    Workload workload{};
    std::vector<Slot> slots{};
    std::vector<Op> ops{};
    std::vector<Edge> edges{};            // sorted, no duplicates
    uint32_t path_count = 0;              // paths that commits must sync; 0: no commits in the list
    uint64_t workspace_offset_bytes = 0;  // in the gpu slab
    bool operator==(const Schedule&) const = default;
};

uint32_t layer_count(const Workload& workload);
// Boundaries 1 to layer_count - 1 hold activations; the last is the head's input.
uint32_t head_layer(const Workload& workload);
// How often a part is used: 1, or 2 when another layer borrows it.
uint32_t use_count(const Workload& workload, uint32_t part);
// The use number of `part` in `layer`: 0 for its owner.
uint8_t use_in(const Workload& workload, uint32_t part, uint32_t layer);

// By layer: whether it keeps, which is whether there are homes for what it keeps.
std::vector<bool> layers_that_keep(const Schedule& schedule);

// The bytes of a value; 0 for control. Multiples of page_bytes.
uint64_t bytes_of_value(const Workload& workload, const Value& value);

// Peak bytes of a tier: the end of its last slot (nvme: the sum of places times copies).
uint64_t tier_bytes(const Schedule& schedule, Tier tier);

// The bytes that a lane of copies moves in one period whose guards all hold.
uint64_t moved_bytes(const Schedule& schedule, LaneKind lane);

// For error texts and traces: "update part 3", "forward layer 2 micro-batch 0",
// "fetch hi(part 3, -1) nvme -> ram".
std::string describe(const Value& value);
std::string describe(const Schedule& schedule, const Op& op);

// The first access of this kind and mode, or null.
const Access* find_access(const Op& op, Kind kind, Mode mode);

}  // namespace headrace::offload
