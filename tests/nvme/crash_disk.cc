#include "tests/nvme/crash_disk.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <utility>

#include "offload/check.h"

namespace headrace::nvme {

namespace {

std::string parent_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

std::string name_of(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

bool is_flush(const Note& note) {
    return note.kind == Note::Kind::sync_data || note.kind == Note::Kind::sync_entries;
}

bool changes_entries(const Note& note) {
    return note.kind == Note::Kind::make || note.kind == Note::Kind::remove ||
           note.kind == Note::Kind::rename;
}

uint64_t sector_count_of(const Note& note) {
    return note.bytes.size() / sector_bytes;
}

bool keeps(const Fate& fate, uint64_t sector) {
    switch (fate.kind) {
        case Fate::Kind::kept: return true;
        case Fate::Kind::lost: return false;
        case Fate::Kind::prefix: return sector < fate.number;
        case Fate::Kind::scattered: return (std::mt19937_64(fate.number + sector)() & 1) != 0;
    }
    CHECK_TEXT(false, "a fate that is none");
}

std::vector<Fate> all_of(size_t count, Fate::Kind kind) {
    return std::vector<Fate>(count, Fate{kind, 0});
}

}  // namespace

std::string describe(const Note& note) {
    switch (note.kind) {
        case Note::Kind::make: return fmt::format("make {} in {}", note.name, note.node);
        case Note::Kind::remove: return fmt::format("remove {} from {}", note.name, note.node);
        case Note::Kind::rename:
            return fmt::format("rename {} to {} in {}", note.name, note.new_name, note.node);
        case Note::Kind::sync_entries: return fmt::format("fsync of folder {}", note.node);
        case Note::Kind::write:
            return fmt::format("write of {} bytes at {} of {}", note.bytes.size(),
                               note.offset_bytes, note.node);
        case Note::Kind::resize:
            return fmt::format("resize of {} to {} bytes", note.node, note.size_bytes);
        case Note::Kind::sync_data: return fmt::format("fdatasync of {}", note.node);
        case Note::Kind::mark: return fmt::format("mark {}", note.mark);
    }
    CHECK_TEXT(false, "a note that is none");
}

void Image::apply(const Note& note, Fate fate) {
    // A file's bytes may be durable before its entry is.
    const NodeId last = std::max(note.node, note.child);
    if (nodes_.size() <= last) nodes_.resize(last + 1);
    Node& node = nodes_[note.node];
    if (note.kind == Note::Kind::make) {
        node.entries[note.name] = note.child;
        nodes_[note.child].is_folder = note.is_folder;
    } else if (note.kind == Note::Kind::remove) {
        node.entries.erase(note.name);
    } else if (note.kind == Note::Kind::rename) {
        const auto entry = node.entries.extract(note.name);
        CHECK(!entry.empty());
        node.entries[note.new_name] = entry.mapped();
    } else if (note.kind == Note::Kind::resize) {
        node.bytes.resize(note.size_bytes);
    } else {
        CHECK_EQ(note.kind, Note::Kind::write);
        CHECK_LE(note.offset_bytes + note.bytes.size(), node.bytes.size());
        for (uint64_t sector = 0; sector < sector_count_of(note); sector++) {
            if (!keeps(fate, sector)) continue;
            std::memcpy(node.bytes.data() + note.offset_bytes + sector * sector_bytes,
                        note.bytes.data() + sector * sector_bytes, sector_bytes);
        }
    }
}

size_t Image::hash() const {
    return hash_of(0);
}

size_t Image::hash_of(NodeId node) const {
    const std::string_view bytes(reinterpret_cast<const char*>(nodes_.at(node).bytes.data()),
                                 nodes_.at(node).bytes.size());
    size_t hash = std::hash<std::string_view>()(bytes);
    for (const auto& [name, child] : nodes_.at(node).entries) {
        hash = std::hash<std::string>()(fmt::format("{} {} {}", hash, name, hash_of(child)));
    }
    return hash;
}

void Image::restore(const std::string& folder) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        std::filesystem::remove_all(entry.path());
    }
    write_entries(folder, 0);
}

void Image::write_entries(const std::string& folder, NodeId node) const {
    for (const auto& [name, child] : nodes_.at(node).entries) {
        const std::string path = folder + "/" + name;
        if (nodes_.at(child).is_folder) {
            CHECK_EQ(mkdir(path.c_str(), 0700), 0);
            write_entries(path, child);
            continue;
        }
        const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        CHECK_GE(descriptor, 0);
        const std::vector<std::byte>& bytes = nodes_.at(child).bytes;
        CHECK_EQ(::write(descriptor, bytes.data(), bytes.size()),
                 static_cast<ssize_t>(bytes.size()));
        CHECK_EQ(close(descriptor), 0);
    }
}

CrashDisk::CrashDisk(std::string folder) : folder_(std::move(folder)) {
    CHECK(std::filesystem::is_empty(folder_));
    node_at_[folder_] = 0;
}

