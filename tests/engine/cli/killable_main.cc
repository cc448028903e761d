// The program with one more argument, --kill-at-op N: it kills itself, as kill -9 does, when N ops
// of its training are done.
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/cli/program.h"

int main(int argument_count, char** argument_values) {
    int64_t kill_at_op = 0;
    std::vector<char*> kept;
    for (int i = 0; i < argument_count; ++i) {
        if (std::string_view(argument_values[i]) == "--kill-at-op" && i + 1 < argument_count) {
            kill_at_op = std::strtoll(argument_values[++i], nullptr, 10);
        } else {
            kept.push_back(argument_values[i]);
        }
    }
    kept.push_back(nullptr);
    return headrace::engine::run_program(static_cast<int>(kept.size()) - 1, kept.data(),
                                         {.op_done = [=](int64_t op_count) {
                                             if (op_count == kill_at_op) std::raise(SIGKILL);
                                         }});
}
