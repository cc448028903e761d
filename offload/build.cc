#include "offload/build.h"

#include <algorithm>

#include "offload/edges.h"
#include "offload/emitter.h"
#include "offload/units.h"

namespace headrace::offload {

namespace {

constexpr Guard always{};
constexpr Guard if_train{.needs_train = true};
constexpr Guard if_applied{.needs_applied = true};

Value part_value(Kind kind, uint32_t part, int8_t step) {
    return {.kind = kind, .of = part, .step = step};
}

Value acc_value(uint32_t part, uint8_t use, uint32_t micro_batch) {
    return {.kind = Kind::acc,
            .of = part,
            .use = use,
            .micro_batch = static_cast<int16_t>(micro_batch)};
}

Value micro_batch_value(Kind kind, uint32_t of, uint32_t micro_batch) {
    return {.kind = kind, .of = of, .micro_batch = static_cast<int16_t>(micro_batch)};
}

// A layer is visited once in forward and once in backward; the head's one visit is both.
enum class Visit : uint8_t { forward, backward };

// The micro-batches [first, end) of one pass over the layers.
struct Group {
    uint32_t first = 0;
    uint32_t end = 0;
};

// Builds one period. The order of the member functions is the order of a period.
class Builder {
  public:
    Builder(const Workload& workload, const Plan& plan)
        : workload_(workload),
          plan_(plan),
          table_(lay_slots(workload, plan)),
          out_(table_, commits_every_step(plan)) {
        gpu_hi_.slots = table_.gpu_hi;
        gpu_acc_.slots = table_.gpu_acc;
        gpu_seam_.slots = table_.gpu_seam;
        gpu_stash_.slots = table_.gpu_stash;
        gpu_act_.slots = table_.gpu_act;
        gpu_dact_.slots = table_.gpu_dact;
        ram_hi_.slots = table_.ram_hi;
        ram_opt_.slots = table_.ram_opt;
        ram_stash_.slots = table_.ram_stash;
        ram_acc_.slots = table_.ram_acc;
        ram_act_.slots = table_.ram_act;
        gpu_kept_.slots = table_.gpu_kept;
        ram_kept_.slots = table_.ram_kept;
    }

    Schedule build() {
        const uint32_t micro_batches = workload_.micro_batch_count;
        for (uint32_t first = 0; first < micro_batches; first += plan_.group) {
            run_pass({first, std::min(micro_batches, first + plan_.group)});
        }
        out_.write_all();
        if (training()) {
            if (commits_every_step(plan_)) commit();
            give_verdict();
        }
        Schedule schedule{
            .workload = workload_,
            .slots = table_.slots,
            .ops = out_.release(),
            .path_count = training() && commits_every_step(plan_) ? plan_.path_count : 0,
            .workspace_offset_bytes = table_.workspace_offset_bytes};
        schedule.edges = derive_edges(schedule.ops, schedule.slots.size());
        return schedule;
    }

  private:
    bool training() const { return workload_.purpose == Purpose::train; }
    uint32_t head() const { return head_layer(workload_); }
    bool is_first(const Group& group) const { return group.first == 0; }
    bool is_last(const Group& group) const { return group.end == workload_.micro_batch_count; }
    Tier tier_of(SlotId slot) const { return table_.slots[slot].tier; }

    void run_pass(const Group& group) {
        CHECK_LT(group.first, group.end);
        for (uint32_t layer = 0; layer < head(); ++layer) forward(layer, group);
        run_head(group);
        if (!training()) return;
        for (uint32_t layer = head(); layer-- > 0;) {
            backward(layer, group);
            out_.write_some(div_ceil(out_.late_count(), layer + 1));
        }
    }

    // --- weights -------------------------------------------------------------------------------

