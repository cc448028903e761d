// Dataset: tokenised samples in memory, read from JSONL whose lines are
//     {"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "attention_mask": [1, 1, 1]}
// labels default to input_ids; -100 = not trained; tokens whose attention_mask is 0 may only stand
// at the end, and are dropped. Text, chats and prompts become this format in prepare.h.
//
// A token is trained when it is predicted from the tokens before it, so a label at position 0 never
// counts. Every line is checked: what is not JSON, has a token outside the vocabulary, lists of
// different lengths, or nothing to train is refused with file:line and the remedy. A sample longer
// than max_length is cut and counted; one that loses all its trained tokens by that is dropped,
// counted and named. Held as two flat int32 arrays: 8 bytes per token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "offload/result.h"

namespace headrace::engine {

inline constexpr int32_t not_trained = -100;

struct Sample {
    std::span<const int32_t> input_ids;
    std::span<const int32_t> labels;  // as long as input_ids
};

struct DatasetOptions {
    std::string path;
    int64_t vocabulary_size = 0;
    int64_t max_length = 0;
};

class Dataset {
  public:
    // Error: bad_data with file:line (see above), or failed where the file cannot be read.
    static offload::Result<Dataset> read(const DatasetOptions& options);

    int64_t sample_count() const { return static_cast<int64_t>(ends_.size()); }
    Sample sample(int64_t index) const;
    int64_t token_count_of(int64_t index) const;

    int64_t token_count() const { return static_cast<int64_t>(input_ids_.size()); }
    int64_t trained_token_count() const { return trained_token_count_; }
    int64_t longest_sample_tokens() const { return longest_sample_tokens_; }
    int64_t cut_sample_count() const { return cut_sample_count_; }
    // Line numbers of samples that lost all their trained tokens when they were cut.
    const std::vector<int64_t>& dropped_lines() const { return dropped_lines_; }

  private:
    offload::Status append_line(const std::string& line, const DatasetOptions& options,
                                int64_t line_number);
    std::vector<int32_t> input_ids_;
    std::vector<int32_t> labels_;
    std::vector<uint64_t> ends_;  // of each sample, in both arrays
    int64_t trained_token_count_ = 0;
    int64_t longest_sample_tokens_ = 0;
    int64_t cut_sample_count_ = 0;
    std::vector<int64_t> dropped_lines_;
};

// Labels at positions 1 and up that are trained.
int64_t count_trained(std::span<const int32_t> labels);

}  // namespace headrace::engine