FileOperations CrashDisk::operations() {
    FileOperations operations;
    operations.open = [this](const std::string& path, int flags, mode_t mode) {
        return open(path, flags, mode);
    };
    operations.allocate = [this](int descriptor, uint64_t size_bytes) {
        return resize(descriptor, size_bytes, false);
    };
    operations.truncate = [this](int descriptor, uint64_t size_bytes) {
        return resize(descriptor, size_bytes, true);
    };
    operations.sync_data = [this](int descriptor) {
        std::lock_guard lock(mutex_);
        note({.kind = Note::Kind::sync_data, .node = node_of(descriptor)});
        return 0;
    };
    // Writing back makes nothing durable: the drive's own cache is not flushed.
    operations.sync_range = [](int, uint64_t, uint64_t) { return 0; };
    operations.before_request = [this](const Request& request) -> std::optional<Fault> {
        if (request.direction == offload::Direction::read) return {};
        std::lock_guard lock(mutex_);
        const ssize_t count =
            pwrite(request.descriptor, request.memory.data(), request.memory.size(),
                   static_cast<off_t>(request.offset_bytes));
        CHECK_EQ(count, static_cast<ssize_t>(request.memory.size()));
        note({.kind = Note::Kind::write,
              .node = node_of(request.descriptor),
              .offset_bytes = request.offset_bytes,
              .bytes = {request.memory.begin(), request.memory.end()}});
        return Fault{.executed_bytes = 0, .result = count};
    };
    operations.make_folder = [this](const std::string& path) { return make_folder(path); };
    operations.remove_file = [this](const std::string& path) { return remove(path, false); };
    operations.remove_folder = [this](const std::string& path) { return remove(path, true); };
    operations.rename = [this](const std::string& source, const std::string& target) {
        return rename(source, target);
    };
    operations.sync_folder = [this](const std::string& path) {
        std::lock_guard lock(mutex_);
        note({.kind = Note::Kind::sync_entries, .node = node_at_.at(path)});
        return 0;
    };
    return operations;
}

std::string CrashDisk::make_path(const std::string& name) {
    CHECK_EQ(make_folder(folder_ + "/" + name), 0);
    note({.kind = Note::Kind::sync_entries, .node = 0});
    return folder_ + "/" + name;
}

void CrashDisk::mark(int64_t mark) {
    std::lock_guard lock(mutex_);
    note({.kind = Note::Kind::mark, .mark = mark});
}

void CrashDisk::settle() {
    const auto is_write = [](const Note& note) { return note.kind == Note::Kind::write; };
    for (auto begin = notes_.begin(); begin != notes_.end();) {
        begin = std::find_if(begin, notes_.end(), is_write);
        const auto end = std::find_if_not(begin, notes_.end(), is_write);
        std::stable_sort(begin, end, [](const Note& a, const Note& b) { return a.node < b.node; });
        begin = end;
    }
}

NodeId CrashDisk::node_of(int descriptor) const {
    struct stat facts {};
    CHECK_EQ(fstat(descriptor, &facts), 0);
    return node_of_inode_.at(facts.st_ino);
}

void CrashDisk::note(Note note) {
    CHECK_EQ(note.bytes.size() % sector_bytes, 0u);
    notes_.push_back(std::move(note));
}

int CrashDisk::open(const std::string& path, int flags, mode_t mode) {
    std::lock_guard lock(mutex_);
    const int descriptor = ::open(path.c_str(), flags, mode);
    if (descriptor < 0) return -errno;
    const auto known = node_at_.find(path);
    if (known != node_at_.end()) return descriptor;
    struct stat facts {};
    CHECK_EQ(fstat(descriptor, &facts), 0);
    CHECK_EQ(facts.st_size, 0);
    const NodeId node = node_count_++;
    node_at_[path] = node;
    node_of_inode_[facts.st_ino] = node;
    note({.kind = Note::Kind::make,
          .node = node_at_.at(parent_of(path)),
          .name = name_of(path),
          .child = node});
    return descriptor;
}

int CrashDisk::resize(int descriptor, uint64_t size_bytes, bool may_shrink) {
    std::lock_guard lock(mutex_);
    struct stat facts {};
    CHECK_EQ(fstat(descriptor, &facts), 0);
    const auto before = static_cast<uint64_t>(facts.st_size);
    if (size_bytes == before || (size_bytes < before && !may_shrink)) return 0;
    CHECK_EQ(ftruncate(descriptor, static_cast<off_t>(size_bytes)), 0);
    note({.kind = Note::Kind::resize, .node = node_of(descriptor), .size_bytes = size_bytes});
    return 0;
}

int CrashDisk::make_folder(const std::string& folder) {
    std::lock_guard lock(mutex_);
    if (mkdir(folder.c_str(), 0700) != 0) return -errno;
    const NodeId node = node_count_++;
    node_at_[folder] = node;
    note({.kind = Note::Kind::make,
          .node = node_at_.at(parent_of(folder)),
          .name = name_of(folder),
          .child = node,
          .is_folder = true});
    return 0;
}

