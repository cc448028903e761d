// Goal: a model folder is one set of tensors, however it is stored, and whatever is wrong with it
// is said with file, tensor and remedy. Method: small folders made byte by byte, good and bad.
#include "engine/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/checkpoint/test_folder.h"

namespace headrace::engine {
namespace {

using offload::Dtype;
using offload::ErrorCode;
using offload::LayerSpec;
using offload::Result;
using offload::Status;
using testing::ElementsAre;
using testing::HasSubstr;

// A file of U8 or F32 tensors of one element each, data 0, 1, 2, ...
std::string file_of(const std::vector<std::string>& names, std::string_view dtype = "F32") {
    const uint64_t element_bytes = dtype == "F32" ? 4 : dtype == "U8" ? 1 : 2;
    std::string header = "{";
    for (size_t i = 0; i < names.size(); ++i) {
        header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[1],"data_offsets":[{},{}]}})",
                              i == 0 ? "" : ",", names[i], dtype, i * element_bytes,
                              (i + 1) * element_bytes);
    }
    return safetensors_bytes(header + "}", names.size() * element_bytes);
}

std::vector<LayerSpec> layers_with(const std::vector<std::string>& names, bool is_tied = false) {
    LayerSpec layer{.name = "embedding", .tensors = {}, .borrowed_layers = {}};
    for (const std::string& name : names) layer.tensors.push_back({name, {1}});
    LayerSpec head{.name = "head", .tensors = {{"norm", {1}}}, .borrowed_layers = {}};
    if (is_tied) head.borrowed_layers = {0};
    return {layer, head};
}

TEST(Checkpoint, OneFileAndShardsAreTheSame) {
    const TestFolder one, two;
    one.write("model.safetensors", file_of({"a", "b", "norm"}));
    two.write("s1.safetensors", file_of({"b"}));
    two.write("s2.safetensors", file_of({"norm", "a"}));
    two.write("model.safetensors.index.json",
              R"({"metadata": {"total_size": 12}, "weight_map": {"a": "s2.safetensors",
                  "b": "s1.safetensors", "norm": "s2.safetensors"}})");
    for (const TestFolder* folder : {&one, &two}) {
        const Result<Checkpoint> checkpoint = Checkpoint::open(folder->path());
        ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text();
        EXPECT_THAT(checkpoint->names(), ElementsAre("a", "b", "norm"));
        EXPECT_TRUE(checkpoint->check_against(layers_with({"a", "b"})).ok());
        EXPECT_EQ(checkpoint->find("c"), nullptr);
        uint32_t bits = 0;
        const ElementTarget target{Dtype::fp32, std::as_writable_bytes(std::span(&bits, 1)), {}};
        ASSERT_TRUE(checkpoint->read_elements("a", 0, target).ok());
        EXPECT_EQ(bits, folder == &one ? 0x03020100u : 0x07060504u);
    }
}

TEST(Checkpoint, FollowsLinksAsAHubCacheHasThem) {
    const TestFolder folder;
    folder.write("blobs/123", file_of({"a"}));
    std::filesystem::create_directories(folder / "snapshots/r");
    std::filesystem::create_symlink("../../blobs/123", folder / "snapshots/r/model.safetensors");
    EXPECT_TRUE(Checkpoint::open(folder / "snapshots/r").ok());
    std::filesystem::remove(folder / "blobs/123");
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder / "snapshots/r");
    ASSERT_FALSE(checkpoint.ok());
    EXPECT_THAT(checkpoint.error().text(), HasSubstr("half a download"));
}

