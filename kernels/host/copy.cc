#include "kernels/host/copy.h"

#include <cstring>
#include <functional>

#include "offload/check.h"

namespace headrace::kernels {

void copy_bytes(std::span<std::byte> target, std::span<const std::byte> source) {
    CHECK_EQ(target.size(), source.size());
    if (source.empty()) return;
    const std::less_equal<const std::byte*> not_after;
    const bool target_first = not_after(target.data() + target.size(), source.data());
    const bool source_first = not_after(source.data() + source.size(), target.data());
    CHECK(target_first || source_first);
    std::memcpy(target.data(), source.data(), source.size());
}

}  // namespace headrace::kernels
