// StagingFolder: a folder that is filled under another name beside its target and then takes its
// place in one step. Until publish() the target is untouched; a staging folder that goes without it
// is removed with all it holds, and so are parents that it had to make. One that a kill left behind
// is removed by the next create() of the same target: a living one holds a lock on its folder.
// Never follows a link on the side that is written. Move-only.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/file.h"
#include "offload/result.h"

namespace headrace::engine {

class StagingFolder {
  public:
    // Makes `TARGET.partial-PID` and the parents that are missing. Error (failed): not writable.
    static offload::Result<StagingFolder> create(const std::string& target);

    StagingFolder(StagingFolder&& other) noexcept;
    StagingFolder& operator=(StagingFolder&& other) noexcept;
    ~StagingFolder();

    const std::string& path() const { return path_; }

    // Makes the names durable and renames to the target, which must be absent or a folder; a folder
    // is replaced, and removed with what it held. Blocks. On an error the target is as it was, or,
    // if only the removal failed, the text says what is left over and where.
    offload::Status publish();

  private:
    StagingFolder(std::string target, std::vector<std::string> made_parents);

    std::string target_;
    std::string path_;                       // empty: published or moved from
    Descriptor lock_;                        // of the folder, where its file system can
    std::vector<std::string> made_parents_;  // outermost first
};

}  // namespace headrace::engine