TEST(Checkpoint, RefusesBadIndexesAndShards) {
    struct Row {
        const char* title;
        const char* index;
        const char* said;
    };
    const Row rows[] = {
        {"missing shard", R"({"weight_map": {"a": "s1.safetensors", "b": "s9.safetensors"}})",
         "shard s9.safetensors is missing"},
        {"separator", R"({"weight_map": {"a": "../s1.safetensors"}})", "without path separators"},
        {"absolute", R"({"weight_map": {"a": "/etc/passwd"}})", "/etc/passwd"},
        {"backslash", R"({"weight_map": {"a": "x\\s1.safetensors"}})", "without path separators"},
        {"zero byte", R"({"weight_map": {"a": "s1.safetensors\u0000"}})", "without path"},
        {"parent", R"({"weight_map": {"a": ".."}})", "without path separators"},
        {"not a name", R"({"weight_map": {"a": 1}})", "weight_map places \"a\" in 1"},
        {"not in shard", R"({"weight_map": {"z": "s1.safetensors"}})",
         "places z in s1.safetensors, which does not hold it"},
        {"other shard", R"({"weight_map": {"a": "s2.safetensors", "c": "s1.safetensors"}})",
         "which does not hold it"},
        {"in two shards", R"({"weight_map": {"a": "s1.safetensors", "b": "s3.safetensors"}})",
         "a is in two shards"},
        {"twice", R"({"weight_map": {"a": "s1.safetensors", "a": "s2.safetensors"}})",
         "\"a\" stands twice"},
        {"truncated shard", R"({"weight_map": {"a": "s1.safetensors", "t": "t.safetensors"}})",
         "t.safetensors: its tensors need"},
        {"no map", R"({"metadata": {}})", "no weight_map"},
        {"not an object", R"({"weight_map": ["a"]})", "no weight_map"},
        {"no tensors", R"({"weight_map": {}})", "no tensor"},
        {"damaged", R"({"weight_map": {)", "not valid JSON"},
    };
    const TestFolder folder;
    folder.write("s1.safetensors", file_of({"a"}));
    folder.write("s2.safetensors", file_of({"c"}));
    folder.write("s3.safetensors", file_of({"a", "b"}));
    const std::string cut = file_of({"t"});
    folder.write("t.safetensors", std::string_view(cut).substr(0, cut.size() - 1));
    for (const Row& row : rows) {
        folder.write("model.safetensors.index.json", row.index);
        const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
        ASSERT_FALSE(checkpoint.ok()) << row.title;
        EXPECT_EQ(checkpoint.error().code, ErrorCode::bad_data) << row.title;
        EXPECT_THAT(checkpoint.error().text(), HasSubstr(folder.path())) << row.title;
        EXPECT_THAT(checkpoint.error().text(), HasSubstr(row.said)) << row.title;
    }
}

TEST(Checkpoint, NamesTheConverterOfOtherFormats) {
    const std::pair<const char*, const char*> rows[] = {
        {"pytorch_model.bin", "save_pretrained"},
        {"pytorch_model-00001-of-00002.bin", "save_pretrained"},
        {"model.Q4_1.gguf", "gguf_file='model.Q4_1.gguf'"},
        {"consolidated.00.pth", "convert_llama_weights_to_hf"},
        {"adapter_model.safetensors", "merge_and_unload"},
        {"model-00001-of-00002.safetensors", "index of its shards"},
        {"readme.txt", "is the download complete"},
    };
    for (const auto& [name, said] : rows) {
        const TestFolder folder;
        folder.write(name, "x");
        const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
        ASSERT_FALSE(checkpoint.ok());
        EXPECT_EQ(checkpoint.error().code, ErrorCode::bad_data);
        EXPECT_THAT(checkpoint.error().text(), HasSubstr(said));
        EXPECT_THAT(checkpoint.error().text(), HasSubstr(folder.path()));
    }
    EXPECT_FALSE(Checkpoint::open("/no/such/folder").ok());
}

