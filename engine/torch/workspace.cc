#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/torch/workspace.h"
#include "offload/units.h"

namespace headrace::engine {

namespace {

using offload::align_up;
using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Status;

constexpr uint64_t alignment_bytes = 64;

// Best fit, lowest offset first, over the blocks of one region; free neighbours are joined. The
// same requests in the same order get the same places. The few hundred blocks a layer needs make a
// list as fast as a tree, and it takes no heap memory once grown.
class Blocks {
  public:
    explicit Blocks(uint64_t size_bytes) {
        blocks_.reserve(1024);
        blocks_.push_back({0, size_bytes, false});
    }

    // The free end of the region is taken only where no hole fits: so places do not depend on how
    // much larger than necessary the region is.
    std::optional<uint64_t> take(uint64_t size_bytes) {
        CHECK_EQ(size_bytes % alignment_bytes, 0u);
        CHECK_GT(size_bytes, 0u);
        size_t best = blocks_.size();
        for (size_t i = 0; i < blocks_.size(); ++i) {
            if (blocks_[i].used || blocks_[i].size_bytes < size_bytes) continue;
            const bool at_end = i + 1 == blocks_.size();
            if (best == blocks_.size() ||
                (!at_end && blocks_[i].size_bytes < blocks_[best].size_bytes)) {
                best = i;
            }
        }
        if (best == blocks_.size()) return std::nullopt;
        const Block found = blocks_[best];
        blocks_[best] = {found.offset_bytes, size_bytes, true};
        if (found.size_bytes > size_bytes) {
            blocks_.insert(
                blocks_.begin() + static_cast<std::ptrdiff_t>(best) + 1,
                Block{found.offset_bytes + size_bytes, found.size_bytes - size_bytes, false});
        }
        return found.offset_bytes;
    }

    // Returns the size of the block given back.
    uint64_t give_back(uint64_t offset_bytes) {
        auto place = std::lower_bound(
            blocks_.begin(), blocks_.end(), offset_bytes,
            [](const Block& block, uint64_t offset) { return block.offset_bytes < offset; });
        CHECK(place != blocks_.end() && place->offset_bytes == offset_bytes && place->used);
        const uint64_t size_bytes = place->size_bytes;
        place->used = false;
        const auto next = place + 1;
        if (next != blocks_.end() && !next->used) {
            place->size_bytes += next->size_bytes;
            blocks_.erase(next);
        }
        if (place != blocks_.begin() && !(place - 1)->used) {
            (place - 1)->size_bytes += place->size_bytes;
            blocks_.erase(place);
        }
        return size_bytes;
    }

    bool empty() const { return blocks_.size() == 1 && !blocks_.front().used; }

  private:
    struct Block {
        uint64_t offset_bytes;
        uint64_t size_bytes;
        bool used;
    };
    std::vector<Block> blocks_;
};

// One piece of memory that is used again and again: as large as the largest request so far.
class Buffer {
  public:
    // Null where it is taken.
    void* take(uint64_t size_bytes, c10::Allocator& heap) {
        if (taken_) return nullptr;
        if (size_bytes > size_bytes_) {
            memory_.clear();
            size_bytes_ = 0;
            memory_ = heap.allocate(size_bytes);
            size_bytes_ = size_bytes;
        }
        taken_ = true;
        return memory_.get();
    }

    // Whether it was this piece.
    bool give_back(const void* address) {
        if (!taken_ || address != memory_.get()) return false;
        taken_ = false;
        return true;
    }

