// Ctrl-C, and what a scheduler sends before it kills: the first SIGINT or SIGTERM is remembered, so
// that a run ends after its step, which is committed if it commits at all, and an export takes away
// its half; a second of the same kind ends the process at once. Handlers belong to the process, so
// there can be one StopSignal at a time.
#pragma once

namespace headrace::engine {

class StopSignal {
  public:
    StopSignal();   // from here on; CHECKs that there is no other
    ~StopSignal();  // signals do again what they did before
    StopSignal(const StopSignal&) = delete;
    StopSignal& operator=(const StopSignal&) = delete;

    // The number of the signal that came, or 0.
    int number() const;
};

// A reader that leaves (`| head`) must not kill a run: writes to it fail instead.
void survive_closed_pipes();

// A file that would grow beyond a limit of this user (ulimit -f) must not kill a run either: the
// write fails with EFBIG, and the error names the file and the limit.
void survive_file_size_limits();

}  // namespace headrace::engine