    // Slots on the gpu, in the order of parts_used, that hold hi(-1) of all parts of the layer. In
    // the first visit of a training period the layer's own parts are updated on the way, in the
    // first backward those again whose update is computed twice.
    std::vector<SlotId> bring_weights(uint32_t layer, const Group& group, Visit visit) {
        const bool updates = training() && is_first(group) && !is_updated_[layer];
        const bool repeats = visit == Visit::backward && is_first(group);
        is_updated_[layer] = true;
        std::vector<SlotId> slots;
        if (!updates) slots = held_weights(layer);
        if (!slots.empty()) {
            if (repeats) update_again(layer);
            return slots;
        }
        // One stretch of the ring for all runs of the visit: taken apart they could overlap.
        uint32_t ring_slots = 0;
        for (const uint32_t part : parts_used(workload_.layout, layer)) {
            if (tier_of(table_.hi[part]) != Tier::gpu) ++ring_slots;
        }
        std::vector<SlotId> stretch;
        if (ring_slots > 0) stretch = out_.take_run(gpu_hi_, ring_slots);
        auto next = stretch.begin();
        for (const uint32_t part : parts_used(workload_.layout, layer)) {
            if (workload_.layout.parts[part].layer == layer) {
                if (updates) is_twice(part) ? update_hi(part) : update(part);
                if (repeats && is_twice(part)) update(part);
            }
            if (tier_of(table_.hi[part]) == Tier::gpu) {
                slots.push_back(table_.hi[part]);
                continue;
            }
            const Value hi = part_value(Kind::hi, part, -1);
            const SlotId source = hi_in_ram(part);
            out_.copy({OpKind::fetch, hi, source, *next, compute_guard(), {}});
            slots.push_back(*next++);
        }
        return slots;
    }

    // The slots that hold all weights of the layer, each run side by side, if there are any.
    std::vector<SlotId> held_weights(uint32_t layer) const {
        std::vector<SlotId> slots;
        uint32_t owner = no_slot;
        for (const uint32_t part : parts_used(workload_.layout, layer)) {
            std::optional<SlotId> slot = out_.held(gpu_hi_, part_value(Kind::hi, part, -1));
            if (tier_of(table_.hi[part]) == Tier::gpu) slot = table_.hi[part];
            const bool continues_run = workload_.layout.parts[part].layer == owner;
            if (!slot || (continues_run && *slot != slots.back() + 1)) return {};
            owner = workload_.layout.parts[part].layer;
            slots.push_back(*slot);
        }
        return slots;
    }

    // A ram slot that holds hi(part, -1): its home, a ring slot that still has it, or a fetched
    // one.
    SlotId hi_in_ram(uint32_t part) {
        const SlotId home = table_.hi[part];
        if (tier_of(home) == Tier::ram) return home;
        const Value hi = part_value(Kind::hi, part, -1);
        if (const auto slot = out_.held(ram_hi_, hi)) return *slot;
        const SlotId slot = out_.take(ram_hi_);
        out_.copy({OpKind::fetch, hi, home, slot, compute_guard(), {}});
        return slot;
    }

    // --- update --------------------------------------------------------------------------------

    // A ram slot with the value as it was before the update: its home, a ring slot that still has
    // it, or a fetched copy.
    SlotId working_copy(SlotId home, Ring& ring, const Value& value, const Guard& guard) {
        if (tier_of(home) == Tier::ram) return home;
        if (const auto slot = out_.held(ring, value)) return *slot;
        const SlotId slot = out_.take(ring);
        out_.copy({OpKind::fetch, value, home, slot, guard, {}});
        return slot;
    }

    void update(uint32_t part) {
        const Value hi_before = part_value(Kind::hi, part, -2);
        const Value hi_after = part_value(Kind::hi, part, -1);
        const Value opt_before = part_value(Kind::opt, part, -2);
        const Value opt_after = part_value(Kind::opt, part, -1);
        const Value gradient = part_value(Kind::stash, part, -1);
        const SlotId hi = working_copy(table_.hi[part], ram_hi_, hi_before, always);
        const SlotId opt = working_copy(table_.opt[part], ram_opt_, opt_before, always);
        const SlotId stash = working_copy(table_.stash[part], ram_stash_, gradient, if_applied);
        Op op{.kind = OpKind::update, .lane = {LaneKind::cpu}, .part = part, .guard = if_applied};
        op.accesses = {{stash, gradient, Mode::read},
                       {hi, hi_before, Mode::read},
                       {opt, opt_before, Mode::read},
                       {hi, hi_after, Mode::write},
                       {opt, opt_after, Mode::write}};
        op.if_false = {{hi, hi_before, hi_after}, {opt, opt_before, opt_after}};
        out_.emit(std::move(op));
        out_.hold(hi, hi_after);
        out_.hold(opt, opt_after);
        bring_home(hi, table_.hi[part], hi_before, hi_after);
        bring_home(opt, table_.opt[part], opt_before, opt_after);
        if (!commits_every_step(plan_)) return;
        bring_home(hi, table_.hi_mirror[part], hi_before, hi_after);
        bring_home(opt, table_.opt_mirror[part], opt_before, opt_after);
    }

