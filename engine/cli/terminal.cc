#include "engine/cli/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "offload/check.h"

namespace headrace::engine {

namespace {

spdlog::color_mode mode_of(Terminal::Color color) {
    return color == Terminal::Color::allowed ? spdlog::color_mode::automatic
                                             : spdlog::color_mode::never;
}

// A path may hold any byte; none of them may break the line or steer the terminal.
std::string one_line(std::string_view line) {
    std::string clean(line);
    std::ranges::replace_if(
        clean, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
    return clean;
}

}  // namespace

void open_standard_streams() {
    const std::pair<std::FILE*, int> streams[] = {
        {stdin, STDIN_FILENO}, {stdout, STDOUT_FILENO}, {stderr, STDERR_FILENO}};
    for (const auto& [stream, number] : streams) {
        if (::fcntl(number, F_GETFD) >= 0) continue;
        // The lowest free number is taken, and those below are open by now.
        CHECK(std::freopen("/dev/null", number == STDIN_FILENO ? "r" : "w", stream) != nullptr);
        CHECK_EQ(::fileno(stream), number);
    }
}

// Loggers of our own, not in spdlog's registry: nothing global, and their end is ours.
Terminal::Terminal(Color color)
    : out_(std::make_unique<spdlog::logger>(
          "out", std::make_shared<spdlog::sinks::stdout_color_sink_mt>(mode_of(color)))),
      faults_(std::make_unique<spdlog::logger>(
          "faults", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode_of(color)))) {
    out_->set_pattern("%H:%M:%S %^%v%$");
    faults_->set_pattern("%^headrace: %v%$");
    // A line that nobody reads any more is no reason to stop.
    out_->set_error_handler([](const std::string&) {});
    out_->flush_on(spdlog::level::trace);
    faults_->flush_on(spdlog::level::trace);
}

Terminal::~Terminal() = default;

void Terminal::say(std::string_view line) {
    out_->log(spdlog::level::info, one_line(line));
}

void Terminal::warn(std::string_view line) {
    out_->log(spdlog::level::warn, fmt::format("warning: {}", one_line(line)));
}

void Terminal::fail(std::string_view text) {
    CHECK(!text.empty());
    if (text.back() == '\n') text.remove_suffix(1);
    faults_->log(spdlog::level::err, text);
}

offload::Status Terminal::print(std::string_view text) {
    out_->flush();
    const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) == 0 && written == text.size()) return {};
    return offload::Error{offload::ErrorCode::failed,
                          fmt::format("cannot write {} bytes to the standard output", text.size()),
                          std::strerror(errno)};
}

}  // namespace headrace::engine
