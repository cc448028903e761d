// Goal: I/O memory on small pages is noticed, and nothing else. Method: a made-up smaps, and memory
// of this process mapped both ways.
#include "nvme/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "offload/units.h"

namespace headrace::nvme {
namespace {

using offload::mib;
using Buffers = std::vector<std::span<std::byte>>;

TEST(HugePages, SmapsIsReadByMapping) {
    std::byte* const at = reinterpret_cast<std::byte*>(uint64_t{0x7f0000000000});
    const std::string smaps =
        "7f0000000000-7f0004000000 rw-p 00000000 00:00 0 \n"
        "Size:              65536 kB\nKernelPageSize:        4 kB\nRss:               65536 kB\n"
        "AnonHugePages:     20480 kB\nTHPeligible:           1\nVmFlags: rd wr mr\n"
        "7f0010000000-7f0014000000 rw-p 00000000 00:0f 77 /anon_hugepage (deleted)\n"
        "Rss:                   0 kB\nPrivate_Hugetlb:   65536 kB\nFilePmdMapped:         0 kB\n";
    HugePageShare share = huge_page_share(smaps, {{at + mib, 32 * mib}});
    EXPECT_EQ(share.resident_bytes, 64 * mib);
    EXPECT_EQ(share.huge_bytes, 20 * mib);
    share = huge_page_share(smaps, {{at + 0x10000000, mib}});
    EXPECT_EQ(share.resident_bytes, 64 * mib);
    EXPECT_EQ(share.huge_bytes, 64 * mib);
    EXPECT_EQ(huge_page_share(smaps, {{at + 0x4000000, mib}}).resident_bytes, 0u) << "between them";

    const std::string note = huge_page_note(smaps, {{at, 32 * mib}});
    EXPECT_NE(note.find("20.0 MiB of 64.0 MiB"), std::string::npos) << note;
    EXPECT_NE(note.find("transparent_hugepage"), std::string::npos);
    EXPECT_EQ(huge_page_note(smaps, {{at + 0x10000000, 32 * mib}}), "");
    EXPECT_EQ(huge_page_note(smaps, {{at, mib}}), "") << "too little to matter";
    EXPECT_EQ(huge_page_note(smaps, {}), "");
}

TEST(HugePages, MemoryOnSmallPagesIsTold) {
    constexpr uint64_t size_bytes = 32 * mib;
    void* const memory =
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const Buffers buffers = {{static_cast<std::byte*>(memory), size_bytes}};
    EXPECT_EQ(huge_page_note(buffers), "") << "not touched: nothing is known";
    ASSERT_EQ(madvise(memory, size_bytes, MADV_NOHUGEPAGE), 0);
    std::memset(memory, 1, size_bytes);
    EXPECT_NE(huge_page_note(buffers).find("2 MiB pages"), std::string::npos);
    munmap(memory, size_bytes);
}

}  // namespace
}  // namespace headrace::nvme
