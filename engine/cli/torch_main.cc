#include "engine/cli/program.h"

int main(int argument_count, char** argument_values) {
    return headrace::engine::run_torch_program(argument_count, argument_values);
}
