#include "engine/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <utility>

#include "engine/models/json.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using nlohmann::json;
using offload::Dtype;
using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;
using offload::TensorSpec;

namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read as they lie on disk");

constexpr uint64_t length_bytes = 8;
constexpr uint64_t header_bytes_max = 100'000'000;
constexpr std::string_view metadata_key = "__metadata__";

struct DtypeRow {
    std::string_view name;
    uint64_t bits;
    std::optional<Dtype> dtype;
};

// Every dtype of the format; those without a Dtype are checked for size and refused at use.
constexpr std::array<DtypeRow, 22> dtype_rows = {{
    {"BF16", 16, Dtype::bf16},
    {"F16", 16, Dtype::fp16},
    {"F32", 32, Dtype::fp32},
    {"F64", 64, {}},
    {"BOOL", 8, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"U16", 16, {}},
    {"I16", 16, {}},
    {"U32", 32, {}},
    {"I32", 32, {}},
    {"U64", 64, {}},
    {"I64", 64, {}},
    {"C64", 64, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
}};

std::string_view stored_name_of(Dtype dtype) {
    for (const DtypeRow& row : dtype_rows) {
        if (row.dtype == dtype) return row.name;
    }
    CHECK_TEXT(false, "a dtype without a name in the format");
    return {};
}

Error bad_file(const std::string& source, const std::string& fault) {
    CHECK(!fault.empty());
    return Error{ErrorCode::bad_data,
                 fmt::format("reading {}: {}; the file is damaged or half a download, get it again",
                             source, fault),
                 ""};
}

Error bad_tensor(const std::string& source, const std::string& name, const std::string& fault) {
    return bad_file(source, fmt::format("tensor {} {}", shown(json(name)), fault));
}

// The product of a shape, or nothing when it does not fit 64 bits.
std::optional<uint64_t> checked_product(const std::vector<int64_t>& shape) {
    uint64_t product = 1;
    for (const int64_t side : shape) {
        CHECK_GE(side, 0);
        if (__builtin_mul_overflow(product, static_cast<uint64_t>(side), &product)) return {};
    }
    return product;
}

// Unsigned and within int64, as every number of a header must be.
bool is_count(const json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{INT64_MAX};
}

bool is_array_of_counts(const json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), is_count);
}

// One entry of the header; offsets still count from the start of the data.
Result<StoredTensor> parse_tensor(const std::string& name, const json& entry,
                                  const std::string& source) {
    constexpr size_t field_count = 3;
    const bool has_fields = entry.is_object() && entry.size() == field_count &&
                            entry.contains("dtype") && entry.contains("shape") &&
                            entry.contains("data_offsets");
    if (!has_fields || !entry["dtype"].is_string() || !is_array_of_counts(entry["shape"]) ||
        !is_array_of_counts(entry["data_offsets"]) || entry["data_offsets"].size() != 2) {
        return bad_tensor(source, name,
                          fmt::format("is described as {}, but needs exactly dtype (a name), shape "
                                      "(counts) and data_offsets (two counts)",
                                      shown(entry)));
    }
    StoredTensor tensor;
    tensor.name = name;
    tensor.dtype_name = entry["dtype"].get<std::string>();
    tensor.shape = entry["shape"].get<std::vector<int64_t>>();
    const DtypeRow* row =
        std::find_if(dtype_rows.begin(), dtype_rows.end(),
                     [&](const DtypeRow& one) { return one.name == tensor.dtype_name; });
    if (row == dtype_rows.end()) {
        return bad_tensor(source, name,
                          fmt::format("has the unknown dtype {}", shown(entry["dtype"])));
    }
    tensor.dtype = row->dtype;
    const std::optional<uint64_t> element_count = checked_product(tensor.shape);
    uint64_t size_bits = 0;
    if (!element_count || __builtin_mul_overflow(*element_count, row->bits, &size_bits)) {
        return bad_tensor(source, name,
                          fmt::format("has the shape {}, whose size does not fit 64 bits",
                                      shown(entry["shape"])));
    }
    tensor.element_count = *element_count;
    const uint64_t begin = entry["data_offsets"][0].get<uint64_t>();
    const uint64_t end = entry["data_offsets"][1].get<uint64_t>();
    if (size_bits % 8 != 0 || begin > end || end - begin != size_bits / 8) {
        return bad_tensor(
            source, name,
            fmt::format("of dtype {} and shape {} needs {} bits, but its data_offsets "
                        "are [{}, {}]",
                        tensor.dtype_name, shown(entry["shape"]), size_bits, begin, end));
    }
    tensor.offset_bytes = begin;
    tensor.size_bytes = end - begin;
    return tensor;
}

