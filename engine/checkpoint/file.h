// Plain files, read and written at offsets, every result checked and every short transfer
// continued. The only place of this folder that opens, syncs and preallocates. Move-only; a file is
// closed when it goes. Reads may come from any threads at once; writes of disjoint ranges too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "offload/result.h"

namespace headrace::engine {

// Owns a file descriptor.
class Descriptor {
  public:
    explicit Descriptor(int number = -1) : number_(number) {}
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&& other) noexcept;

    int number() const { return number_; }
    int close();  // now: 0, or -1 with an errno of what could not be written

  private:
    int number_;
};

// A folder that this process has locked, or the errno that says why not: EWOULDBLOCK where another
// one holds it. The lock goes with the descriptor.
struct LockedFolder {
    Descriptor descriptor;
    int error = 0;
};
LockedFolder lock_folder(const std::string& path);

class InputFile {
  public:
    // Links are followed. Error (failed): missing, not permitted; (bad_data): a link whose target
    // is missing (half a download), or not a regular file.
    static offload::Result<InputFile> open(const std::string& path);

    // Fills `target` from offset_bytes; an empty target reads nothing. CHECKs that the range lies
    // in the file as it was opened. Error: the drive's, or (bad_data) the file became shorter.
    offload::Status read(uint64_t offset_bytes, std::span<std::byte> target) const;

    uint64_t size_bytes() const { return size_bytes_; }
    const std::string& path() const { return path_; }

  private:
    InputFile(Descriptor descriptor, std::string path, uint64_t size_bytes);

    Descriptor descriptor_;
    std::string path_;
    uint64_t size_bytes_;
};

class OutputFile {
  public:
    // Makes a new file of size_bytes zeros with its blocks taken, so that a full drive is found
    // now. Error (failed): the path exists or is not writable, the drive is full.
    static offload::Result<OutputFile> create(const std::string& path, uint64_t size_bytes);

    // CHECKs that the range lies in the file. An empty source writes nothing.
    offload::Status write(uint64_t offset_bytes, std::span<const std::byte> source) const;

    // Makes all writes durable. Blocks.
    offload::Status sync() const;

    const std::string& path() const { return path_; }

  private:
    OutputFile(Descriptor descriptor, std::string path, uint64_t size_bytes);

    Descriptor descriptor_;
    std::string path_;
    uint64_t size_bytes_;
};

// The whole file as text. Error: as InputFile, or (bad_data) larger than size_bytes_max.
offload::Result<std::string> read_text(const std::string& path, uint64_t size_bytes_max);

// What becomes of a file that is there already.
enum class Existing : uint8_t { replaced, refused };

// Makes a file of the text, whole or not at all: what was there stays until all of the new one is
// written, and nothing is left beside it. What is no plain file (a terminal, a pipe, a link) is
// written to as it stands, and never replaced. Error (failed): the system's; (usage): a folder, or
// a file that is there and is not to be replaced.
offload::Status save_text(const std::string& path, std::string_view text,
                          Existing existing = Existing::replaced);

// Whether save_text could, as far as one can see without touching anything: for what is written
// after hours. Errors as there.
offload::Status check_can_write(const std::string& path);

// The folder itself, or the nearest one above it that is there: where folders will be made.
std::filesystem::path nearest_existing(const std::string& folder, std::error_code& failure);

// Makes the names in a folder durable. Blocks.
offload::Status sync_folder(const std::string& folder);

// "what: the system's words for error_number", as an Error (failed).
offload::Error system_error(std::string what, int error_number);

}  // namespace headrace::engine
