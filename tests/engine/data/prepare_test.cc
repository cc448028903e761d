// Goal: the kind of a file is told by its first line; the tool runs once per input, its result is
// kept whole or not at all, and its failure arrives with its words.
// Method: a tool of shell in place of Python's, which counts its runs.
#include "engine/data/prepare.h"

#include <gmock/gmock.h>

#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

namespace fs = std::filesystem;
using offload::ErrorCode;
using ::testing::HasSubstr;

class PrepareTest : public ::testing::Test {
  protected:
    PrepareTest() {
        fs::create_directories(folder_.path("model"));
        folder_.write("model/tokenizer.json", "{}");
        folder_.write("chat.jsonl", "\n{\"messages\": []}\n");
        set_tool("echo run >> \"$1/../runs\"; cp \"$2\" \"$3\"; echo '1 sample' >&2");
    }
    // `sh prepare_data.py MODEL INPUT OUTPUT`: the script is a shell script here.
    void set_tool(const std::string& script) { folder_.write("prepare_data.py", script + "\n"); }
    PrepareOptions options(const std::string& data = "chat.jsonl") const {
        return {.data_path = folder_.path(data),
                .model_dir = folder_.path("model"),
                .cache_dir = folder_.path("cache/data"),
                .scripts_dir = folder_.path("."),
                .python = "sh"};
    }
    std::string kind_of(const std::string& text) const {
        const auto kind = detect_kind(folder_.write("kind.jsonl", text));
        return kind.ok() ? std::string(name_of(*kind)) : kind.error().text();
    }
    TestFolder folder_;
};

TEST_F(PrepareTest, the_first_line_tells_the_kind) {
    EXPECT_EQ(kind_of("{\"input_ids\": [1], \"text\": \"a\"}"), "input_ids");
    EXPECT_EQ(kind_of("{\"messages\": []}"), "messages");
    EXPECT_EQ(kind_of("\n{\"prompt\": \"a\", \"completion\": \"b\"}"), "prompt + completion");
    EXPECT_EQ(kind_of("{\"text\": \"a\"}"), "text");
    EXPECT_THAT(kind_of("{\"prompt\": \"a\", \"answer\": \"b\"}"),
                HasSubstr("the first line has: answer, prompt"));
    EXPECT_THAT(kind_of("Once upon a time"), HasSubstr("is no JSONL"));
    EXPECT_THAT(kind_of("[1]"), HasSubstr("is no JSONL"));
    EXPECT_THAT(kind_of(""), HasSubstr("the file is empty"));
    EXPECT_EQ(detect_kind(folder_.path("absent")).error().code, ErrorCode::bad_data);
}

TEST_F(PrepareTest, tokens_are_taken_as_they_are) {
    folder_.write("tokens.jsonl", "{\"input_ids\": [1, 2]}\n");
    const auto prepared = prepare_data(options("tokens.jsonl"));
    ASSERT_TRUE(prepared.ok()) << prepared.error().text();
    EXPECT_EQ(prepared->path, folder_.path("tokens.jsonl"));
    EXPECT_FALSE(fs::exists(folder_.path("cache")));
    EXPECT_FALSE(fs::exists(folder_.path("runs")));
}

TEST_F(PrepareTest, the_tool_runs_once_until_something_changes) {
    const auto first = prepare_data(options());
    ASSERT_TRUE(first.ok()) << first.error().text();
    EXPECT_FALSE(first->from_cache);
    EXPECT_EQ(first->kind, DataKind::chat);
    EXPECT_EQ(first->messages, "1 sample\n");
    EXPECT_TRUE(fs::exists(first->path));
    const auto second = prepare_data(options());
    EXPECT_TRUE(second->from_cache);
    EXPECT_EQ(second->path, first->path);
    EXPECT_EQ(folder_.read("runs"), "run\n");

    folder_.write("model/chat_template.jinja", "new");
    const auto other_template = prepare_data(options());
    EXPECT_NE(other_template->path, first->path);
    folder_.write("chat.jsonl", "{\"messages\": [1]}\n");
    const auto other_data = prepare_data(options());
    EXPECT_NE(other_data->path, other_template->path);
    EXPECT_EQ(folder_.read("runs"), "run\nrun\nrun\n");
}

