// Goal: what cannot work is refused before anything is made, and nothing that is not ours is ever
// touched. Method: bad paths of every kind (small mounts where this user may mount). NVME-11.
#include "nvme/run_folder.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::ErrorCode;
using offload::kib;
using offload::mib;

StoreOptions small_store(std::vector<std::string> paths) {
    StoreOptions options{.paths = std::move(paths), .run_name = "run"};
    options.places = {{.name = "place", .size_bytes = mib, .copies = offload::Copies::scratch}};
    options.block_bytes = 64 * kib;
    return options;
}

std::string refusal(const StoreOptions& options) {
    auto store = open_store(options);
    return store.ok() ? "" : store.error().text();
}

bool is_empty(const std::string& folder) {
    return std::filesystem::is_empty(folder);
}

TEST(RunFolder, nvme_11_missing_path_and_file) {
    TempFolder folder;
    std::ofstream(folder.path() + "/file") << "x";
    std::string error = refusal(small_store({folder.path() + "/missing"}));
    EXPECT_NE(error.find(folder.path() + "/missing: ENOENT"), std::string::npos) << error;
    error = refusal(small_store({folder.path() + "/file"}));
    EXPECT_NE(error.find("/file: it is a file"), std::string::npos) << error;
    error = refusal(small_store({folder.path() + "/file/below"}));
    EXPECT_NE(error.find("ENOTDIR"), std::string::npos) << error;
    // A good path beside a bad one stays as it was.
    const std::string good = folder.make("good");
    EXPECT_NE(refusal(small_store({good, folder.path() + "/missing"})), "");
    EXPECT_TRUE(is_empty(good));
}

TEST(RunFolder, nvme_11_no_right_to_write_names_the_user) {
    TempFolder folder;
    const std::string path = folder.make("path");
    std::filesystem::permissions(path, std::filesystem::perms(0555));
    std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
    EXPECT_EQ(run_in_child([&] {
                  if (getuid() == 0 &&
                      (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0)) {
                      return 1;
                  }
                  const std::string error = refusal(small_store({path}));
                  if (error.find("cannot write to the NVMe path " + path) == std::string::npos) {
                      return 2;
                  }
                  return error.find("user " + std::to_string(geteuid())) == std::string::npos ? 3
                                                                                              : 0;
              }),
              0);
}

TEST(RunFolder, nvme_11_read_only_mount_and_no_inodes) {
    TempFolder folder;
    const std::string read_only = folder.make("read_only");
    const std::string full = folder.make("full");
    const TempMount first(read_only, "size=8m", MS_RDONLY);
    const TempMount second(full, "size=8m,nr_inodes=2");
    if (!first.ok() || !second.ok()) GTEST_SKIP() << "this user may not mount";
    std::string error = refusal(small_store({read_only}));
    EXPECT_NE(error.find(read_only + ": EROFS"), std::string::npos) << error;
    error = refusal(small_store({full}));
    EXPECT_NE(error.find(full), std::string::npos) << error;
    EXPECT_NE(error.find("free inodes"), std::string::npos) << error;
    EXPECT_TRUE(is_empty(full));
}

// The case of an unset path: the error names the setting, and nothing is made.
TEST(RunFolder, cfg_3_no_path_is_a_usage_error) {
    auto store = open_store(small_store({}));
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code, ErrorCode::usage);
    EXPECT_NE(store.error().text().find("nvme_paths"), std::string::npos);
    EXPECT_FALSE(open_store(small_store({""})).ok());
}

TEST(RunFolder, APathTwiceIsOneFolder) {
    TempFolder folder;
    const std::string path = folder.make("path");
    std::filesystem::create_directory_symlink(path, folder.path() + "/link");
    const std::string error = refusal(small_store({path, folder.path() + "/link"}));
    EXPECT_NE(error.find("are one folder"), std::string::npos) << error;
    EXPECT_TRUE(is_empty(path));
}

TEST(RunFolder, RunNamesCannotLeaveTheFolder) {
    for (const char* good : {"a", "run-1", "SmolLM2.chat_0"}) {
        EXPECT_TRUE(check_run_name(good).ok()) << good;
    }
    for (const std::string& bad :
         {std::string(""), std::string("../x"), std::string("a/b"), std::string(".hidden"),
          std::string("a b"), std::string("run.next"), std::string(64, 'x')}) {
        EXPECT_EQ(check_run_name(bad).error().code, ErrorCode::usage) << bad;
    }
}

TEST(RunFolder, TooBigForAFileSizeLimitIsRefused) {
    TempFolder folder;
    EXPECT_EQ(
        run_in_child([&] {
            const rlimit limit{.rlim_cur = 512 * kib, .rlim_max = 512 * kib};
            if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
            return refusal(small_store({folder.path()})).find("ulimit -f") == std::string::npos ? 2
                                                                                                : 0;
        }),
        0);
    EXPECT_TRUE(is_empty(folder.path()));
}

