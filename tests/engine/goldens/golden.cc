#include "tests/engine/goldens/golden.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace headrace::engine::tests {

GoldenFile read_golden_file(const std::string& name) {
    const auto path = std::filesystem::path(HEADRACE_GOLDENS) / (name + ".safetensors");
    std::ifstream file(path, std::ios::binary);
    CHECK_TEXT(file.good(), path.string());
    std::ostringstream text;
    text << file.rdbuf();
    const std::string bytes = text.str();
    uint64_t header_bytes = 0;
    CHECK_GT(bytes.size(), sizeof(header_bytes));
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
    GoldenFile result;
    for (const auto& [key, entry] : header.items()) {
        if (key == "__metadata__") {
            result.metadata = entry.get<std::map<std::string, std::string>>();
            continue;
        }
        const auto begin = entry["data_offsets"][0].get<uint64_t>();
        const auto end = entry["data_offsets"][1].get<uint64_t>();
        result.tensors[key] = {entry["shape"].get<std::vector<int64_t>>(),
                               bytes.substr(8 + header_bytes + begin, end - begin)};
    }
    return result;
}

template <typename T>
std::vector<T> GoldenFile::values(const std::string& tensor) const {
    const auto found = tensors.find(tensor);
    CHECK_TEXT(found != tensors.end(), tensor);
    CHECK_EQ(found->second.bytes.size() % sizeof(T), 0u);
    std::vector<T> result(found->second.bytes.size() / sizeof(T));
    std::memcpy(result.data(), found->second.bytes.data(), found->second.bytes.size());
    return result;
}

template std::vector<int32_t> GoldenFile::values(const std::string&) const;
template std::vector<float> GoldenFile::values(const std::string&) const;
template std::vector<double> GoldenFile::values(const std::string&) const;

Golden::Golden(const std::string& name) : file_(read_golden_file(name)) {
    config_ = parse_llama_config(file_.metadata.at("config"), name).value();
    for (int index = 0; index < batch_count; ++index) {
        inputs_.push_back(values<int32_t>("inputs." + std::to_string(index)));
        targets_.push_back(values<int32_t>("targets." + std::to_string(index)));
    }
}

MicroBatch Golden::batch(int index) const {
    CHECK_GE(index, 0);
    CHECK_LT(index, batch_count);
    const GoldenFile::Piece& piece = file_.tensors.at("inputs." + std::to_string(index));
    return {.row_count = piece.shape.at(0),
            .column_count = piece.shape.at(1),
            .input_ids = inputs_[static_cast<size_t>(index)],
            .targets = targets_[static_cast<size_t>(index)]};
}

uint64_t golden_hash(const std::string& tensor_name) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char byte : tensor_name) {
        hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3u;
    }
    return hash;
}

uint64_t golden_mix(uint64_t hash, uint64_t element) {
    uint64_t x = element + hash + 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

std::vector<float> golden_weight(const std::string& tensor_name, uint64_t element_count) {
    const uint64_t hash = golden_hash(tensor_name);
    const double base = tensor_name.find("norm") != std::string::npos ? 1.0 : 0.0;
    std::vector<float> weights(element_count);
    for (uint64_t element = 0; element < element_count; ++element) {
        const double unit = static_cast<double>(golden_mix(hash, element) >> 40) / 16777216.0;
        weights[element] = static_cast<float>((unit - 0.5) * 0.2 + base);
    }
    return weights;
}

}  // namespace headrace::engine::tests