// Whatever the tool may read of the model's folder.
TEST_F(PrepareTest, every_file_of_the_tokenizer_counts) {
    std::string last = prepare_data(options()).value().path;
    fs::create_directory(folder_.path("model/additional_chat_templates"));
    for (const std::string name :
         {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
          "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja",
          "additional_chat_templates/tool_use.jinja", "config.json", "generation_config.json"}) {
        folder_.write("model/" + name, "{\"new\": 1}");
        const auto prepared = prepare_data(options());
        ASSERT_TRUE(prepared.ok()) << prepared.error().text();
        EXPECT_NE(prepared->path, last) << name;
        last = prepared->path;
    }
}

TEST_F(PrepareTest, a_failure_carries_the_tools_words_and_leaves_nothing) {
    set_tool("echo half > \"$3\"; echo 'chat.jsonl:2: no role' >&2; exit 4");
    const auto prepared = prepare_data(options());
    ASSERT_FALSE(prepared.ok());
    EXPECT_EQ(prepared.error().code, ErrorCode::bad_data);
    EXPECT_THAT(prepared.error().text(), HasSubstr("(exit code 4)"));
    EXPECT_THAT(prepared.error().text(), HasSubstr("chat.jsonl:2: no role"));
    EXPECT_FALSE(fs::exists(folder_.path("cache/data")));
}

TEST_F(PrepareTest, a_python_that_lacks_packages_is_no_fault_of_the_data) {
    set_tool("echo 'no tokenizers' >&2; exit 1");
    const auto prepared = prepare_data(options());
    ASSERT_FALSE(prepared.ok());
    EXPECT_EQ(prepared.error().code, ErrorCode::failed);
    EXPECT_THAT(prepared.error().text(), HasSubstr("scripts/setup"));
}

TEST_F(PrepareTest, a_tool_that_was_stopped_says_so) {
    set_tool("kill -9 $$");
    const auto prepared = prepare_data(options());
    ASSERT_FALSE(prepared.ok());
    EXPECT_EQ(prepared.error().code, ErrorCode::failed);
    EXPECT_THAT(prepared.error().text(), HasSubstr("stopped by signal 9"));
    EXPECT_FALSE(fs::exists(folder_.path("cache/data")));
    // Ctrl-C goes to the tool too; prepare_data.py leaves with 130.
    for (const std::string end : {"kill -INT $$; sleep 9", "kill -TERM $$; sleep 9", "exit 130"}) {
        set_tool(end);
        EXPECT_EQ(prepare_data(options()).error().code, ErrorCode::stopped) << end;
    }
}

TEST_F(PrepareTest, a_tool_that_writes_nothing_has_failed) {
    set_tool("exit 0");
    const auto prepared = prepare_data(options());
    ASSERT_FALSE(prepared.ok());
    EXPECT_THAT(prepared.error().text(), HasSubstr("cannot keep the prepared data as"));
}

TEST_F(PrepareTest, what_is_missing_is_named) {
    PrepareOptions no_python = options();
    no_python.python = "/nowhere/python";
    EXPECT_THAT(prepare_data(no_python).error().text(), HasSubstr("HEADRACE_PYTHON names one"));
    PrepareOptions no_tool = options();
    no_tool.scripts_dir = folder_.path("absent");
    EXPECT_THAT(prepare_data(no_tool).error().text(), HasSubstr("absent/prepare_data.py"));
    folder_.write("file", "");
    PrepareOptions no_cache = options();
    no_cache.cache_dir = folder_.path("file/data");
    EXPECT_THAT(prepare_data(no_cache).error().text(), HasSubstr("cannot make the folder"));
    EXPECT_EQ(prepare_data(no_cache).error().code, ErrorCode::failed);
}

}  // namespace
}  // namespace headrace::engine