Result<std::map<std::string, std::string>> parse_metadata(const json& entry,
                                                          const std::string& source) {
    std::map<std::string, std::string> metadata;
    if (!entry.is_object()) return bad_file(source, "__metadata__ is not an object");
    for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) {
            return bad_file(source,
                            fmt::format("__metadata__ holds {} for {}, but only strings are "
                                        "allowed",
                                        shown(value), shown(json(key))));
        }
        metadata[key] = value.get<std::string>();
    }
    return metadata;
}

// Side by side from 0 to the end of the data: no hole, no overlap, nothing behind.
Status check_contiguous(const std::vector<StoredTensor>& tensors, uint64_t data_bytes,
                        const std::string& source) {
    uint64_t expected_begin = 0;
    for (const StoredTensor& tensor : tensors) {
        if (tensor.offset_bytes != expected_begin) {
            return bad_tensor(
                source, tensor.name,
                fmt::format("begins at byte {} of the data, but the one before it ends at {}: {}",
                            tensor.offset_bytes, expected_begin,
                            tensor.offset_bytes > expected_begin ? "a hole" : "they overlap"));
        }
        expected_begin += tensor.size_bytes;
    }
    if (expected_begin != data_bytes) {
        return bad_file(
            source,
            fmt::format("its tensors need {} bytes of data, but it holds {}: {}", expected_begin,
                        data_bytes, expected_begin > data_bytes ? "truncated" : "too long"));
    }
    return {};
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view header,
                                                   uint64_t file_size_bytes,
                                                   const std::string& source) {
    CHECK_LE(header.size(), header_bytes_max);
    CHECK_LE(length_bytes + header.size(), file_size_bytes);
    if (header.empty() || header.front() != '{') {
        return bad_file(source,
                        "its header does not begin with '{', so this is no safetensors file");
    }
    const Result<json> parsed = parse_json(header, source);
    if (!parsed.ok()) return parsed.error();
    CHECK(parsed->is_object());
    SafetensorsHeader result;
    for (const auto& [name, entry] : parsed->items()) {
        if (name == metadata_key) {
            auto metadata = parse_metadata(entry, source);
            if (!metadata.ok()) return metadata.error();
            result.metadata = std::move(*metadata);
            continue;
        }
        Result<StoredTensor> tensor = parse_tensor(name, entry, source);
        if (!tensor.ok()) return tensor.error();
        result.tensors.push_back(std::move(*tensor));
    }
    // An empty tensor may share its offset with the one that follows: it comes first.
    std::sort(result.tensors.begin(), result.tensors.end(),
              [](const StoredTensor& left, const StoredTensor& right) {
                  return std::tie(left.offset_bytes, left.size_bytes, left.name) <
                         std::tie(right.offset_bytes, right.size_bytes, right.name);
              });
    const uint64_t data_begin = length_bytes + header.size();
    const Status contiguous =
        check_contiguous(result.tensors, file_size_bytes - data_begin, source);
    if (!contiguous.ok()) return contiguous.error();
    for (StoredTensor& tensor : result.tensors) tensor.offset_bytes += data_begin;
    return result;
}

