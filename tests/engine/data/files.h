// A folder of the test's own, removed with it, and files written into it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "offload/check.h"

namespace headrace::engine {

class TestFolder {
  public:
    TestFolder() {
        std::string path =
            (std::filesystem::temp_directory_path() / "headrace_test_XXXXXX").string();
        CHECK(::mkdtemp(path.data()) != nullptr);
        path_ = path;
    }
    ~TestFolder() { std::filesystem::remove_all(path_); }
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;

    std::string path(const std::string& name) const { return (path_ / name).string(); }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream file(path_ / name, std::ios::binary);
        file << text;
        CHECK(file.good());
        return path(name);
    }
    std::string read(const std::string& name) const {
        std::ifstream file(path_ / name, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

  private:
    std::filesystem::path path_;
};

}  // namespace headrace::engine