int CrashDisk::remove(const std::string& path, bool is_folder) {
    std::lock_guard lock(mutex_);
    if ((is_folder ? rmdir(path.c_str()) : unlink(path.c_str())) != 0) return -errno;
    node_at_.erase(path);
    note({.kind = Note::Kind::remove, .node = node_at_.at(parent_of(path)), .name = name_of(path)});
    return 0;
}

int CrashDisk::rename(const std::string& source, const std::string& target) {
    std::lock_guard lock(mutex_);
    CHECK_EQ(parent_of(source), parent_of(target));
    if (::rename(source.c_str(), target.c_str()) != 0) return -errno;
    std::map<std::string, NodeId> renamed;
    for (const auto& [path, node] : node_at_) {
        const bool is_below = path == source || path.starts_with(source + "/");
        renamed[is_below ? target + path.substr(source.size()) : path] = node;
    }
    node_at_ = std::move(renamed);
    note({.kind = Note::Kind::rename,
          .node = node_at_.at(parent_of(source)),
          .name = name_of(source),
          .new_name = name_of(target)});
    return 0;
}

void CrashCursor::advance() {
    CHECK(!is_at_end());
    const Note& note = next();
    position_++;
    if (note.kind == Note::Kind::mark) return;
    if (!is_flush(note)) return pending_.push_back(&note);
    std::erase_if(pending_, [&](const Note* waiting) {
        const bool is_covered =
            waiting->node == note.node &&
            changes_entries(*waiting) == (note.kind == Note::Kind::sync_entries);
        if (is_covered) durable_.apply(*waiting, {});
        return is_covered;
    });
}

Image CrashCursor::image(const std::vector<Fate>& fates) const {
    CHECK_EQ(fates.size(), pending_.size());
    Image image = durable_;
    std::set<NodeId> ended;  // whose sizes or entries are lost from here on
    for (size_t i = 0; i < fates.size(); i++) {
        const Note& note = *pending_[i];
        if (ended.contains(note.node)) continue;
        const bool is_ordered = note.kind != Note::Kind::write;
        if (is_ordered && fates[i].kind == Fate::Kind::lost) {
            ended.insert(note.node);
            continue;
        }
        image.apply(note, fates[i]);
    }
    return image;
}

std::vector<std::vector<Fate>> fates_at(const CrashCursor& cursor, uint64_t seed) {
    constexpr size_t subset_items_max = 8;
    constexpr int seeds = 20;
    const std::vector<const Note*>& pending = cursor.pending();
    const size_t count = pending.size();
    std::mt19937_64 random(seed + cursor.position());
    std::vector<std::vector<Fate>> result = {all_of(count, Fate::Kind::kept)};
    if (count == 0) return result;
    result.push_back(all_of(count, Fate::Kind::lost));
    const bool is_full = cursor.is_at_end() || is_flush(cursor.next());
    const auto tear = [&](size_t item, Fate fate) {
        if (pending[item]->kind != Note::Kind::write) return;
        result.push_back(all_of(count, Fate::Kind::kept));
        result.back()[item] = fate;
    };
    tear(count - 1, {Fate::Kind::prefix, 1 + random() % 7});
    tear(count - 1, {Fate::Kind::scattered, random()});
    if (!is_full) return result;
    if (count <= subset_items_max) {
        for (uint64_t subset = 1; subset + 1 < uint64_t{1} << count; subset++) {
            result.push_back(all_of(count, Fate::Kind::kept));
            for (size_t i = 0; i < count; i++) {
                if ((subset >> i & 1) != 0) result.back()[i].kind = Fate::Kind::lost;
            }
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            result.push_back(all_of(count, Fate::Kind::kept));
            result.back()[i].kind = Fate::Kind::lost;
            result.push_back(all_of(count, Fate::Kind::lost));
            result.back()[i].kind = Fate::Kind::kept;
        }
    }
    // All boundaries of a lone write, which is a page or a record; some of others.
    for (size_t i = 0; i < count; i++) {
        const uint64_t sectors = sector_count_of(*pending[i]);
        for (uint64_t kept = 1; kept < sectors && count == 1; kept++) {
            tear(i, {Fate::Kind::prefix, kept});
        }
        tear(i, {Fate::Kind::scattered, random()});
    }
    for (int i = 0; i < seeds && count > 1; i++) {
        std::vector<Fate> fates;
        for (size_t item = 0; item < count; item++) {
            const auto kind = static_cast<Fate::Kind>(random() % 4);
            fates.push_back({kind, kind == Fate::Kind::prefix ? 1 + random() % 7 : random()});
        }
        result.push_back(std::move(fates));
    }
    return result;
}

}  // namespace headrace::nvme