// File systems of known sizes: 8 MiB that two paths share, and 3 MiB that one has alone.
TEST(RunFolder, RoomIsThatOfTheScarcestFileSystem) {
    TempFolder folder;
    const TempMount roomy(folder.make("roomy"), "size=8m");
    const TempMount scarce(folder.make("scarce"), "size=3m");
    if (!roomy.ok() || !scarce.ok()) GTEST_SKIP() << "this user may not mount";
    const std::string first = folder.make("roomy/first");
    const std::string second = folder.make("roomy/second");
    const std::string alone = folder.path() + "/scarce";
    EXPECT_EQ(room_on_paths({first}, "run"), 8 * mib);
    EXPECT_EQ(room_on_paths({first, second}, "run"), 8 * mib);
    EXPECT_EQ(room_on_paths({first, alone}, "run"), 2 * 3 * mib);
    EXPECT_EQ(room_on_paths({first, second, alone}, "run"), 3 * 3 * mib);
    EXPECT_EQ(room_on_paths({first, folder.path() + "/missing"}, "run"), 0u);
    // A store of this run makes room for the next one, a stranger's bytes do not.
    ASSERT_TRUE(open_store(small_store({first, alone})).ok());
    EXPECT_EQ(room_on_paths({first, alone}, "run"), 2 * 3 * mib);
    EXPECT_LT(room_on_paths({first, alone}, "another"), 2 * 3 * mib - mib / 2);
    std::ofstream(first + "/ballast") << std::string(6 * mib, 'x');
    EXPECT_EQ(room_on_paths({first, alone}, "run"), 2 * 2 * mib);
    // What it says is what there is.
    StoreOptions options = small_store({first});
    const uint64_t map_bytes = 256 * kib;
    options.places[0].size_bytes = room_on_paths({first}, "run") - map_bytes;
    EXPECT_EQ(refusal(options), "");
    options.places[0].size_bytes = room_on_paths({first}, "run") + mib;
    EXPECT_NE(refusal(options).find("are free there"), std::string::npos);
}

TEST(RunFolder, WhatIsNotOursIsNeverTouched) {
    TempFolder folder;
    const std::string run = folder.make("headrace-run");
    const StoreOptions options = small_store({folder.path()});

    std::ofstream(run + "/data") << "precious";
    EXPECT_NE(refusal(options).find("no store made it"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(run + "/map"));
    EXPECT_FALSE(remove_store({folder.path()}, "run").ok());

    std::ofstream(run + "/map") << std::string(8192, 'm');
    EXPECT_NE(refusal(options).find("not ours"), std::string::npos);
    EXPECT_FALSE(remove_store({folder.path()}, "run").ok());
    EXPECT_EQ(std::filesystem::file_size(run + "/data"), 8u);
    EXPECT_EQ(std::filesystem::file_size(run + "/map"), 8192u);

    std::filesystem::remove(run + "/data");
    EXPECT_NE(refusal(options), "");
    EXPECT_FALSE(std::filesystem::exists(run + "/data")) << "a refusal leaves nothing new behind";

    std::filesystem::remove_all(run);
    std::filesystem::create_directory_symlink(folder.make("elsewhere"), run);
    EXPECT_NE(refusal(options).find("it is a link"), std::string::npos);
    EXPECT_TRUE(is_empty(folder.path() + "/elsewhere"));
}

TEST(RunFolder, ANewerFormatIsRefusedByName) {
    TempFolder folder;
    const StoreOptions options = small_store({folder.path()});
    ASSERT_TRUE(open_store(options).ok());
    const std::string map = folder.path() + "/headrace-run/map";
    {
        std::fstream file(map, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(8);
        file.put(4);
    }
    EXPECT_NE(refusal(options).find("a newer version made it"), std::string::npos);
}

TEST(RunFolder, RemoveDeletesWhatItMadeAndNothingElse) {
    TempFolder folder;
    const std::string first = folder.make("first");
    const std::string second = folder.make("second");
    ASSERT_TRUE(open_store(small_store({first, second})).ok());
    std::ofstream(second + "/headrace-run/notes.txt") << "mine";
    const offload::Status status = remove_store({first, second}, "run");
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().text().find("not the store's"), std::string::npos);
    EXPECT_TRUE(is_empty(first));
    EXPECT_TRUE(std::filesystem::exists(second + "/headrace-run/notes.txt"));
    EXPECT_FALSE(std::filesystem::exists(second + "/headrace-run/data"));
    std::filesystem::remove(second + "/headrace-run/notes.txt");
    EXPECT_TRUE(remove_store({first, second}, "run").ok());
    EXPECT_TRUE(is_empty(second));
    EXPECT_TRUE(remove_store({first, second}, "run").ok()) << "nothing there is fine";
}

}  // namespace
}  // namespace headrace::nvme