    bool is_twice(uint32_t part) const { return !plan_.twice.empty() && plan_.twice[part]; }

    // The first of two updates: the new weight alone, in a ring slot. Its home and the rest of the
    // state stay as they were, for the second one to start from.
    void update_hi(uint32_t part) {
        const Value hi_before = part_value(Kind::hi, part, -2);
        const Value hi_after = part_value(Kind::hi, part, -1);
        const Value opt = part_value(Kind::opt, part, -2);
        const Value gradient = part_value(Kind::stash, part, -1);
        const SlotId hi = working_copy(table_.hi[part], ram_hi_, hi_before, always);
        Op op{.kind = OpKind::update, .lane = {LaneKind::cpu}, .part = part, .guard = if_applied};
        op.accesses = {{working_copy(table_.opt[part], ram_opt_, opt, always), opt, Mode::read},
                       {working_copy(table_.stash[part], ram_stash_, gradient, if_applied),
                        gradient, Mode::read},
                       {hi, hi_before, Mode::read},
                       {hi, hi_after, Mode::write}};
        op.if_false = {{hi, hi_before, hi_after}};
        out_.emit(std::move(op));
        out_.hold(hi, hi_after);
    }

    // The second updates of a layer's parts, where nothing else brings them to ram.
    void update_again(uint32_t layer) {
        for (const uint32_t part : parts_used(workload_.layout, layer)) {
            if (workload_.layout.parts[part].layer == layer && is_twice(part)) update(part);
        }
    }

    // To a home or a mirror, if there is one.
    void bring_home(SlotId slot, SlotId home, const Value& before, const Value& after) {
        if (slot == home || home == no_slot) return;
        const Copy copy{OpKind::evict, after, slot, home, if_applied, Relabel{home, before, after}};
        if (tier_of(home) == Tier::nvme) {
            out_.copy_late(copy);
        } else {
            out_.copy(copy);
        }
    }

    // --- forward -------------------------------------------------------------------------------

    Guard compute_guard() const { return training() ? if_train : always; }

    Op compute(Pass pass, uint32_t layer, uint32_t micro_batch) const {
        return {.kind = OpKind::compute,
                .lane = {LaneKind::gpu},
                .pass = pass,
                .layer = layer,
                .micro_batch = static_cast<int16_t>(micro_batch),
                .guard = compute_guard()};
    }

    void read_weights(Op& op, uint32_t layer, const std::vector<SlotId>& slots) const {
        const std::vector<uint32_t> parts = parts_used(workload_.layout, layer);
        CHECK_EQ(parts.size(), slots.size());
        for (size_t i = 0; i < parts.size(); ++i) {
            op.accesses.push_back({slots[i], part_value(Kind::hi, parts[i], -1), Mode::read});
        }
    }

    // Where forward leaves a boundary activation: its home on the gpu, or the ring.
    SlotId act_slot(uint32_t boundary, uint32_t place) {
        const bool has_home = boundary < head();
        if (has_home && tier_of(table_.act[boundary][place]) == Tier::gpu) {
            return table_.act[boundary][place];
        }
        return out_.take(gpu_act_);
    }

    SlotId act_on_gpu(uint32_t boundary, uint32_t micro_batch, const Group& group) {
        const Value act = micro_batch_value(Kind::act, boundary, micro_batch);
        if (const auto slot = out_.held(gpu_act_, act)) return *slot;
        CHECK_LT(boundary, head());
        return bring_back(act, table_.act[boundary][micro_batch - group.first], gpu_act_, ram_act_);
    }

    // From its home to a slot of the gpu ring, unless its home is on the gpu.
    SlotId bring_back(const Value& value, SlotId home, Ring& gpu_ring, Ring& ram_ring) {
        if (tier_of(home) == Tier::gpu) return home;
        SlotId source = home;
        if (tier_of(home) == Tier::nvme) source = in_ram_ring(value, home, ram_ring);
        const SlotId slot = out_.take(gpu_ring);
        out_.copy({OpKind::fetch, value, source, slot, if_train, {}});
        return slot;
    }

    // A ring slot that still has it from forward, as for what went to nvme last, or a fetched copy.
    SlotId in_ram_ring(const Value& value, SlotId home, Ring& ring) {
        if (const auto slot = out_.held(ring, value)) return *slot;
        const SlotId slot = out_.take(ring);
        out_.copy({OpKind::fetch, value, home, slot, if_train, {}});
        return slot;
    }

