// Goal: every file that the format forbids is refused, naming file, tensor and numbers; every file
// that it allows is read; no bytes whatever crash the reader.
// Method: files made byte by byte, our own layout read back, and headers with random damage.
#include "engine/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "offload/units.h"
#include "tests/engine/checkpoint/test_folder.h"

namespace headrace::engine {
namespace {

using offload::Dtype;
using offload::ErrorCode;
using offload::Result;
using offload::TensorSpec;
using testing::HasSubstr;

constexpr const char* good_header =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
    R"("e":{"dtype":"F16","shape":[0,8],"data_offsets":[8,8]},)"
    R"("s":{"dtype":"I64","shape":[],"data_offsets":[20,28]}}   )";

TEST(Safetensors, ReadsAValidFile) {
    const TestFolder folder;
    const auto file =
        SafetensorsFile::open(folder.write("f.safetensors", safetensors_bytes(good_header, 28)));
    ASSERT_TRUE(file.ok()) << file.error().text();
    EXPECT_EQ(file->header().metadata.at("format"), "pt");
    ASSERT_EQ(file->header().tensors.size(), 4u);
    EXPECT_EQ(file->header().tensors[0].name, "b");
    EXPECT_EQ(file->header().tensors[1].name, "e");
    const StoredTensor* tensor = file->find("a");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->dtype, Dtype::bf16);
    EXPECT_EQ(tensor->element_count, 6u);
    EXPECT_EQ(file->find("s")->element_count, 1u);
    EXPECT_EQ(file->find("s")->dtype, std::nullopt);
    EXPECT_EQ(file->find("e")->element_count, 0u);
    EXPECT_EQ(file->find("c"), nullptr);
    std::array<uint8_t, 5> bytes = {};
    ASSERT_TRUE(file->read(*tensor, 3, std::as_writable_bytes(std::span(bytes))).ok());
    EXPECT_THAT(bytes, testing::ElementsAre(11, 12, 13, 14, 15));
    EXPECT_TRUE(file->read(*file->find("e"), 0, {}).ok());
}

TEST(Safetensors, AFileWithoutTensorsIsValid) {
    const TestFolder folder;
    EXPECT_TRUE(SafetensorsFile::open(folder.write("f", safetensors_bytes("{}", 0))).ok());
}

TEST(Safetensors, RefusesBadHeadersNamingTheOffender) {
    struct Row {
        const char* title;
        const char* header;
        uint64_t data_bytes;
        const char* said;
    };
    const Row rows[] = {
        {"hole", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "a hole"},
        {"hole between",
         R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
         R"("y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
         3, "\"y\" begins at byte 2 of the data, but the one before it ends at 1"},
        {"overlap",
         R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
         R"("y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
         12, "\"y\" begins at byte 4 of the data, but the one before it ends at 8: they overlap"},
        {"same place",
         R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
         R"("y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
         4, "overlap"},
        {"duplicate",
         R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
         R"("x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
         1, "\"x\" stands twice"},
        {"truncated data", R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
         "need 8 bytes of data, but it holds 7: truncated"},
        {"too long", R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9, "too long"},
        {"wrong size", R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
         "needs 96 bits"},
        {"backwards", R"({"x":{"dtype":"F32","shape":[0],"data_offsets":[8,0]}})", 8, "[8, 0]"},
        {"unknown dtype", R"({"x":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4,
         "\"F99\""},
        {"dtype no name", R"({"x":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})", 4, "exactly"},
        {"huge shape",
         R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
         "64 bits"},
        {"huge bits", R"({"x":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4]}})",
         4, "64 bits"},
        {"negative", R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "exactly"},
        {"fraction", R"({"x":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "exactly"},
        {"one offset", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", 4, "exactly"},
        {"no shape", R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", 4, "exactly"},
        {"more", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"z":0}})", 4, "exactly"},
        {"not object", R"({"x":7})", 0, "\"x\" is described as 7"},
        {"half bytes", R"({"x":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "12 bits"},
        {"metadata", R"({"__metadata__":{"format":1}})", 0, "only strings"},
        {"metadata kind", R"({"__metadata__":[]})", 0, "__metadata__"},
        {"not JSON", R"({"x":)", 0, "not valid JSON"},
        {"array", R"([])", 0, "does not begin with '{'"},
        {"space first", R"( {})", 0, "does not begin with '{'"},
        {"empty header", "", 0, "does not begin with '{'"},
    };
    const TestFolder folder;
    for (const Row& row : rows) {
        folder.write("bad.safetensors", safetensors_bytes(row.header, row.data_bytes));
        const auto file = SafetensorsFile::open(folder / "bad.safetensors");
        ASSERT_FALSE(file.ok()) << row.title;
        EXPECT_EQ(file.error().code, ErrorCode::bad_data);
        EXPECT_THAT(file.error().text(), HasSubstr(folder / "bad.safetensors")) << row.title;
        EXPECT_THAT(file.error().text(), HasSubstr(row.said)) << row.title;
    }
}

TEST(Safetensors, RefusesFilesCutAnywhere) {
    const TestFolder folder;
    const std::string path = folder.write("cut", safetensors_bytes(good_header, 28));
    for (uint64_t size_bytes = std::filesystem::file_size(path); size_bytes > 0;) {
        std::filesystem::resize_file(path, --size_bytes);
        const auto file = SafetensorsFile::open(path);
        ASSERT_FALSE(file.ok()) << size_bytes;
        EXPECT_EQ(file.error().code, ErrorCode::bad_data);
    }
}

TEST(Safetensors, RefusesAHugeHeaderBeforeReadingIt) {
    const TestFolder folder;
    for (const uint64_t header_bytes : {uint64_t{100'000'001}, UINT64_MAX, UINT64_MAX - 7}) {
        std::string bytes(64, '{');
        std::memcpy(bytes.data(), &header_bytes, sizeof header_bytes);
        folder.write("huge", bytes);
        const auto file = SafetensorsFile::open(folder / "huge");
        ASSERT_FALSE(file.ok());
        EXPECT_THAT(file.error().text(), HasSubstr(std::to_string(header_bytes)));
    }
}

TEST(Safetensors, RandomDamageNeverCrashes) {
    const std::string whole = good_header;
    std::mt19937 random(20240607);
    int valid_count = 0;
    for (int round = 0; round < 2000; ++round) {
        std::string header = whole;
        const size_t change_count = 1 + random() % 3;
        for (size_t i = 0; i < change_count; ++i) {
            header[random() % header.size()] = static_cast<char>(random());
        }
        if (round % 4 == 0) header.resize(random() % header.size());
        const uint64_t file_size_bytes = 8 + header.size() + 28;
        const auto parsed = parse_safetensors_header(header, file_size_bytes, "damaged");
        if (!parsed.ok()) {
            EXPECT_EQ(parsed.error().code, ErrorCode::bad_data);
            EXPECT_THAT(parsed.error().text(), HasSubstr("damaged"));
            continue;
        }
        ++valid_count;  // the damage hit a name or the metadata
        uint64_t end_bytes = 8 + header.size();
        for (const StoredTensor& tensor : parsed->tensors) {
            ASSERT_EQ(tensor.offset_bytes, end_bytes);
            end_bytes += tensor.size_bytes;
        }
        ASSERT_EQ(end_bytes, file_size_bytes);
    }
    EXPECT_GT(valid_count, 0);
    EXPECT_LT(valid_count, 1500);
}

// SHAPE-1: empty tensors and scalars keep their shapes.
TEST(Safetensors, shape_1_our_layout_is_valid_and_aligned) {
    const std::vector<TensorSpec> tensors = {{"odd", {3, 5, 7}}, {"empty", {0, 8}},
                                             {"one", {1}},       {"page", {64, 64}},
                                             {"scalar", {}},     {"big", {128, 4096}}};
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
        const SafetensorsLayout layout = lay_out_safetensors(tensors, dtype, {{"format", "pt"}});
        EXPECT_EQ(layout.head.size() % offload::page_bytes, 0u);
        std::string bytes = layout.head;
        bytes.resize(layout.file_size_bytes, '\1');
        const TestFolder folder;
        const auto file = SafetensorsFile::open(folder.write("f", bytes));
        ASSERT_TRUE(file.ok()) << file.error().text();
        EXPECT_EQ(file->header().metadata.at("format"), "pt");
        for (size_t i = 0; i < tensors.size(); ++i) {
            const StoredTensor* stored = file->find(tensors[i].name);
            ASSERT_NE(stored, nullptr);
            EXPECT_EQ(*stored, layout.tensors[i]);
            EXPECT_EQ(stored->shape, tensors[i].shape);
            EXPECT_EQ(stored->dtype, dtype);
        }
        EXPECT_EQ(file->find("page")->offset_bytes % offload::page_bytes, 0u);
        EXPECT_EQ(file->find("big")->offset_bytes % offload::page_bytes, 0u);
    }
}

TEST(SafetensorsDeathTest, ANameTwiceIsABug) {
    const std::vector<TensorSpec> tensors = {{"a", {1}}, {"a", {1}}};
    EXPECT_DEATH((void)lay_out_safetensors(tensors, Dtype::bf16, {}), "stands twice");
}

}  // namespace
}  // namespace headrace::engine
