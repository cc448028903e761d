// Goal: an export is what it should be, byte by byte, and a refused or abandoned one leaves
// nothing. Method: round trips through our own reader; folders that must not be touched. (A Python
// test beside this one opens exports with transformers.)
#include "engine/checkpoint/writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/checkpoint/test_folder.h"

namespace headrace::engine {
namespace {

using nlohmann::json;
using offload::Dtype;
using offload::ErrorCode;
using offload::LayerSpec;
using offload::Result;
using offload::Status;
using testing::ElementsAre;
using testing::HasSubstr;

// SHAPE-1's shapes beside ordinary ones; the head is tied.
std::vector<LayerSpec> layers() {
    return {{"embedding", {{"embed", {64, 32}}}, {}},
            {"block", {{"empty", {0, 8}}, {"one", {1}}, {"scalar", {}}, {"odd", {3, 5, 7}}}, {}},
            {"head", {{"norm", {32}}}, {0}}};
}

class WriterTest : public testing::Test {
  protected:
    void SetUp() override {
        folder_.write("source/config.json", config_);
        folder_.write("source/tokenizer.json", "{}");
        folder_.write("source/chat_template.jinja", "{{ messages }}");
        folder_.write("source/README.md", "a card");
        folder_.write("source/model.safetensors.index.json", "{}");
        folder_.write("source/pytorch_model.bin", "weights");
        folder_.write("source/optimizer.pt", "states");
        folder_.write("source/.gitattributes", "x");
        folder_.write("source/onnx/model.onnx", "x");
    }

