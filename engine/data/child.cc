#include "engine/data/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "offload/check.h"

extern char** environ;

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;

namespace {

// Everything the pipe gives until its last writer is gone; only the end is kept.
std::string read_to_end(int pipe_end) {
    std::string kept;
    std::array<char, 4096> chunk;
    while (true) {
        const ssize_t count = ::read(pipe_end, chunk.data(), chunk.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        kept.append(chunk.data(), count);
        if (kept.size() > child_output_bytes_max) {
            kept.erase(0, kept.size() - child_output_bytes_max);
        }
    }
    CHECK_LE(kept.size(), child_output_bytes_max);
    return kept;
}

int wait_for(pid_t child) {
    int state = 0;
    while (::waitpid(child, &state, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK(WIFEXITED(state) || WIFSIGNALED(state));
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

// Starts the child with an empty stdin, and stdout and stderr going into `pipe_end`; 0 or errno.
int spawn(const std::vector<std::string>& arguments, int pipe_end, pid_t* child) {
    std::vector<char*> words;
    for (const std::string& argument : arguments)
        words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    CHECK_EQ(posix_spawn_file_actions_init(&actions), 0);
    CHECK_EQ(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions, pipe_end, 1), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions, pipe_end, 2), 0);
    const int failure = posix_spawnp(child, words[0], &actions, nullptr, words.data(), environ);
    CHECK_EQ(posix_spawn_file_actions_destroy(&actions), 0);
    return failure;
}

}  // namespace

Result<ChildOutcome> run_child(const std::vector<std::string>& arguments) {
    CHECK(!arguments.empty());
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return Error{ErrorCode::failed,
                     fmt::format("cannot make a pipe to start '{}'", arguments[0]),
                     std::strerror(errno)};
    }
    pid_t child = 0;
    const int failure = spawn(arguments, ends[1], &child);
    CHECK_EQ(::close(ends[1]), 0);
    if (failure != 0) {
        CHECK_EQ(::close(ends[0]), 0);
        return Error{ErrorCode::failed, fmt::format("cannot start '{}'", arguments[0]),
                     std::strerror(failure)};
    }
    ChildOutcome outcome;
    outcome.output = read_to_end(ends[0]);
    CHECK_EQ(::close(ends[0]), 0);
    outcome.exit_code = wait_for(child);
    return outcome;
}

}  // namespace headrace::engine
