#include "engine/cli/update_load.h"

#include <cstring>

#include "cpu_adam/variants.h"
#include "engine/cli/adam_stream.h"
#include "offload/check.h"

namespace headrace::engine {

using cpu_adam::PartUpdate;
using offload::Dtype;
using offload::Result;

namespace {

constexpr uint64_t part_elements = 1 << 20;
constexpr cpu_adam::AdamStep late_step{
    .learning_rate = 1e-5, .weight_decay = 0.01, .adam_step = 1000};

struct PartBytes {
    uint64_t weight = bytes_of(Dtype::bf16, part_elements);
    uint64_t state = opt_bytes(Dtype::bf16, offload::StateFormat::fp32, part_elements);
    uint64_t gradient = bytes_of(Dtype::bf16, part_elements);

    uint64_t total() const { return weight + state + gradient; }
    // All but the gradient is read and written.
    uint64_t moved() const { return 2 * (weight + state) + gradient; }
};

}  // namespace

UpdateLoad::UpdateLoad(const Options& options)
    : options_(options),
      memory_({.ram_capacity_bytes = wanted_bytes(options)}),
      update_pool_(options.update_thread_count),
      stream_pool_(options.stream_thread_count) {}

uint64_t UpdateLoad::wanted_bytes(const Options& options) {
    CHECK_GE(options.part_count, 1u);
    return options.part_count * PartBytes{}.total();
}

Result<std::unique_ptr<UpdateLoad>> UpdateLoad::make(const Options& options) {
    auto load = std::unique_ptr<UpdateLoad>(new UpdateLoad(options));
    const auto slab = load->memory_.take(offload::Tier::ram, wanted_bytes(options));
    if (!slab) return slab.error();
    const PartBytes bytes;
    // Small normal numbers in bf16; states of zero, which an update makes real.
    const uint16_t value = 0x3a80;
    for (uint64_t part = 0; part < options.part_count; ++part) {
        const std::span<std::byte> at = slab->subspan(part * bytes.total(), bytes.total());
        std::memset(at.data(), 0, at.size());
        for (uint64_t i = 0; i < part_elements; ++i) {
            std::memcpy(at.data() + 2 * i, &value, sizeof(value));
            std::memcpy(at.data() + bytes.weight + bytes.state + 2 * i, &value, sizeof(value));
        }
        PartUpdate update;
        update.element_count = part_elements;
        update.weight = at.subspan(0, bytes.weight);
        update.state = at.subspan(bytes.weight, bytes.state);
        update.gradient = at.subspan(bytes.weight + bytes.state, bytes.gradient);
        load->parts_.push_back(update);
    }
    return load;
}

double UpdateLoad::update() {
    update_pool_.update(cpu_adam::best(), late_step, parts_[next_part_]);
    next_part_ = (next_part_ + 1) % parts_.size();
    return part_elements;
}

double UpdateLoad::stream() {
    stream_pool_.update(stream_row(StreamLoop::regular), late_step, parts_[next_part_]);
    next_part_ = (next_part_ + 1) % parts_.size();
    return static_cast<double>(PartBytes{}.moved());
}

}  // namespace headrace::engine