TEST(Checkpoint, ComparesWithTheModel) {
    const TestFolder folder;
    const auto text_for = [&](const std::string& file, const std::vector<LayerSpec>& layers) {
        folder.write("model.safetensors", file);
        const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
        EXPECT_TRUE(checkpoint.ok());
        const Status status = checkpoint->check_against(layers);
        EXPECT_TRUE(status.ok() || status.error().code == ErrorCode::bad_data);
        return status.ok() ? std::string() : status.error().text();
    };
    EXPECT_EQ(text_for(file_of({"a", "norm"}), layers_with({"a"})), "");
    EXPECT_EQ(text_for(file_of({"a", "model.layers.0.self_attn.rotary_emb.inv_freq", "norm"}),
                       layers_with({"a"})),
              "");
    EXPECT_THAT(text_for(file_of({"norm"}), layers_with({"a", "lm_head.weight"})),
                testing::AllOf(HasSubstr("missing tensors (2): a, lm_head.weight"),
                               HasSubstr("tie_word_embeddings")));
    EXPECT_THAT(text_for(file_of({"a", "norm", "q.bias"}), layers_with({"a"})),
                HasSubstr("does not have (1): q.bias"));
    std::vector<LayerSpec> wide = layers_with({"a"});
    wide[0].tensors[0].shape = {2, 3};
    EXPECT_THAT(text_for(file_of({"a", "norm"}), wide),
                HasSubstr("a has shape [1], the config asks for [2, 3]"));
    EXPECT_THAT(text_for(file_of({"a", "norm"}, "U8"), layers_with({"a"})),
                HasSubstr("a has dtype U8"));
    std::vector<std::string> many;
    for (int i = 0; i < 20; ++i) many.push_back(fmt::format("t{:02}", i));
    EXPECT_THAT(text_for(file_of({"norm"}), layers_with(many)), HasSubstr("t07 and 12 more"));
}

// LOAD-2: a tied file may store the head once more; it is not another parameter.
TEST(Checkpoint, load_2_a_stored_tied_head_is_ignored) {
    const TestFolder folder;
    folder.write("model.safetensors", file_of({"a", "lm_head.weight", "norm"}));
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok());
    EXPECT_TRUE(checkpoint->check_against(layers_with({"a"}, true)).ok());
    EXPECT_FALSE(checkpoint->check_against(layers_with({"a"}, false)).ok());
}

TEST(Checkpoint, ReadsAnyRangeThroughSmallChunks) {
    // More than one chunk of 4 MiB; fp32 to bf16 needs the buffer, fp32 to fp32 does not.
    constexpr uint64_t element_count = 3 << 20;
    std::string data = safetensors_bytes(
        fmt::format(R"({{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})",
                    element_count, element_count * 4),
        0);
    std::vector<float> values(element_count);
    for (uint64_t i = 0; i < element_count; ++i)
        values[i] = 1.0f + static_cast<float>(i) * 0x1p-22f;
    data.append(reinterpret_cast<const char*>(values.data()), element_count * 4);
    const TestFolder folder;
    folder.write("model.safetensors", data);
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok());
    constexpr uint64_t first = 5;
    std::vector<uint16_t> hi(element_count - first), lo(hi.size());
    ASSERT_TRUE(
        checkpoint
            ->read_elements("w", first, {Dtype::bf16, std::as_writable_bytes(std::span(hi)), lo})
            .ok());
    std::vector<float> wide(element_count - first);
    ASSERT_TRUE(
        checkpoint
            ->read_elements("w", first, {Dtype::fp32, std::as_writable_bytes(std::span(wide)), {}})
            .ok());
    for (uint64_t i = 0; i < hi.size(); ++i) {
        ASSERT_EQ(wide[i], values[first + i]);
        ASSERT_EQ(join_master({hi[i], lo[i]}), values[first + i]);
    }
    // The end, and nothing.
    float last = 0;
    const ElementTarget one{Dtype::fp32, std::as_writable_bytes(std::span(&last, 1)), {}};
    ASSERT_TRUE(checkpoint->read_elements("w", element_count - 1, one).ok());
    EXPECT_EQ(last, values.back());
    EXPECT_TRUE(checkpoint->read_elements("w", element_count, {Dtype::fp32, {}, {}}).ok());
}

TEST(Checkpoint, RefusesADtypeAtUse) {
    const TestFolder folder;
    folder.write("model.safetensors", file_of({"a"}, "U8"));
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok());
    float value = 0;
    const Status status = checkpoint->read_elements(
        "a", 0, {Dtype::fp32, std::as_writable_bytes(std::span(&value, 1)), {}});
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().text(), HasSubstr("its dtype is U8"));
}

}  // namespace
}  // namespace headrace::engine
