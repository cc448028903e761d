// A folder for one test, removed with all it holds; and files of safetensors made byte by byte.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::engine {

class TestFolder {
  public:
    TestFolder() {
        std::string name = testing::TempDir() + "/headrace-XXXXXX";
        EXPECT_NE(::mkdtemp(name.data()), nullptr);
        path_ = name;
    }
    ~TestFolder() { std::filesystem::remove_all(path_); }
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;

    std::string operator/(std::string_view name) const { return path_ / name; }
    std::string path() const { return path_; }

    // Makes the folders on the way.
    std::string write(std::string_view name, std::string_view bytes) const {
        const std::filesystem::path path = path_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary) << bytes;
        return path;
    }

  private:
    std::filesystem::path path_;
};

inline std::string bytes_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.good()) << path;
    return std::string(std::istreambuf_iterator<char>(file), {});
}

// Sorted names of what a folder holds.
inline std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
}

// Length, header, data: whatever they say.
inline std::string safetensors_bytes(std::string_view header, uint64_t data_bytes) {
    const uint64_t header_bytes = header.size();
    std::string bytes(sizeof header_bytes, '\0');
    std::memcpy(bytes.data(), &header_bytes, sizeof header_bytes);
    bytes += header;
    for (uint64_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
    return bytes;
}

}  // namespace headrace::engine
