// Executor: does what an op says, on memory: the ops of gpu, h2d and d2h by the card, updates by
// cpu_adam, verdicts itself, and it tells the store what an op of a drive is about. It never
// decides when: run does.
//
// Ops of different lanes may execute at once, each on its lane's thread; what they share is ordered
// by the schedule's edges. Slots, card and store belong to the caller and must outlive it.
#pragma once

#include <array>
#include <vector>

#include "cpu_adam/pool.h"
#include "cpu_adam/variants.h"
#include "engine/train/card.h"
#include "engine/train/slot_bytes.h"
#include "engine/train/step.h"
#include "offload/run.h"
#include "offload/store.h"

namespace headrace::engine {

struct ExecutorParts {
    SlotBytes* slots = nullptr;
    Card* card = nullptr;
    cpu_adam::UpdatePool* update_pool = nullptr;
    const cpu_adam::Row* update_row = nullptr;
    AdamStepOf adam_step_of;
    double max_grad_norm = 0;  // 0: no clipping
    LossScaleRule loss_scale = unscaled;
    RecordOf record_of;          // what the commit ops write
    uint64_t rounding_seed = 0;  // of states in bf16 and int8
    // Tests: every slot that is about to be written whole holds NaN until then.
    bool poison_released = false;
};

class Executor {
  public:
    explicit Executor(ExecutorParts parts);

    // The list that the coming periods follow; the slots of all lists of one engine are the same.
    void use(const offload::Schedule& schedule);
    const offload::Schedule& schedule() const { return *schedule_; }

    // The coming periods count from 0 again, and before the first the run is so far.
    void begin(const Progress& progress);
    // Before the step of this period: known when the period before has its verdict, and until
    // that of the third period after it.
    const Progress& progress_before(int64_t period) const {
        return progress_[static_cast<size_t>(period) % progress_.size()];
    }

    // Period `index` will compute on this data.
    PeriodData& data_of(int64_t period) { return data_[static_cast<size_t>(period % 2)]; }

    // Does one op of a gpu, h2d, d2h or cpu lane, which was given to it then
    // (engine/train/clock.h), and returns when it is done.
    offload::Result<offload::Verdict> execute(const offload::Ticket& ticket, int64_t given_ns);

    // Begins an op of an nvme lane, which the store ends.
    void start_on(offload::Store& store, const offload::Ticket& ticket, offload::Done done);

    const SlotBytes& slots() const { return *parts_.slots; }
    const Card& card() const { return *parts_.card; }

  private:
    using Op = offload::Op;
    void poison_targets(const Op& op) const;
    offload::Transfer transfer_of(const offload::Ticket& ticket, offload::Done done);

    offload::Status on_card(const Op& op, const offload::Ticket& ticket, int64_t given_ns);
    void update(const Op& op);
    offload::Verdict give_verdict(int64_t period);
    void judge(StepOutcome& outcome, const offload::ExactSum& squares) const;

    const ExecutorParts parts_;
    const offload::Schedule* schedule_ = nullptr;
    std::array<PeriodData, 2> data_;
    std::vector<NormRecord> norms_;  // by part
    VerdictRecord verdict_;
    // By period. A commit's record is written under the next period's forward, so a verdict that is
    // given meanwhile must not change what it says.
    std::array<Progress, 4> progress_;
    // page_sum of a part's updated hi and opt, for the store; by part.
    std::vector<std::array<uint64_t, 2>> sums_;
};

}  // namespace headrace::engine