    // Copies a gpu value to its home through the ram ring, unless it is home already.
    void send_home(const Value& value, SlotId slot, SlotId home, Ring& ram_ring) {
        if (slot == home) return;
        SlotId source = slot;
        if (tier_of(home) == Tier::nvme) {
            source = out_.take(ram_ring);
            out_.copy({OpKind::evict, value, slot, source, if_train, {}});
        }
        out_.copy({OpKind::evict, value, source, home, if_train, {}});
    }

    void forward(uint32_t layer, const Group& group) {
        const std::vector<SlotId> weights = bring_weights(layer, group, Visit::forward);
        for (uint32_t m = group.first; m < group.end; ++m) {
            Op op = compute(Pass::forward, layer, m);
            read_weights(op, layer, weights);
            if (layer > 0) {
                op.accesses.push_back({act_on_gpu(layer, m, group),
                                       micro_batch_value(Kind::act, layer, m), Mode::read});
            }
            const Value out = micro_batch_value(Kind::act, layer + 1, m);
            const SlotId slot = act_slot(layer + 1, m - group.first);
            op.accesses.push_back({slot, out, Mode::write});
            const SlotId kept = keeps(layer) ? kept_slot(layer, m - group.first) : no_slot;
            if (keeps(layer)) op.accesses.push_back({kept, kept_value(layer, m), Mode::write});
            out_.emit(std::move(op));
            out_.hold(slot, out);
            if (training() && layer + 1 < head()) {
                send_home(out, slot, table_.act[layer + 1][m - group.first], ram_act_);
            }
            if (!keeps(layer)) continue;
            out_.hold(kept, kept_value(layer, m));
            send_home(kept_value(layer, m), kept, table_.kept[layer][m - group.first], ram_kept_);
        }
    }

    // --- what forward keeps for backward -------------------------------------------------------

    bool keeps(uint32_t layer) const { return training() && !table_.kept[layer].empty(); }

    static Value kept_value(uint32_t layer, uint32_t micro_batch) {
        return micro_batch_value(Kind::kept, layer, micro_batch);
    }

    // Where forward leaves it: its home on the gpu, or the ring.
    SlotId kept_slot(uint32_t layer, uint32_t place) {
        const SlotId home = table_.kept[layer][place];
        return tier_of(home) == Tier::gpu ? home : out_.take(gpu_kept_);
    }

    SlotId kept_on_gpu(uint32_t layer, uint32_t micro_batch, const Group& group) {
        const Value kept = kept_value(layer, micro_batch);
        if (const auto slot = out_.held(gpu_kept_, kept)) return *slot;
        const SlotId home = table_.kept[layer][micro_batch - group.first];
        return bring_back(kept, home, gpu_kept_, ram_kept_);
    }

    // --- head and backward ---------------------------------------------------------------------

    void add_accumulators(Op& op, uint32_t layer, uint32_t m, const std::vector<SlotId>& slots) {
        const std::vector<uint32_t> parts = parts_used(workload_.layout, layer);
        CHECK_EQ(parts.size(), slots.size());
        for (size_t i = 0; i < parts.size(); ++i) {
            const uint8_t use = use_in(workload_, parts[i], layer);
            if (m > 0)
                op.accesses.push_back({slots[i], acc_value(parts[i], use, m - 1), Mode::read});
            op.accesses.push_back({slots[i], acc_value(parts[i], use, m), Mode::write});
            out_.hold(slots[i], acc_value(parts[i], use, m));
        }
    }

    void run_head(const Group& group) {
        const uint32_t layer = head();
        const std::vector<SlotId> weights = bring_weights(layer, group, Visit::forward);
        std::vector<SlotId> accs;
        if (training()) accs = bring_accumulators(layer, group);
        for (uint32_t m = group.first; m < group.end; ++m) {
            Op op = compute(training() ? Pass::head : Pass::loss, layer, m);
            read_weights(op, layer, weights);
            op.accesses.push_back(
                {act_on_gpu(layer, m, group), micro_batch_value(Kind::act, layer, m), Mode::read});
            if (training()) {
                add_accumulators(op, layer, m, accs);
                const Value grad = micro_batch_value(Kind::dact, layer, m);
                const SlotId slot = out_.take(gpu_dact_);
                op.accesses.push_back({slot, grad, Mode::write});
                out_.hold(slot, grad);
            }
            out_.emit(std::move(op));
        }
        if (training()) finish_accumulators(layer, group, accs);
    }

