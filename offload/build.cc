#include "offload/build.h"

#include <algorithm>

#include "offload/edges.h"
#include "offload/gradients.h"
#include "offload/period.h"
#include "offload/period_end.h"
#include "offload/units.h"
#include "offload/updates.h"

namespace headrace::offload {

namespace {

// A layer is visited once in forward and once in backward; the head's one visit is both.
enum class Visit : uint8_t { forward, backward };

// The policy: builds one period. The order of the member functions is the order of a period.
class Builder {
  public:
    Builder(const Workload& workload, const Plan& plan)
        : workload_(workload), plan_(plan), period_(workload, plan), out_(period_.out) {}

    Schedule build() {
        const uint32_t micro_batches = workload_.micro_batch_count;
        for (uint32_t first = 0; first < micro_batches; first += plan_.group) {
            run_pass({first, std::min(micro_batches, first + plan_.group)});
        }
        out_.write_all();
        const bool commits = period_.trains() && commits_every_step(plan_);
        if (commits) commit(period_);
        if (period_.trains()) give_verdict(period_);
        Schedule schedule{.workload = workload_,
                          .slots = period_.table.slots,
                          .ops = out_.release(),
                          .path_count = commits ? plan_.path_count : 0,
                          .workspace_offset_bytes = period_.table.workspace_offset_bytes};
        schedule.edges = derive_edges(schedule.ops, schedule.slots.size());
        return schedule;
    }

  private:
    void run_pass(const Group& group) {
        CHECK_LT(group.first, group.end);
        const uint32_t head = period_.head();
        for (uint32_t layer = 0; layer < head; ++layer) forward(layer, group);
        run_head(group);
        if (!period_.trains()) return;
        for (uint32_t layer = head; layer-- > 0;) {
            backward(layer, group);
            out_.write_some(div_ceil(out_.late_count(), layer + 1));
        }
    }

    // --- weights, and the updates that make them -------------------------------------------------

    // Slots on the gpu, in the order of parts_used, that hold hi(-1) of all parts of the layer. In
    // the first visit of a training period the layer's own parts are updated on the way, in the
    // first backward those again whose update is computed twice.
    std::vector<SlotId> bring_weights(uint32_t layer, const Group& group, Visit visit) {
        const bool updates = period_.trains() && period_.is_first(group) && !is_updated_[layer];
        const bool repeats = visit == Visit::backward && period_.is_first(group);
        is_updated_[layer] = true;
        std::vector<SlotId> slots;
        if (!updates) slots = held_weights(layer);
        if (!slots.empty()) {
            if (repeats) update_again(layer);
            return slots;
        }
        const std::vector<uint32_t> parts = parts_used(workload_.layout, layer);
        // One stretch of the ring for all runs of the visit: taken apart they could overlap.
        const auto ring_slots = static_cast<uint32_t>(
            std::ranges::count_if(parts, [&](uint32_t part) { return !lives_on_gpu(part); }));
        std::vector<SlotId> stretch;
        if (ring_slots > 0) stretch = out_.take_run(period_.gpu_hi, ring_slots);
        auto next = stretch.begin();
        for (const uint32_t part : parts) {
            if (workload_.layout.parts[part].layer == layer) {
                const bool is_twice = is_updated_twice(plan_, part);
                if (updates) is_twice ? update_hi(period_, part) : update(period_, part);
                if (repeats && is_twice) update(period_, part);
            }
            if (lives_on_gpu(part)) {
                slots.push_back(period_.table.hi[part]);
                continue;
            }
            const Value hi = part_value(Kind::hi, part, -1);
            const Guard guard = period_.compute_guard();
            const SlotId source = period_.in_ram(hi, period_.table.hi[part], period_.ram_hi, guard);
            out_.copy({OpKind::fetch, hi, source, *next, guard, {}});
            slots.push_back(*next++);
        }
        return slots;
    }

    bool lives_on_gpu(uint32_t part) const {
        return period_.is_on(Tier::gpu, period_.table.hi[part]);
    }

    // The slots that hold all weights of the layer, each run side by side, if there are any.
    std::vector<SlotId> held_weights(uint32_t layer) const {
        std::vector<SlotId> slots;
        uint32_t owner = no_slot;
        for (const uint32_t part : parts_used(workload_.layout, layer)) {
            std::optional<SlotId> slot = out_.held(period_.gpu_hi, part_value(Kind::hi, part, -1));
            if (lives_on_gpu(part)) slot = period_.table.hi[part];
            const bool continues_run = workload_.layout.parts[part].layer == owner;
            if (!slot || (continues_run && *slot != slots.back() + 1)) return {};
            owner = workload_.layout.parts[part].layer;
            slots.push_back(*slot);
        }
        return slots;
    }

    // The second updates of a layer's parts, where nothing else brings them to ram.
    void update_again(uint32_t layer) {
        for (const uint32_t part : parts_used(workload_.layout, layer)) {
            const bool is_own = workload_.layout.parts[part].layer == layer;
            if (is_own && is_updated_twice(plan_, part)) update(period_, part);
        }
    }

    // --- forward ---------------------------------------------------------------------------------

