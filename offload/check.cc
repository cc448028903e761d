#include "offload/check.h"

#include <cstdio>
#include <cstdlib>

namespace headrace::offload {

void check_failed(const char* file, int line, const char* expression, const std::string& details) {
    std::fprintf(stderr, "%s:%d: CHECK failed: %s%s%s%s\n", file, line, expression,
                 details.empty() ? "" : " (", details.c_str(), details.empty() ? "" : ")");
    std::fflush(stderr);
    std::abort();
}

}  // namespace headrace::offload