    void backward(uint32_t layer, const Group& group) {
        std::vector<SlotId> weights;
        if (layer > 0) {
            weights = bring_weights(layer, group, Visit::backward);
        } else if (is_first(group)) {
            update_again(layer);
        }
        const std::vector<SlotId> accs = bring_accumulators(layer, group);
        for (uint32_t m = group.first; m < group.end; ++m) {
            Op op = compute(Pass::backward, layer, m);
            if (layer > 0) {
                read_weights(op, layer, weights);
                op.accesses.push_back({act_on_gpu(layer, m, group),
                                       micro_batch_value(Kind::act, layer, m), Mode::read});
            }
            if (keeps(layer)) {
                op.accesses.push_back(
                    {kept_on_gpu(layer, m, group), kept_value(layer, m), Mode::read});
            }
            const Value grad_out = micro_batch_value(Kind::dact, layer + 1, m);
            const auto grad_slot = out_.held(gpu_dact_, grad_out);
            CHECK(grad_slot.has_value());
            op.accesses.push_back({*grad_slot, grad_out, Mode::read});
            add_accumulators(op, layer, m, accs);
            if (layer > 0) {
                const Value grad_in = micro_batch_value(Kind::dact, layer, m);
                const SlotId slot = out_.take(gpu_dact_);
                op.accesses.push_back({slot, grad_in, Mode::write});
                out_.hold(slot, grad_in);
            }
            out_.emit(std::move(op));
        }
        finish_accumulators(layer, group, accs);
    }

    // --- accumulators, reduce ------------------------------------------------------------------

    SlotId acc_home(uint32_t part, uint8_t use) const { return table_.acc[size_t{part} * 2 + use]; }

    // Gpu slots for the accumulators of a layer's uses; after the first pass, with what the passes
    // before have summed.
    std::vector<SlotId> bring_accumulators(uint32_t layer, const Group& group) {
        const std::vector<uint32_t> parts = parts_used(workload_.layout, layer);
        uint32_t ring_slots = 0;
        for (const uint32_t part : parts) {
            if (!acc_lives_on_gpu(part, use_in(workload_, part, layer))) ++ring_slots;
        }
        std::vector<SlotId> stretch;
        if (ring_slots > 0) stretch = out_.take_run(gpu_acc_, ring_slots);
        auto next = stretch.begin();
        std::vector<SlotId> slots;
        for (const uint32_t part : parts) {
            const uint8_t use = use_in(workload_, part, layer);
            if (acc_lives_on_gpu(part, use)) {
                slots.push_back(acc_home(part, use));
                continue;
            }
            if (!is_first(group)) fetch_accumulator(part, use, group.first - 1, *next);
            slots.push_back(*next++);
        }
        return slots;
    }

    bool acc_lives_on_gpu(uint32_t part, uint8_t use) const {
        const SlotId home = acc_home(part, use);
        return home != no_slot && tier_of(home) == Tier::gpu;
    }

    void fetch_accumulator(uint32_t part, uint8_t use, uint32_t micro_batch, SlotId target) {
        const Value acc = acc_value(part, use, micro_batch);
        SlotId source = acc_home(part, use);
        CHECK_NE(source, no_slot);
        if (tier_of(source) == Tier::nvme) {
            const SlotId slot = out_.take(ram_acc_);
            out_.copy({OpKind::fetch, acc, source, slot, if_train, {}});
            source = slot;
        }
        out_.copy({OpKind::fetch, acc, source, target, if_train, {}});
    }

    // After a layer's last micro-batch of the pass: reduce the parts whose gradient is complete,
    // send the other accumulators home.
    void finish_accumulators(uint32_t layer, const Group& group, const std::vector<SlotId>& slots) {
        const std::vector<uint32_t> parts = parts_used(workload_.layout, layer);
        for (size_t i = 0; i < parts.size(); ++i) {
            const uint8_t use = use_in(workload_, parts[i], layer);
            const Value acc = acc_value(parts[i], use, group.end - 1);
            // The owner's layer stands before the borrower's, so in backward it comes last.
            if (is_last(group) && use == 0) {
                reduce(parts[i], slots[i]);
            } else {
                const SlotId home = acc_home(parts[i], use);
                CHECK_NE(home, no_slot);
                send_home(acc, slots[i], home, ram_acc_);
            }
        }
    }

