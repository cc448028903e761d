// ImageMount: a file system of its own in an image file of 64 MiB, for tests that break it or want
// other sectors. Root only, and only where the tool that makes it is: ok() says so.
#pragma once

#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "offload/units.h"

namespace headrace::nvme {

inline constexpr const char* make_ext4 = "mkfs.ext4 -q -F -m 0";
// Below 300 MiB only where it is not for keeps.
inline constexpr const char* make_xfs = "mkfs.xfs -q -f --unsupported";

class ImageMount {
  public:
    ImageMount(const std::string& image, const std::string& path, const std::string& make,
               int sector_bytes = 512) {
        std::ofstream(image).close();
        if (truncate(image.c_str(), 64 * offload::mib) != 0) return;
        const std::string device_file = path + ".device";
        const bool is_attached =
            run("losetup --sector-size " + std::to_string(sector_bytes) + " --find --show " +
                image + " > " + device_file + " 2> /dev/null");
        std::ifstream(device_file) >> device_;
        if (!is_attached || device_.empty()) return;
        if (run(make + " " + device_ + quiet) && run("mount " + device_ + " " + path + quiet)) {
            path_ = path;
        }
        run("losetup --detach " + device_ + quiet);  // once nothing holds it
    }
    ImageMount(const ImageMount&) = delete;
    ~ImageMount() {
        if (ok()) umount2(path_.c_str(), MNT_DETACH);
    }
    bool ok() const { return !path_.empty(); }

  private:
    static constexpr const char* quiet = " > /dev/null 2>&1";
    static bool run(const std::string& command) { return std::system(command.c_str()) == 0; }

    std::string device_;
    std::string path_;
};

}  // namespace headrace::nvme