SafetensorsFile::SafetensorsFile(InputFile file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
    for (size_t i = 0; i < header_.tensors.size(); ++i) by_name_[header_.tensors[i].name] = i;
    CHECK_EQ(by_name_.size(), header_.tensors.size());
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
    Result<InputFile> file = InputFile::open(path);
    if (!file.ok()) return file.error();
    const uint64_t size_bytes = file->size_bytes();
    if (size_bytes < length_bytes) {
        return bad_file(path, fmt::format("it has only {} bytes: truncated", size_bytes));
    }
    uint64_t header_bytes = 0;
    Status status = file->read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
    if (!status.ok()) return status.error();
    if (header_bytes > header_bytes_max) {
        return bad_file(path, fmt::format("its header claims {} bytes, and at most {} are allowed, "
                                          "so this is no safetensors file",
                                          header_bytes, header_bytes_max));
    }
    if (header_bytes > size_bytes - length_bytes) {
        return bad_file(path, fmt::format("its header claims {} bytes, but the file has {}: "
                                          "truncated",
                                          header_bytes, size_bytes));
    }
    std::string text(header_bytes, '\0');
    status = file->read(length_bytes, std::as_writable_bytes(std::span(text)));
    if (!status.ok()) return status.error();
    Result<SafetensorsHeader> header = parse_safetensors_header(text, size_bytes, path);
    if (!header.ok()) return header.error();
    return SafetensorsFile(std::move(*file), std::move(*header));
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
    const auto place = by_name_.find(name);
    return place == by_name_.end() ? nullptr : &header_.tensors[place->second];
}

Status SafetensorsFile::read(const StoredTensor& tensor, uint64_t offset_bytes,
                             std::span<std::byte> target) const {
    CHECK_LE(offset_bytes, tensor.size_bytes);
    CHECK_LE(target.size(), tensor.size_bytes - offset_bytes);
    if (target.empty()) return {};
    return file_.read(tensor.offset_bytes + offset_bytes, target);
}

SafetensorsLayout lay_out_safetensors(std::span<const TensorSpec> tensors, Dtype dtype,
                                      const std::map<std::string, std::string>& metadata) {
    // Best aligned sizes first, so that one odd tensor does not shift all that follow.
    auto alignment_of = [&](size_t index) {
        const uint64_t size_bytes =
            offload::bytes_of(dtype, offload::element_count_of(tensors[index]));
        return std::min(std::countr_zero(size_bytes), std::countr_zero(offload::page_bytes));
    };
    std::vector<size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
        return alignment_of(left) > alignment_of(right);
    });

    SafetensorsLayout layout;
    layout.tensors.resize(tensors.size());
    json header = json::object();
    if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
    uint64_t data_bytes = 0;
    for (const size_t index : order) {
        const TensorSpec& spec = tensors[index];
        CHECK_NE(spec.name, metadata_key);
        CHECK_TEXT(!header.contains(spec.name), spec.name + " stands twice");
        const uint64_t element_count = offload::element_count_of(spec);
        const uint64_t size_bytes = offload::bytes_of(dtype, element_count);
        layout.tensors[index] = {.name = spec.name,
                                 .dtype_name = std::string(stored_name_of(dtype)),
                                 .dtype = dtype,
                                 .shape = spec.shape,
                                 .element_count = element_count,
                                 .offset_bytes = data_bytes,
                                 .size_bytes = size_bytes};
        header[spec.name] = {{"dtype", stored_name_of(dtype)},
                             {"shape", spec.shape},
                             {"data_offsets", {data_bytes, data_bytes + size_bytes}}};
        data_bytes += size_bytes;
    }
    std::string text = header.dump();
    text.resize(offload::align_up(length_bytes + text.size(), offload::page_bytes) - length_bytes,
                ' ');
    const uint64_t header_bytes = text.size();
    CHECK_LE(header_bytes, header_bytes_max);
    layout.head.resize(length_bytes);
    std::memcpy(layout.head.data(), &header_bytes, length_bytes);
    layout.head += text;
    for (StoredTensor& tensor : layout.tensors) tensor.offset_bytes += layout.head.size();
    layout.file_size_bytes = layout.head.size() + data_bytes;
    CHECK_EQ(layout.head.size() % offload::page_bytes, 0u);
    return layout;
}

}  // namespace headrace::engine