    CheckpointWriter::Options options(Dtype dtype = Dtype::bf16) const {
        return {.folder = folder_ / "out",
                .source_folder = folder_ / "source",
                .layers = layers(),
                .dtype = dtype,
                .shard_bytes_max = 5'000'000'000};
    }

    // Every byte of every tensor, in pieces, backwards.
    static void write_all(CheckpointWriter& writer, Dtype dtype) {
        for (const LayerSpec& layer : layers()) {
            for (const offload::TensorSpec& tensor : layer.tensors) {
                const uint64_t element_count = offload::element_count_of(tensor);
                const uint64_t half = element_count / 2;
                const std::string bytes = bytes_for(tensor.name, dtype, element_count);
                const auto all = std::as_bytes(std::span(bytes));
                const uint64_t half_bytes = offload::bytes_of(dtype, half);
                ASSERT_TRUE(writer.write(tensor.name, half, all.subspan(half_bytes)).ok());
                ASSERT_TRUE(writer.write(tensor.name, 0, all.first(half_bytes)).ok());
            }
        }
    }

    // Halves of small numbers, so that no value is a NaN.
    static std::string bytes_for(const std::string& name, Dtype dtype, uint64_t element_count) {
        std::string bytes;
        for (uint64_t i = 0; i < offload::bytes_of(dtype, element_count); ++i) {
            bytes += static_cast<char>((i * 31 + name.size()) % 48);
        }
        return bytes;
    }

    void export_all(const CheckpointWriter::Options& options) {
        Result<CheckpointWriter> writer = CheckpointWriter::create(options);
        ASSERT_TRUE(writer.ok()) << writer.error().text();
        write_all(*writer, options.dtype);
        const Status status = writer->finish();
        ASSERT_TRUE(status.ok()) << status.error().text();
    }

    const std::string config_ = R"({"tie_word_embeddings": true, "torch_dtype": "bfloat16"})";
    TestFolder folder_;
};

TEST_F(WriterTest, ckpt_6_round_trip_keeps_names_shapes_and_bytes) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
        for (const uint64_t shard_bytes_max :
             {uint64_t{5'000'000'000}, uint64_t{300}, uint64_t{1}}) {
            CheckpointWriter::Options wanted = options(dtype);
            wanted.shard_bytes_max = shard_bytes_max;
            export_all(wanted);
            const Result<Checkpoint> checkpoint = Checkpoint::open(folder_ / "out");
            ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text();
            EXPECT_TRUE(checkpoint->check_against(layers()).ok());
            EXPECT_THAT(checkpoint->names(),
                        ElementsAre("embed", "empty", "norm", "odd", "one", "scalar"));
            for (const LayerSpec& layer : layers()) {
                for (const offload::TensorSpec& tensor : layer.tensors) {
                    const uint64_t element_count = offload::element_count_of(tensor);
                    std::string bytes(offload::bytes_of(dtype, element_count), '?');
                    const ElementTarget target{dtype, std::as_writable_bytes(std::span(bytes)), {}};
                    ASSERT_TRUE(checkpoint->read_elements(tensor.name, 0, target).ok());
                    EXPECT_EQ(bytes, bytes_for(tensor.name, dtype, element_count)) << tensor.name;
                }
            }
        }
    }
}

TEST_F(WriterTest, CopiesEverythingButWeights) {
    export_all(options());
    EXPECT_THAT(names_in(folder_ / "out"),
                ElementsAre("README.md", "chat_template.jinja", "config.json", "model.safetensors",
                            "tokenizer.json"));
    EXPECT_EQ(bytes_of_file(folder_ / "out/config.json"), config_);
    EXPECT_EQ(bytes_of_file(folder_ / "out/chat_template.jinja"), "{{ messages }}");
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("out", "source"));
    const auto file = SafetensorsFile::open(folder_ / "out/model.safetensors");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->header().metadata.at("format"), "pt");
    // Within 1% of the sum of tensors, but for the header's page.
    EXPECT_EQ(std::filesystem::file_size(folder_ / "out/model.safetensors"),
              4096u + 2 * (64 * 32 + 1 + 1 + 105 + 32));
}

TEST_F(WriterTest, ConfigNamesTheDtypeOfTheWeights) {
    export_all(options(Dtype::fp32));
    const json config = json::parse(bytes_of_file(folder_ / "out/config.json"));
    EXPECT_EQ(config, (json{{"tie_word_embeddings", true}, {"torch_dtype", "float32"}}));
}

TEST_F(WriterTest, ShardsHaveAnIndex) {
    CheckpointWriter::Options wanted = options();
    wanted.shard_bytes_max = 300;
    export_all(wanted);
    const json index = json::parse(bytes_of_file(folder_ / "out/model.safetensors.index.json"));
    EXPECT_EQ(index["metadata"]["total_size"], 2 * (64 * 32 + 1 + 1 + 105 + 32));
    EXPECT_EQ(index["metadata"]["total_parameters"], 64 * 32 + 1 + 1 + 105 + 32);
    EXPECT_EQ(index["weight_map"], (json{{"embed", "model-00001-of-00002.safetensors"},
                                         {"empty", "model-00002-of-00002.safetensors"},
                                         {"one", "model-00002-of-00002.safetensors"},
                                         {"scalar", "model-00002-of-00002.safetensors"},
                                         {"odd", "model-00002-of-00002.safetensors"},
                                         {"norm", "model-00002-of-00002.safetensors"}}));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out/model.safetensors"));
}

TEST_F(WriterTest, ReplacesAnEarlierExportOnly) {
    export_all(options());
    CheckpointWriter::Options wanted = options();
    wanted.shard_bytes_max = 300;
    wanted.folder += "/";
    export_all(wanted);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out/model.safetensors"));
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("out", "source"));

    folder_.write("out/notes.txt", "mine");
    const Result<CheckpointWriter> writer = CheckpointWriter::create(options());
    ASSERT_FALSE(writer.ok());
    EXPECT_EQ(writer.error().code, ErrorCode::usage);
    EXPECT_THAT(writer.error().text(), HasSubstr("notes.txt"));
}