    void forward(uint32_t layer, const Group& group) {
        const std::vector<SlotId> weights = bring_weights(layer, group, Visit::forward);
        for (uint32_t m = group.first; m < group.end; ++m) {
            Op op = compute(Pass::forward, layer, m);
            read_weights(op, layer, weights);
            if (layer > 0) read_act(op, layer, m, group);
            const Value out = micro_batch_value(Kind::act, layer + 1, m);
            const Value kept = micro_batch_value(Kind::kept, layer, m);
            const SlotId out_home = act_home(layer + 1, m, group);
            const SlotId out_slot = period_.leave(op, out, out_home, period_.gpu_act);
            const SlotId kept_slot =
                keeps(layer) ? period_.leave(op, kept, kept_home(layer, m, group), period_.gpu_kept)
                             : no_slot;
            out_.emit(std::move(op));
            if (period_.trains() && out_home != no_slot) {
                period_.send_home(out, out_slot, out_home, period_.ram_act);
            }
            if (keeps(layer)) {
                period_.send_home(kept, kept_slot, kept_home(layer, m, group), period_.ram_kept);
            }
        }
    }

    Op compute(Pass pass, uint32_t layer, uint32_t micro_batch) const {
        return {.kind = OpKind::compute,
                .lane = {LaneKind::gpu},
                .pass = pass,
                .layer = layer,
                .micro_batch = static_cast<int16_t>(micro_batch),
                .guard = period_.compute_guard()};
    }

    void read_weights(Op& op, uint32_t layer, const std::vector<SlotId>& slots) const {
        const std::vector<uint32_t> parts = parts_used(workload_.layout, layer);
        CHECK_EQ(parts.size(), slots.size());
        for (size_t i = 0; i < parts.size(); ++i) {
            op.accesses.push_back({slots[i], part_value(Kind::hi, parts[i], -1), Mode::read});
        }
    }

    // The head's input has no home: it stays in the ring.
    SlotId act_home(uint32_t boundary, uint32_t micro_batch, const Group& group) const {
        if (boundary == period_.head()) return no_slot;
        return period_.table.act[boundary][micro_batch - group.first];
    }

    void read_act(Op& op, uint32_t boundary, uint32_t micro_batch, const Group& group) {
        const Value act = micro_batch_value(Kind::act, boundary, micro_batch);
        const SlotId slot = period_.on_gpu(act, act_home(boundary, micro_batch, group),
                                           period_.gpu_act, period_.ram_act);
        op.accesses.push_back({slot, act, Mode::read});
    }

    bool keeps(uint32_t layer) const {
        return period_.trains() && !period_.table.kept[layer].empty();
    }
    SlotId kept_home(uint32_t layer, uint32_t micro_batch, const Group& group) const {
        return period_.table.kept[layer][micro_batch - group.first];
    }

    // --- head ------------------------------------------------------------------------------------

    void run_head(const Group& group) {
        const uint32_t layer = period_.head();
        const bool trains = period_.trains();
        const std::vector<SlotId> weights = bring_weights(layer, group, Visit::forward);
        std::vector<SlotId> accumulators;
        if (trains) accumulators = bring_accumulators(period_, layer, group);
        for (uint32_t m = group.first; m < group.end; ++m) {
            Op op = compute(trains ? Pass::head : Pass::loss, layer, m);
            read_weights(op, layer, weights);
            read_act(op, layer, m, group);
            if (trains) {
                add_gradients(period_, layer, m, accumulators, op);
                leave_dact(op, layer, m);
            }
            out_.emit(std::move(op));
        }
        if (trains) finish_accumulators(period_, layer, group, accumulators);
    }

    void leave_dact(Op& op, uint32_t boundary, uint32_t micro_batch) {
        period_.leave(op, micro_batch_value(Kind::dact, boundary, micro_batch), no_slot,
                      period_.gpu_dact);
    }

    // --- backward --------------------------------------------------------------------------------

    void backward(uint32_t layer, const Group& group) {
        std::vector<SlotId> weights;
        if (layer > 0) {
            weights = bring_weights(layer, group, Visit::backward);
        } else if (period_.is_first(group)) {
            update_again(layer);
        }
        const std::vector<SlotId> accumulators = bring_accumulators(period_, layer, group);
        for (uint32_t m = group.first; m < group.end; ++m) {
            Op op = compute(Pass::backward, layer, m);
            if (layer > 0) {
                read_weights(op, layer, weights);
                read_act(op, layer, m, group);
            }
            if (keeps(layer)) {
                const Value kept = micro_batch_value(Kind::kept, layer, m);
                const SlotId slot = period_.on_gpu(kept, kept_home(layer, m, group),
                                                   period_.gpu_kept, period_.ram_kept);
                op.accesses.push_back({slot, kept, Mode::read});
            }
            const Value grad_out = micro_batch_value(Kind::dact, layer + 1, m);
            const auto grad_slot = out_.held(period_.gpu_dact, grad_out);
            CHECK(grad_slot.has_value());
            op.accesses.push_back({*grad_slot, grad_out, Mode::read});
            add_gradients(period_, layer, m, accumulators, op);
            if (layer > 0) leave_dact(op, layer, m);
            out_.emit(std::move(op));
        }
        finish_accumulators(period_, layer, group, accumulators);
    }

    const Workload& workload_;
    const Plan& plan_;
    Period period_;
    Emitter& out_;
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
