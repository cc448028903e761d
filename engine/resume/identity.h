// Identity: what makes two starts of a program the same run, as facts that are stored in every
// commit and compared at a resume. Three kinds: *numerics*, what may change a bit; *job*, the model
// and the data; *recipe*, what changes the training on purpose. A resume under other numerics or of
// another job is refused, naming what differs, unless it is allowed by name; another recipe is said
// and obeyed.
//
// A commit's record carries numerics as JSON in its own field, and the rest, with the progress, in
// the payload. What it says are the numerics that its steps were computed with: a start that may
// compute otherwise leaves those of the saved run until it did a step of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/resume/progress.h"
#include "offload/result.h"
#include "offload/state_format.h"
#include "offload/store.h"

namespace headrace::engine {

struct Fact {
    std::string name;
    std::string value;
    bool operator==(const Fact&) const = default;
};

struct Identity {
    std::vector<Fact> numerics;
    std::vector<Fact> job;
    std::vector<Fact> recipe;
    uint64_t part_bytes = 0;  // how the store's places are cut; changes nothing but the store
    // "after step 40: cpu was A and is B": where the run went on with other arithmetic. Of more
    // than moves_max, the first and the last.
    std::vector<std::string> moves{};
    bool operator==(const Identity&) const = default;
};

// "torch 2.5.1, 2 compute_threads, ...": for the log.
std::string describe(const std::vector<Fact>& facts);

// Of a text that somebody chose and that may be anything, for a fact: at most
// chosen_text_bytes_max of it, and a '?' for what is not a printable character of ASCII.
std::string plain_text(std::string_view text);
inline constexpr size_t chosen_text_bytes_max = 64;
inline constexpr size_t moves_max = 4;
inline constexpr size_t move_bytes_max = 160;

offload::CommitRecord record_of(const Identity& identity, const Progress& progress);

// What a record says.
struct Saved {
    Identity identity;
    Progress progress;
};
// Error: bad_data, a record that this program did not write.
offload::Result<Saved> read_record(const offload::CommitRecord& record);

// The fact of numerics that says how states are kept, named after its key.
inline constexpr const char* states_fact = "optimizer_states";
// Error: bad_data, a run that says nothing of it that is known here.
offload::Result<offload::StateFormat> states_of(const Identity& identity);

// Which numerics of a run may be others than those it was saved with.
struct AllowedChanges {
    bool states = false;  // they are converted first
    // What computes: processor, library, threads, this program. The step in the data, weights and
    // states are the saved ones; from there on, bits are not those of a run that was not moved.
    bool arithmetic = false;
};

// Error: bad_data, with every fact of numerics and job that differs and is not allowed, both
// values, and the remedy. A processor that the saved run does not name differs from none.
offload::Status check_same_run(const Identity& saved, const Identity& now,
                               AllowedChanges allowed = {});

// "compute_threads was 2 and is 4", one per fact of the arithmetic that differs.
std::vector<std::string> arithmetic_changes(const Identity& saved, const Identity& now);

// What a run that was saved does not say of its arithmetic, and this start does: "cpu (is B)". Runs
// of before that fact was asked for.
std::vector<std::string> unsaid_arithmetic(const Identity& saved, const Identity& now);

// What a commit after `attempts` steps says a run is that went on from `saved`: what was saved,
// kept as this start keeps it, until this start did a step; then this start, with one more of its
// moves where the arithmetic is another.
Identity identity_after(int64_t attempts, const Saved& saved, const Identity& now);

// "learning_rate was 1e-5 and is 2e-5", one per fact of the recipe that differs.
std::vector<std::string> recipe_changes(const Identity& saved, const Identity& now);

}  // namespace headrace::engine
