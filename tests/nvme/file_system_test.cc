// Goal: every file system that people name has a verdict, and drives are found below what they are
// stacked on. Method: the table, made-up mounts and a made-up /sys, and what this machine has.
#include "nvme/file_system.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <fstream>

#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::mib;

TEST(FileSystem, EachHasAVerdictAndWhatIsNotWellHasARemedy) {
    std::vector<std::string> names;
    for (const FileSystem& known : known_file_systems()) {
        EXPECT_FALSE(known.sentence.empty()) << known.name;
        EXPECT_TRUE(known.verdict == Verdict::works || !known.remedy.empty()) << known.name;
        names.emplace_back(known.name);
    }
    std::ranges::sort(names);
    EXPECT_EQ(std::ranges::adjacent_find(names), names.end()) << "each once";
    for (const char* name : {"ext4", "xfs", "btrfs", "tmpfs", "overlayfs", "nfs", "lustre", "zfs",
                             "9p", "fuse", "ceph", "a Windows drive"}) {
        EXPECT_TRUE(std::ranges::binary_search(names, name)) << name;
    }
}

TEST(FileSystem, MagicNumbersAreKnown) {
    EXPECT_EQ(file_system_of(0xEF53).verdict, Verdict::works);
    EXPECT_EQ(file_system_of(0x9123683E).name, "btrfs");
    EXPECT_EQ(file_system_of(0xFFFFFFFF9123683E).name, "btrfs") << "sign extended";
    EXPECT_EQ(file_system_of(0x01021994).verdict, Verdict::buffered);
    EXPECT_EQ(file_system_of(0x0BD00BD0).name, "lustre");
    EXPECT_EQ(file_system_of(0x1234).name, "unknown");
    EXPECT_EQ(file_system_of(0x1234).verdict, Verdict::works);
}

TEST(FileSystem, MountsAreReadFromMountinfo) {
    const std::string mountinfo =
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "27 1 254:0 / / rw,noatime shared:1 master:2 - ext4 /dev/vda rw,discard\n"
        "90 27 0:55 / /mnt/c rw - 9p C:\\134 rw,dirsync,aname=drvfs;path=C:\\;uid=1000,trans=fd\n";
    const Mount root = mount_of(mountinfo, 254, 0);
    EXPECT_EQ(root.type, "ext4");
    EXPECT_EQ(root.source, "/dev/vda");
    EXPECT_EQ(root.options, "rw,noatime,rw,discard");
    EXPECT_TRUE(is_windows_drive(mount_of(mountinfo, 0, 55)));
    EXPECT_FALSE(is_windows_drive(root));
    EXPECT_FALSE(is_windows_drive({.type = "9p", .source = "host", .options = "rw,trans=virtio"}));
    EXPECT_EQ(mount_of(mountinfo, 9, 9).type, "");
}

TEST(FileSystem, ThisMachinesFoldersAreAsked) {
    EXPECT_EQ(file_system_at("/dev/shm").name, "tmpfs");
    EXPECT_EQ(file_system_at("/no/such/path").name, "unknown");
    EXPECT_TRUE(drives_of("/dev/shm").empty()) << "memory is no drive";
    EXPECT_TRUE(drives_of("/no/such/path").empty());
}

// A /sys with two partitions of one drive, encryption over a volume over both drives, and a loop
// device over a file on the drive that holds this test.
class FakeSys {
  public:
    FakeSys() {
        add("devices/nvme0n1", "259:0");
        add("devices/nvme0n1/nvme0n1p1", "259:1");
        add("devices/nvme0n1/nvme0n1p2", "259:2");
        add("devices/sda", "8:0");
        for (const char* part : {"nvme0n1p1", "nvme0n1p2"}) {
            std::ofstream(root() + "/devices/nvme0n1/" + part + "/partition") << "1\n";
        }
        add("devices/dm-0", "253:0");
        slave("dm-0", "nvme0n1/nvme0n1p2");
        slave("dm-0", "sda");
        add("devices/dm-1", "253:1");
        slave("dm-1", "dm-0");
        add("devices/loop0", "7:0");
        std::filesystem::create_directories(root() + "/devices/loop0/loop");
        std::ofstream(root() + "/image") << "x";
        std::ofstream(root() + "/devices/loop0/loop/backing_file") << root() << "/image\n";
    }
    std::string root() const { return folder_.path(); }

    void add(const std::string& device, const std::string& number) {
        std::filesystem::create_directories(root() + "/" + device);
        std::filesystem::create_directories(root() + "/dev/block");
        std::ofstream(root() + "/" + device + "/dev") << number << "\n";
        std::filesystem::create_symlink(root() + "/" + device, root() + "/dev/block/" + number);
    }

  private:
    void slave(const std::string& device, const std::string& part) {
        const std::string slaves = root() + "/devices/" + device + "/slaves";
        std::filesystem::create_directories(slaves);
        std::filesystem::create_symlink(
            root() + "/devices/" + part,
            slaves + "/" + std::filesystem::path(part).filename().string());
    }
    TempFolder folder_;
};

TEST(FileSystem, DrivesAreFoundBelowPartitionsVolumesAndLoops) {
    FakeSys sys;
    using Names = std::set<std::string>;
    EXPECT_EQ(drives_of_device(sys.root(), 259, 1), Names{"nvme0n1"});
    EXPECT_EQ(drives_of_device(sys.root(), 259, 0), Names{"nvme0n1"});
    EXPECT_EQ(drives_of_device(sys.root(), 253, 0), (Names{"nvme0n1", "sda"}));
    EXPECT_EQ(drives_of_device(sys.root(), 253, 1), (Names{"nvme0n1", "sda"}));
    EXPECT_TRUE(drives_of_device(sys.root(), 99, 0).empty());
    struct stat facts {};
    ASSERT_EQ(stat(sys.root().c_str(), &facts), 0);
    if (major(facts.st_dev) == 0) GTEST_SKIP() << "the test's folder has no device of its own";
    const std::string below =
        std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev));
    sys.add("devices/below", below);
    EXPECT_EQ(drives_of_device(sys.root(), 7, 0), Names{"below"}) << "the image's own drive";
}

TEST(FileSystem, TwoPathsOnOneDriveAreNoticedOnce) {
    TempFolder folder;
    const std::vector<std::string> paths = {folder.make("a"), folder.make("b")};
    if (drives_of(paths[0]).empty()) GTEST_SKIP() << "the drives of this machine are not told";
    StoreOptions options{.paths = paths, .run_name = "run"};
    options.places = {{.name = "place", .size_bytes = mib, .copies = offload::Copies::scratch}};
    auto store = open_store(options);
    ASSERT_TRUE(store.ok()) << store.error().text();
    int line_count = 0;
    for (const std::string& note : (*store)->notes()) {
        if (note.find(paths[0] + " and " + paths[1] + " lie on one drive") == std::string::npos) {
            continue;
        }
        line_count++;
        EXPECT_NE(note.find(*drives_of(paths[0]).begin()), std::string::npos) << note;
    }
    EXPECT_EQ(line_count, 1);
}

}  // namespace
}  // namespace headrace::nvme
