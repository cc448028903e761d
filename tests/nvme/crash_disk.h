// CrashDisk: what could be on the drives if the machine died at any moment of a run.
//
// It watches one folder through FileOperations: each change of a file or folder below it is done
// and noted, each flush is noted and not done. From the notes it makes *images*: the folder as it
// could be found after a crash between two of them. Durable is what a later flush of the same file
// (bytes, size) or the same folder (entries) covers. The rest is pending, and each pending change
// has a *fate*: writes are kept, lost or torn at sectors, independently of each other; sizes of one
// file, and entries of one folder, are lost from the end (file systems keep them in order), and a
// write goes with a lost size before it.
//
// Marks are the caller's own notes between the changes. Any thread may run the watched operations;
// the rest is for one thread, when nobody runs them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "nvme/file_operations.h"

namespace headrace::nvme {

inline constexpr uint64_t sector_bytes = 512;

using NodeId = uint32_t;  // a file or folder that was once there; 0: the watched folder

struct Note {
    enum class Kind : uint8_t {
        make,
        remove,
        rename,
        sync_entries,
        write,
        resize,
        sync_data,
        mark
    };
    Kind kind = Kind::mark;
    NodeId node = 0;     // the folder whose entries, or the file whose bytes or size, change
    std::string name{};  // make, remove, rename: of the entry
    std::string new_name{};
    NodeId child = 0;  // make
    bool is_folder = false;
    uint64_t offset_bytes = 0;  // write
    uint64_t size_bytes = 0;    // resize
    std::vector<std::byte> bytes{};
    int64_t mark = 0;
};
std::string describe(const Note& note);

// prefix: the first `number` sectors are kept. scattered: each sector or not, by a seed.
struct Fate {
    enum class Kind : uint8_t { kept, lost, prefix, scattered };
    Kind kind = Kind::kept;
    uint64_t number = 0;
};

// Contents of the watched folder.
class Image {
  public:
    Image() : nodes_(1) { nodes_[0].is_folder = true; }
    void apply(const Note& note, Fate fate);
    // Equal for equal trees.
    size_t hash() const;
    // Makes the folder be as the image says, and nothing else in it.
    void restore(const std::string& folder) const;

  private:
    struct Node {
        bool is_folder = false;
        std::vector<std::byte> bytes{};
        std::map<std::string, NodeId> entries{};
    };
    void write_entries(const std::string& folder, NodeId node) const;
    size_t hash_of(NodeId node) const;
    std::vector<Node> nodes_;
};

class CrashDisk {
  public:
    // The folder is empty.
    explicit CrashDisk(std::string folder);
    CrashDisk(const CrashDisk&) = delete;

    // What a store is opened with to be watched. This object outlives it.
    FileOperations operations();

    // A subfolder that was durable before anything else.
    std::string make_path(const std::string& name);

    void mark(int64_t mark);
    // Adjacent writes of different files come in the order of the files: a run whose threads raced
    // has the same notes every time.
    void settle();
    const std::vector<Note>& notes() const { return notes_; }
    const std::string& folder() const { return folder_; }

  private:
    NodeId node_of(int descriptor) const;
    void note(Note note);
    int open(const std::string& path, int flags, mode_t mode);
    int resize(int descriptor, uint64_t size_bytes, bool may_shrink);
    int make_folder(const std::string& folder);
    int remove(const std::string& path, bool is_folder);
    int rename(const std::string& source, const std::string& target);

    const std::string folder_;
    std::mutex mutex_;
    std::map<std::string, NodeId> node_at_;  // by path
    std::map<ino_t, NodeId> node_of_inode_;
    NodeId node_count_ = 1;
    std::vector<Note> notes_;
};

// Goes through the notes: a place between two of them, with what is durable and pending there.
class CrashCursor {
  public:
    explicit CrashCursor(const CrashDisk& disk) : notes_(&disk.notes()) {}
    bool is_at_end() const { return position_ == notes_->size(); }
    size_t position() const { return position_; }
    const Note& next() const { return notes_->at(position_); }
    void advance();

    const std::vector<const Note*>& pending() const { return pending_; }
    Image image(const std::vector<Fate>& fates) const;  // parallel to pending()

  private:
    const std::vector<Note>* notes_;
    size_t position_ = 0;
    Image durable_;
    std::vector<const Note*> pending_;
};

// The fates worth a look at the cursor. Before a flush and at the end, where most is pending: all
// subsets of up to 8 pending changes, of more the single ones and some by seed, and tears.
// Elsewhere, where a later place covers most: all, nothing, and tears of the last.
std::vector<std::vector<Fate>> fates_at(const CrashCursor& cursor, uint64_t seed);

}  // namespace headrace::nvme