  private:
    c10::DataPtr memory_;
    uint64_t size_bytes_ = 0;
    bool taken_ = false;
};

// An allocation that did not fit.
struct Refusal {
    uint64_t asked_bytes = 0;
    uint64_t in_use_bytes = 0;
};

// torch's CPU allocator. A deleter gets an address only, so the address tells whether a block came
// from the region, from the library's buffer or from the heap.
class WorkspaceAllocator final : public c10::Allocator {
  public:
    c10::DataPtr allocate(size_t size_bytes) override {
        if (size_bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
        std::unique_lock lock(mutex_);
        const uint64_t rounded_bytes = align_up(size_bytes, alignment_bytes);
        if (is_library_) {
            peak_.library_bytes = std::max(peak_.library_bytes, rounded_bytes);
            void* const piece = library_.take(rounded_bytes, *heap_);
            if (piece != nullptr) return {piece, piece, &release, c10::Device(c10::kCPU)};
        }
        if (is_library_ || !blocks_) {
            lock.unlock();
            return heap_->allocate(size_bytes);
        }
        const std::optional<uint64_t> offset_bytes = blocks_->take(rounded_bytes);
        if (!offset_bytes) {
            refusal_ = Refusal{size_bytes, in_use_bytes_};
            TORCH_CHECK_WITH(OutOfMemoryError, false, "the workspace is too small");
        }
        in_use_bytes_ += rounded_bytes;
        peak_.in_use_bytes = std::max(peak_.in_use_bytes, in_use_bytes_);
        peak_.extent_bytes = std::max(peak_.extent_bytes, *offset_bytes + rounded_bytes);
        void* address = region_.data() + *offset_bytes;
        return {address, address, &release, c10::Device(c10::kCPU)};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &release; }

    void copy_data(void* target, const void* source, std::size_t size_bytes) const override {
        default_copy_data(target, source, size_bytes);
    }

    void open(std::span<std::byte> region) {
        CHECK(!region.empty());
        CHECK_EQ(reinterpret_cast<uintptr_t>(region.data()) % alignment_bytes, 0u);
        const std::lock_guard lock(mutex_);
        CHECK_TEXT(!blocks_, "two workspaces at a time");
        CHECK_EQ(in_use_bytes_, 0u);
        region_ = region;
        blocks_.emplace(region.size() / alignment_bytes * alignment_bytes);
        refusal_.reset();
    }

    std::optional<Refusal> close() {
        const std::lock_guard lock(mutex_);
        CHECK(blocks_.has_value());
        CHECK_TEXT(blocks_->empty(),
                   std::to_string(in_use_bytes_) + " bytes of torch memory outlive a compute call");
        blocks_.reset();
        region_ = {};
        return refusal_;
    }

    void set_library(bool is_library) {
        const std::lock_guard lock(mutex_);
        CHECK_TEXT(is_library_ != is_library, "library memory is not nested");
        is_library_ = is_library;
    }

    WorkspacePeak peak() {
        const std::lock_guard lock(mutex_);
        return peak_;
    }

    void reset_peak() {
        const std::lock_guard lock(mutex_);
        peak_ = {};
    }

    // The one allocator of the process. torch keeps its address in a table of its own and calls it
    // until the last static tensor is gone, so it is never destroyed.
    static WorkspaceAllocator& of_process() {
        // tidy: allow new, because nothing may ever destroy it
        static auto* const allocator = new WorkspaceAllocator;
        return *allocator;
    }

  private:
    static void release(void* address) {
        if (address == nullptr) return;
        WorkspaceAllocator& self = of_process();
        std::unique_lock lock(self.mutex_);
        const auto* byte = static_cast<const std::byte*>(address);
        if (self.blocks_ && byte >= self.region_.data() &&
            byte < self.region_.data() + self.region_.size()) {
            const auto offset_bytes = static_cast<uint64_t>(byte - self.region_.data());
            self.in_use_bytes_ -= self.blocks_->give_back(offset_bytes);
            return;
        }
        if (self.library_.give_back(address)) return;
        lock.unlock();
        self.heap_->raw_deleter()(address);
    }

    c10::Allocator* const heap_ = c10::GetDefaultCPUAllocator();
    std::mutex mutex_;
    std::optional<Blocks> blocks_;  // while a region is open
    std::span<std::byte> region_;
    uint64_t in_use_bytes_ = 0;
    bool is_library_ = false;  // a LibraryMemory lives
    Buffer library_;
    WorkspacePeak peak_;
    std::optional<Refusal> refusal_;
};

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

// Runs `compute` and turns what torch throws into an Error, while no tensor of it is alive.
Status run_catching(const std::function<void()>& compute) {
    try {
        compute();
        return {};
    } catch (const c10::OutOfMemoryError& error) {
        return Error{ErrorCode::does_not_fit, "torch ran out of memory",
                     first_line(error.what_without_backtrace())};
    } catch (const c10::Error& error) {
        return Error{ErrorCode::failed, "torch failed to compute a layer",
                     first_line(error.what_without_backtrace())};
    } catch (const std::exception& error) {
        return Error{ErrorCode::failed, "torch failed to compute a layer",
                     first_line(error.what())};
    }
}

}  // namespace

void install_workspace_allocator() {
    c10::SetCPUAllocator(&WorkspaceAllocator::of_process(), /*priority=*/1);
    CHECK(c10::GetAllocator(c10::kCPU) == &WorkspaceAllocator::of_process());
}

Status with_workspace(std::span<std::byte> region, const std::function<void()>& compute) {
    CHECK(c10::GetAllocator(c10::kCPU) == &WorkspaceAllocator::of_process());
    CHECK(compute != nullptr);
    WorkspaceAllocator& allocator = WorkspaceAllocator::of_process();
    allocator.open(region);
    const Status status = run_catching(compute);
    const std::optional<Refusal> refusal = allocator.close();
    if (status.ok() || !refusal || status.error().code != ErrorCode::does_not_fit) return status;
    return Error{ErrorCode::does_not_fit,
                 "a layer asked torch for " + format_bytes(refusal->asked_bytes) + " while " +
                     format_bytes(refusal->in_use_bytes) + " of its workspace of " +
                     format_bytes(region.size()) +
                     " were in use; raise gpu_budget, or lower per_device_train_batch_size or "
                     "max_length",
                 ""};
}

LibraryMemory::LibraryMemory() {
    WorkspaceAllocator::of_process().set_library(true);
}

LibraryMemory::~LibraryMemory() {
    WorkspaceAllocator::of_process().set_library(false);
}

WorkspacePeak workspace_peak() {
    return WorkspaceAllocator::of_process().peak();
}

void reset_workspace_peak() {
    WorkspaceAllocator::of_process().reset_peak();
}

}  // namespace headrace::engine