    void reduce(uint32_t part, SlotId own) {
        const uint32_t last = workload_.micro_batch_count - 1;
        Op op{.kind = OpKind::reduce, .lane = {LaneKind::gpu}, .part = part, .guard = if_train};
        op.accesses = {{own, acc_value(part, 0, last), Mode::read}};
        if (use_count(workload_, part) == 2) {
            SlotId other = acc_home(part, 1);
            if (tier_of(other) != Tier::gpu) {
                other = out_.take(gpu_seam_);
                fetch_accumulator(part, 1, last, other);
            }
            op.accesses.push_back({other, acc_value(part, 1, last), Mode::read});
        }
        const SlotId home = table_.stash[part];
        const Value stash = part_value(Kind::stash, part, 0);
        const SlotId slot = tier_of(home) == Tier::gpu ? home : out_.take(gpu_stash_);
        op.accesses.push_back({slot, stash, Mode::write});
        op.accesses.push_back({table_.norm[part], part_value(Kind::norm, part, 0), Mode::write});
        out_.emit(std::move(op));
        out_.hold(slot, stash);
        send_home(stash, slot, home, ram_stash_);
    }

    // --- end of the period ---------------------------------------------------------------------

    void commit() {
        const Value record{.kind = Kind::journal, .step = -1};
        for (uint32_t path = 0; path < plan_.path_count; ++path) {
            Op sync{.kind = OpKind::sync, .lane = {LaneKind::nvme_write}};
            for (uint32_t part = 0; part < workload_.layout.parts.size(); ++part) {
                sync_reads(sync, table_.hi[part], table_.hi_mirror[part],
                           part_value(Kind::hi, part, -1));
                sync_reads(sync, table_.opt[part], table_.opt_mirror[part],
                           part_value(Kind::opt, part, -1));
            }
            sync.accesses.push_back({table_.flushed[path], flushed(path), Mode::write});
            out_.emit(std::move(sync));
        }
        Op write{.kind = OpKind::record, .lane = {LaneKind::nvme_write}};
        for (uint32_t path = 0; path < plan_.path_count; ++path) {
            write.accesses.push_back({table_.flushed[path], flushed(path), Mode::read});
        }
        write.accesses.push_back({table_.journal, record, Mode::write});
        out_.emit(std::move(write));
        Op seal{.kind = OpKind::seal, .lane = {LaneKind::nvme_write}};
        seal.accesses = {{table_.journal, record, Mode::read},
                         {table_.committed, {.kind = Kind::committed, .step = -1}, Mode::write}};
        out_.emit(std::move(seal));
    }

    static Value flushed(uint32_t path) { return {.kind = Kind::flushed, .of = path, .step = -1}; }

    void sync_reads(Op& sync, SlotId home, SlotId mirror, const Value& value) const {
        const SlotId place = mirror == no_slot ? home : mirror;
        CHECK_EQ(tier_of(place), Tier::nvme);
        sync.accesses.push_back({place, value, Mode::read});
    }

    void give_verdict() {
        Op op{.kind = OpKind::verdict, .lane = {LaneKind::cpu}, .guard = if_train};
        for (uint32_t part = 0; part < workload_.layout.parts.size(); ++part) {
            op.accesses.push_back({table_.norm[part], part_value(Kind::norm, part, 0), Mode::read});
        }
        const Value before{.kind = Kind::verdict, .step = -1};
        const Value after{.kind = Kind::verdict, .step = 0};
        op.accesses.push_back({table_.verdict, after, Mode::write});
        op.if_false = {{table_.verdict, before, after}};
        out_.emit(std::move(op));
    }

    const Workload& workload_;
    const Plan& plan_;
    const SlotTable table_;
    Emitter out_;
    Ring gpu_hi_, gpu_acc_, gpu_seam_, gpu_stash_, gpu_act_, gpu_dact_, gpu_kept_;
    Ring ram_hi_, ram_opt_, ram_stash_, ram_acc_, ram_act_, ram_kept_;
    std::vector<bool> is_updated_ = std::vector<bool>(layer_count(workload_), false);
};

}  // namespace

Result<Schedule> build(const Workload& workload, const Plan& plan) {
    if (const char* fault = find_fault(workload, plan)) {
        return Error{ErrorCode::usage, "the plan cannot be built", fault};
    }
    return Builder(workload, plan).build();
}

}  // namespace headrace::offload
