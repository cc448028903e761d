// Where words for people come out. One line per call: facts and progress to stdout with the time of
// day, faults to stderr. Colour only where the terminal has it. Any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "offload/result.h"

namespace spdlog {
class logger;
}

namespace headrace::engine {

// A stream that the caller closed becomes /dev/null, before a file of ours could take its number
// and get our words between its bytes. To be called first of all.
void open_standard_streams();

class Terminal {
  public:
    enum class Color : uint8_t { never, allowed };
    explicit Terminal(Color color);
    ~Terminal();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    void say(std::string_view line);   // "17:04:05 step=3/30 loss=..."
    void warn(std::string_view line);  // the same, marked
    void fail(std::string_view text);  // stderr: "headrace: text"; may have several lines
    // Without time and mark, as a program's output: help, run files. Ends as `text` ends. Error:
    // not all of it could be written; a run file that is cut off would be another one.
    offload::Status print(std::string_view text);

  private:
    std::unique_ptr<spdlog::logger> out_;
    std::unique_ptr<spdlog::logger> faults_;
};

}  // namespace headrace::engine
