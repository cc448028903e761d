#include "nvme/process_io.h"

#include <fstream>
#include <sstream>

#include "offload/check.h"

namespace headrace::nvme {

ProcessIo ProcessIo::operator-(const ProcessIo& before) const {
    if (!is_known || !before.is_known) return {};
    CHECK_GE(read_bytes, before.read_bytes);
    CHECK_GE(written_bytes, before.written_bytes);
    return {.read_bytes = read_bytes - before.read_bytes,
            .written_bytes = written_bytes - before.written_bytes,
            .is_known = true};
}

ProcessIo read_process_io() {
    std::ifstream file("/proc/self/io");
    std::ostringstream text;
    text << file.rdbuf();
    return parse_process_io(text.str());
}

ProcessIo parse_process_io(const std::string& text) {
    std::istringstream words(text);
    std::string name;
    uint64_t value = 0;
    ProcessIo io;
    int found_count = 0;
    while (words >> name >> value) {
        if (name == "read_bytes:") io.read_bytes = value;
        if (name == "write_bytes:") io.written_bytes = value;
        if (name == "read_bytes:" || name == "write_bytes:") ++found_count;
    }
    io.is_known = found_count == 2;
    return io.is_known ? io : ProcessIo{};
}

}  // namespace headrace::nvme