TEST_F(WriterTest, RefusesForeignTargets) {
    folder_.write("file", "x");
    folder_.write("model/config.json", "{}");
    folder_.write("model/model.safetensors", safetensors_bytes("{}", 0));
    folder_.write("deep/sub/x", "x");
    std::filesystem::create_directory(folder_ / "empty");
    std::filesystem::create_symlink("empty", folder_ / "link");
    const std::tuple<const char*, ErrorCode, const char*> rows[] = {
        {"file", ErrorCode::usage, "not a folder"},
        {"model", ErrorCode::usage, "no earlier export"},
        {"source", ErrorCode::usage, "which no export"},
        {"deep", ErrorCode::usage, "sub"},
        {"link", ErrorCode::usage, "a link"},
        {"link/", ErrorCode::usage, "a link"},
        {"file/below", ErrorCode::failed, "file"},
    };
    const std::vector<std::string> before = names_in(folder_.path());
    for (const auto& [name, code, said] : rows) {
        CheckpointWriter::Options wanted = options();
        wanted.folder = folder_ / name;
        const Result<CheckpointWriter> writer = CheckpointWriter::create(wanted);
        ASSERT_FALSE(writer.ok()) << name;
        EXPECT_EQ(writer.error().code, code) << name;
        EXPECT_THAT(writer.error().text(), HasSubstr(said));
        EXPECT_EQ(names_in(folder_.path()), before);
    }
    EXPECT_EQ(bytes_of_file(folder_ / "source/pytorch_model.bin"), "weights");
}

TEST_F(WriterTest, AbandonedOrRefusedLeavesNothing) {
    {
        Result<CheckpointWriter> writer = CheckpointWriter::create(options());
        ASSERT_TRUE(writer.ok());
        write_all(*writer, Dtype::bf16);
        EXPECT_EQ(names_in(folder_.path()).size(), 2u);
    }
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("source"));

    Result<CheckpointWriter> writer = CheckpointWriter::create(options());
    ASSERT_TRUE(writer.ok());
    write_all(*writer, Dtype::bf16);
    folder_.write("out/arrived_meanwhile", "mine");
    EXPECT_FALSE(writer->finish().ok());
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("out", "source"));
    EXPECT_THAT(names_in(folder_ / "out"), ElementsAre("arrived_meanwhile"));
}

TEST_F(WriterTest, SourceMustBeAModelFolder) {
    std::filesystem::remove(folder_ / "source/config.json");
    const Result<CheckpointWriter> missing = CheckpointWriter::create(options());
    ASSERT_FALSE(missing.ok());
    EXPECT_THAT(missing.error().text(), HasSubstr("config.json"));
    folder_.write("source/config.json", "{");
    EXPECT_FALSE(CheckpointWriter::create(options()).ok());
    folder_.write("source/config.json", config_);
    std::filesystem::create_symlink("nowhere", folder_ / "source/tokenizer.model");
    const Result<CheckpointWriter> dangling = CheckpointWriter::create(options());
    ASSERT_FALSE(dangling.ok());
    EXPECT_THAT(dangling.error().text(), HasSubstr("tokenizer.model"));
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("source"));
}

TEST_F(WriterTest, MisuseIsABug) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Result<CheckpointWriter> writer = CheckpointWriter::create(options());
    ASSERT_TRUE(writer.ok());
    const std::string two(4, '\0');
    const auto bytes = std::as_bytes(std::span(two));
    ASSERT_TRUE(writer->write("norm", 4, bytes).ok());
    EXPECT_DEATH((void)writer->write("norm", 5, bytes), "written twice");
    EXPECT_DEATH((void)writer->write("norm", 3, bytes), "written twice");
    EXPECT_DEATH((void)writer->write("norm", 31, bytes), "CHECK failed");
    EXPECT_DEATH((void)writer->write("other", 0, bytes), "not in this export");
    EXPECT_DEATH((void)writer->finish(), "was not written whole");
}

TEST(PlanShards, FillsGreedilyInModelOrder) {
    const std::vector<LayerSpec> model = {{"a", {{"t0", {10}}, {"t1", {10}}, {"t2", {100}}}, {}},
                                          {"b", {{"t3", {5}}, {"t4", {15}}, {"t5", {1}}}, {}}};
    const std::vector<ShardPlan> shards = plan_shards(model, Dtype::bf16, 40);
    ASSERT_EQ(shards.size(), 4u);
    EXPECT_EQ(shards[0].tensors.size(), 2u);
    EXPECT_EQ(shards[1].tensors.size(), 1u);
    EXPECT_EQ(shards[2].tensors.size(), 2u);
    EXPECT_EQ(shards[3].tensors[0].name, "t5");
    EXPECT_EQ(shards[3].file_name, "model-00004-of-00004.safetensors");
    EXPECT_EQ(plan_shards(model, Dtype::bf16, 282)[0].file_name, "model.safetensors");
}

}  // namespace
}  // namespace headrace::engine
