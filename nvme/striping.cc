#include "nvme/striping.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <utility>

#include "nvme/drive_cache.h"
#include "nvme/file_system.h"
#include "offload/check.h"

namespace headrace::nvme {

using offload::Result;

namespace {

std::string text_of(const std::string& path, const KnownDrive& known) {
    const Drive& drive = known.drive;
    return fmt::format(
        "{}: reads {:.2f} GB/s, writes {:.2f} GB/s{}", path, drive.read_bytes_per_s / 1e9,
        drive.write_sustained_bytes_per_s / 1e9,
        known.is_quick ? " (a quick look; `headrace bench nvme` finds what lasts)" : "");
}

}  // namespace

bool are_on_several_drives(const std::vector<std::string>& paths, const DrivesOf& drives_of) {
    std::set<std::set<std::string>> drives;
    for (const std::string& path : paths) {
        drives.insert(drives_of ? drives_of(path) : nvme::drives_of(path));
    }
    return drives.size() >= 2 && !drives.contains({});
}

Result<Striping> find_striping(const StripingOptions& options) {
    const std::vector<std::string>& paths = options.probe.paths;
    CHECK(!paths.empty());
    CHECK(!options.probe.run_name.empty());
    Striping striping;
    if (paths.size() == 1) {
        striping.weights = {1};
        return striping;
    }
    const DriveCache cache(options.cache_file);
    for (const std::string& path : paths) {
        const DriveFacts facts = read_drive_facts(path);
        std::optional<KnownDrive> known = cache.find(facts, options.now_unix_s);
        if (!known) {
            ProbeOptions one = options.probe;
            one.paths = {path};
            one.weights = {};
            const Result<Drive> measured = quick_measure(std::move(one));
            if (!measured) return wrap(measured.error(), "cannot measure the drive of " + path);
            known = KnownDrive{
                .drive = *measured, .is_quick = true, .measured_unix_s = options.now_unix_s};
            static_cast<void>(cache.keep(facts, *known));
        }
        striping.drives.push_back(known->drive);
        striping.notes.push_back(text_of(path, *known));
    }
    striping.weights = weights_of(striping.drives);
    striping.notes.push_back(
        fmt::format("blocks go round the paths {}", fmt::join(striping.weights, " : ")));
    CHECK_EQ(striping.weights.size(), paths.size());
    return striping;
}

}  // namespace headrace::nvme
