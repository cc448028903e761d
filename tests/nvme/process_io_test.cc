// Goal: what this process moved to and from drives is what the kernel says, and unknown where it
// says nothing. Method: texts; and a file that is written past the page cache and read back.
#include "nvme/process_io.h"

#include <gtest/gtest.h>

#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::mib;

TEST(ProcessIo, is_known_only_with_both_counts) {
    const ProcessIo io = parse_process_io(
        "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 8192\n"
        "cancelled_write_bytes: 5\n");
    EXPECT_TRUE(io.is_known);
    EXPECT_EQ(io.read_bytes, 4096u);
    EXPECT_EQ(io.written_bytes, 8192u);
    for (const char* text : {"", "read_bytes: 4096\n", "read_bytes: x\nwrite_bytes: 1\n"}) {
        EXPECT_FALSE(parse_process_io(text).is_known) << text;
    }
    EXPECT_FALSE((io - ProcessIo{}).is_known);
    EXPECT_EQ((io - io).read_bytes, 0u);
}

TEST(ProcessIo, counts_what_goes_past_the_page_cache) {
    if (!read_process_io().is_known) GTEST_SKIP() << "this kernel keeps no account";
    for (const IoEngine engine : {IoEngine::automatic, IoEngine::threads}) {
        TempFolder folder;
        auto store = open_store(
            {.paths = {folder.path()},
             .run_name = "run",
             .places = {{.name = "place", .size_bytes = 8 * mib, .copies = offload::Copies::one}},
             .engine = engine});
        ASSERT_TRUE(store.ok()) << store.error().text();
        if ((*store)->is_buffered(0)) GTEST_SKIP() << "no O_DIRECT here";
        PageBuffer buffer(8 * mib);
        const ProcessIo before = read_process_io();
        ASSERT_TRUE(write_place(**store, 0, buffer.span()).ok());
        const ProcessIo written = read_process_io() - before;
        EXPECT_GE(written.written_bytes, 8 * mib);
        ASSERT_TRUE(read_place(**store, 0, buffer.span()).ok());
        const ProcessIo both = read_process_io() - before;
        EXPECT_GE(both.read_bytes, 8 * mib);
        EXPECT_LT(both.read_bytes, 9 * mib);
    }
}

}  // namespace
}  // namespace headrace::nvme
