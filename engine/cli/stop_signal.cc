#include "engine/cli/stop_signal.h"

#include <csignal>

#include "offload/check.h"

namespace headrace::engine {

namespace {

constexpr int no_watcher = -1;

// The one variable of the process: a handler can reach nothing else. no_watcher, 0, or a number.
volatile std::sig_atomic_t caught = no_watcher;

void remember(int number) {
    caught = number;
}

}  // namespace

StopSignal::StopSignal() {
    CHECK_EQ(caught, no_watcher);
    caught = 0;
    struct sigaction action {};
    action.sa_handler = remember;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    for (const int number : {SIGINT, SIGTERM}) {
        struct sigaction before {};
        CHECK_EQ(sigaction(number, nullptr, &before), 0);
        if (before.sa_handler == SIG_IGN) continue;  // nohup and background jobs keep it so
        CHECK_EQ(sigaction(number, &action, nullptr), 0);
    }
}

StopSignal::~StopSignal() {
    for (const int number : {SIGINT, SIGTERM}) {
        struct sigaction before {};
        CHECK_EQ(sigaction(number, nullptr, &before), 0);
        if (before.sa_handler == remember) CHECK(std::signal(number, SIG_DFL) != SIG_ERR);
    }
    caught = no_watcher;
}

int StopSignal::number() const {
    CHECK(caught != no_watcher);
    return caught;
}

void survive_closed_pipes() {
    CHECK(std::signal(SIGPIPE, SIG_IGN) != SIG_ERR);
}

void survive_file_size_limits() {
    CHECK(std::signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
}

}  // namespace headrace::engine
