// Why a run ends before its last step though nothing of the machine failed: a signal asks it to,
// its drives may not be written to any more, or its numbers lead nowhere. Pure: from what is known
// of the run to the verdict and its words. Whoever trains asks between steps
// (engine/train/train.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/config/loss_scale.h"
#include "engine/plan/drive_writes.h"
#include "engine/train/step.h"
#include "offload/result.h"

namespace headrace::engine {

// More steps skipped in a row than this, because their gradients are not finite, end the run.
inline constexpr int64_t skipped_steps_max = 20;

// One line on a step that was skipped (CHECK), and what becomes of the loss scale, where the run
// has one.
std::string describe_skip(const StepOutcome& outcome, bool has_loss_scale);

// Error: diverged, where gradients are not finite and the loss scale is at its minimum, or where
// they were not in more than skipped_steps_max steps in a row. A scale that falls ends by itself:
// in a row, it can only fall so often.
offload::Status check_converges(const StepOutcome& outcome, const LossScaleRule& rule);

// What the drives of a run have taken since its start.
struct Written {
    uint64_t total_bytes = 0;    // at the last look: with the last step that is done
    uint64_t at_rest_bytes = 0;  // when nothing was under way the last time
    int64_t step_count = 0;      // steps begun since then
};

// The most that they will have taken of a run that turns one more step and then stops, with all
// that is under way and a save and an evaluation at the end.
uint64_t bytes_after_one_more_step(const Written& written, const DriveWrites& planned);

// Whether one more step could end beyond the limit, after what is due before it. Asked before each,
// a run never gets there.
bool is_at_write_limit(const Written& written, const DriveWrites& planned,
                       std::optional<uint64_t> limit_bytes, uint64_t due_bytes = 0);

// `when`: "after step 3 of 8".
offload::Error stopped_at_write_limit(const Written& written, const DriveWrites& planned,
                                      uint64_t limit_bytes, const std::string& when);

// Whether what the run has done so far can be gone on with.
enum class Kept : uint8_t { nothing, resume_point };

// Error: stopped.
offload::Error stopped_by_signal(int number, const std::string& when, Kept kept);

}  // namespace headrace::engine
