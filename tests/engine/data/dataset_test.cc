// Goal: good lines become samples exactly; every bad line is refused with its place and the remedy.
// Method: small JSONL files, one per rule.
#include "engine/data/dataset.h"

#include <gmock/gmock.h>

#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

using offload::ErrorCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DatasetTest : public ::testing::Test {
  protected:
    offload::Result<Dataset> read(const std::string& text, int64_t max_length = 16) const {
        return Dataset::read({.path = folder_.write("data.jsonl", text),
                              .vocabulary_size = 100,
                              .max_length = max_length});
    }
    std::string refusal(const std::string& text, int64_t max_length = 16) const {
        const auto dataset = read(text, max_length);
        if (dataset.ok()) return "accepted";
        EXPECT_EQ(dataset.error().code, ErrorCode::bad_data);
        const std::string said = dataset.error().text();
        EXPECT_THAT(said, HasSubstr(folder_.path("data.jsonl")));
        return said;
    }
    TestFolder folder_;
};

TEST_F(DatasetTest, lines_become_samples) {
    const auto dataset = read(
        "{\"input_ids\": [1, 2, 3]}\n"
        "\n"
        "{\"input_ids\": [4, 99, 0, 5], \"labels\": [-100, -100, 0, 5], \"text\": \"ignored\"}\n"
        "{\"input_ids\": [7, 8, 0, 0], \"attention_mask\": [1, 1, 0, 0], \"labels\": null}");
    ASSERT_TRUE(dataset.ok()) << dataset.error().text();
    ASSERT_EQ(dataset->sample_count(), 3);
    EXPECT_THAT(dataset->sample(0).labels, ElementsAre(1, 2, 3));
    EXPECT_THAT(dataset->sample(1).input_ids, ElementsAre(4, 99, 0, 5));
    EXPECT_THAT(dataset->sample(1).labels, ElementsAre(-100, -100, 0, 5));
    EXPECT_THAT(dataset->sample(2).input_ids, ElementsAre(7, 8));
    EXPECT_EQ(dataset->token_count(), 9);
    EXPECT_EQ(dataset->trained_token_count(), 2 + 2 + 1);
    EXPECT_EQ(dataset->longest_sample_tokens(), 4);
    EXPECT_EQ(dataset->cut_sample_count(), 0);
    EXPECT_THAT(dataset->dropped_lines(), IsEmpty());
}

TEST_F(DatasetTest, long_samples_are_cut_and_those_that_lose_everything_are_dropped) {
    const auto dataset = read(
        "{\"input_ids\": [1, 2, 3, 4, 5]}\n"
        "{\"input_ids\": [1, 2, 3, 4, 5], \"labels\": [-100, -100, -100, 4, 5]}\n"
        "{\"input_ids\": [1, 2, 3]}\n",
        3);
    ASSERT_TRUE(dataset.ok()) << dataset.error().text();
    EXPECT_EQ(dataset->sample_count(), 2);
    EXPECT_THAT(dataset->sample(0).input_ids, ElementsAre(1, 2, 3));
    EXPECT_EQ(dataset->cut_sample_count(), 2);
    EXPECT_THAT(dataset->dropped_lines(), ElementsAre(2));
    EXPECT_THAT(refusal("{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, -100, -100, 4]}\n", 3),
                HasSubstr("all 1 samples are longer; raise max_length"));
}

TEST_F(DatasetTest, bad_lines_are_refused_with_their_number) {
    struct Row {
        std::string line;
        std::string said;
    };
    const std::vector<Row> rows = {
        {"{\"input_ids\": [1, 2", "this is no JSON; is the line cut off?"},
        {"{\"input_ids\": [1, 2]} x", "this is no JSON"},
        {"[1, 2]", "this is array, not an object"},
        {"{\"text\": \"a\"}", "'input_ids' is missing"},
        {"{\"input_ids\": 3}", "'input_ids' is number, not a list"},
        {"{\"input_ids\": [1, 1.5]}", "'input_ids' holds 1.5, not a whole number, at position 1"},
        {"{\"input_ids\": [1, \"a\"]}", "'input_ids' holds string, not a whole number"},
        {"{\"input_ids\": [1, 100]}", "'input_ids' holds 100 at position 1, outside 0 to 99"},
        {"{\"input_ids\": [1, -100]}", "'input_ids' holds -100 at position 1, outside 0 to 99"},
        {"{\"input_ids\": [1, 4294967297]}", "holds 4294967297 at position 1, outside"},
        {"{\"input_ids\": [1, 18446744073709551615]}", "holds 18446744073709551615 at position 1"},
        {"{\"input_ids\": [1, 1e400]}", "this is no JSON"},
        {"{\"input_ids\": [1, 2], \"labels\": [1, 100]}", "'labels' holds 100 at position 1"},
        {"{\"input_ids\": [1, 2], \"labels\": [1, -1]}", "'labels' holds -1 at position 1"},
        {"{\"input_ids\": [1, 2], \"labels\": [1]}", "'labels' has 1 items and 'input_ids' 2"},
        {"{\"input_ids\": [1, 2], \"attention_mask\": [1]}", "'attention_mask' has 1 items"},
        {"{\"input_ids\": [1, 2], \"attention_mask\": [1, 2]}", "'attention_mask' holds 2"},
        {"{\"input_ids\": [1, 2], \"attention_mask\": [0, 1]}", "hides position 0"},
        {"{\"input_ids\": [1, 2], \"attention_mask\": [1, 0]}", "nothing to train"},
        {"{\"input_ids\": []}", "nothing to train"},
        {"{\"input_ids\": [1]}", "nothing to train"},
        // A label at position 0 is never predicted.
        {"{\"input_ids\": [1, 2], \"labels\": [1, -100]}", "nothing to train"},
    };
    for (const Row& row : rows) {
        const std::string said = refusal("{\"input_ids\": [1, 2]}\n" + row.line + "\n");
        EXPECT_THAT(said, HasSubstr("data.jsonl:2: ")) << row.line;
        EXPECT_THAT(said, HasSubstr(row.said)) << row.line;
    }
}

TEST_F(DatasetTest, an_empty_or_absent_file_is_refused) {
    EXPECT_THAT(refusal(""), HasSubstr("the file is empty"));
    EXPECT_THAT(refusal("\n  \n"), HasSubstr("the file is empty"));
    const auto absent = Dataset::read(
        {.path = folder_.path("absent.jsonl"), .vocabulary_size = 100, .max_length = 16});
    ASSERT_FALSE(absent.ok());
    EXPECT_THAT(absent.error().text(), HasSubstr("absent.jsonl': No such file"));
    const auto a_folder =
        Dataset::read({.path = folder_.path("."), .vocabulary_size = 100, .max_length = 16});
    EXPECT_FALSE(a_folder.ok());
}

}  // namespace
}  // namespace headrace::engine
