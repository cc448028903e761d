#include "tests/engine/train/tiny_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <utility>

#include "cpu_adam/state.h"
#include "engine/resume/identity.h"
#include "engine/train/sha256.h"
#include "kernels/host/slab.h"
#include "nvme/nvme_store.h"
#include "offload/faulty_store.h"
#include "offload/find_fault.h"
#include "offload/memory_store.h"
#include "offload/units.h"
#include "tests/engine/reference.h"

namespace headrace::engine::tests {

using offload::Dtype;
using offload::Status;
using offload::Tier;

namespace {

// A store whose completions come late and out of order, and one of whose transfers may fail.
class LateStore final : public offload::Store {
  public:
    LateStore(std::vector<offload::PlaceSpec> places, const TinyPlan& plan)
        : below_(std::move(places)),
          late_(below_, {.seed = plan.late_seed,
                         .failing_transfer = plan.failing_transfer,
                         .held_count_max = 4,
                         .yield_count_max = 1}) {}

    void start(offload::Transfer transfer) override { late_.start(std::move(transfer)); }
    void sync(uint32_t path, offload::Done done) override { late_.sync(path, std::move(done)); }
    void record(const offload::CommitRecord& record, offload::Done done) override {
        late_.record(record, std::move(done));
    }
    void seal(offload::Done done) override { late_.seal(std::move(done)); }
    void withdraw(offload::Done done) override { late_.withdraw(std::move(done)); }
    std::optional<offload::CommitRecord> newest_commit() const override {
        return below_.newest_commit();
    }
    uint32_t path_count() const override { return late_.path_count(); }
    const std::vector<offload::PlaceSpec>& places() const override { return below_.places(); }

  private:
    offload::MemoryStore below_;
    offload::FaultyStore late_;
};

Tier tier_at(const std::string& letters, size_t index) {
    CHECK(!letters.empty());
    switch (letters[index % letters.size()]) {
        case 'g': return Tier::gpu;
        case 'r': return Tier::ram;
        case 'n': return Tier::nvme;
        default: CHECK_TEXT(false, "a letter that is no tier");
    }
}

// Activations and gradients as a run file's shares place them.
void spill(const offload::Workload& workload, const offload::TierShares& shares,
           offload::Plan& plan) {
    offload::Fixed fixed;
    fixed.activations = fixed.stash = shares;
    const offload::CommitRule commits;
    const offload::Plan spilled =
        plan_of({.workload = workload, .fixed = fixed, .commits = commits}, offload::Choice{});
    plan.act_homes = spilled.act_homes;
    for (size_t part = 0; part < plan.homes.size(); ++part) {
        plan.homes[part].stash = spilled.homes[part].stash;
    }
}

offload::Plan plan_of(const offload::Workload& workload, const TinyPlan& tiny) {
    offload::Plan plan = offload::uniform_plan(workload, {}, Tier::nvme);
    const auto by_layer = [](const std::string& letters) {
        return letters.find('g') != std::string::npos;
    };
    for (uint32_t part = 0; part < plan.homes.size(); ++part) {
        const uint32_t layer = workload.layout.parts[part].layer;
        plan.homes[part] = {.hi = tier_at(tiny.hi, by_layer(tiny.hi) ? layer : part),
                            .opt = tier_at(tiny.opt, part),
                            .stash = tier_at(tiny.stash, part),
                            .acc = tier_at(tiny.acc, by_layer(tiny.acc) ? layer : part)};
    }
    for (uint32_t boundary = 0; boundary < plan.act_homes.size(); ++boundary) {
        plan.act_homes[boundary] = tier_at(tiny.act, boundary);
    }
    if (tiny.spilled) spill(workload, *tiny.spilled, plan);
    plan.kept_homes.resize(layer_count(workload));
    for (uint32_t layer = 1; layer < head_layer(workload); ++layer) {
        const char letter = tiny.kept[(layer - 1) % tiny.kept.size()];
        if (letter != '-') plan.kept_homes[layer] = tier_at({letter}, 0);
    }
    plan.twice = offload::spread_twice(workload, plan.homes, tiny.twice);
    plan.group = tiny.group;
    plan.window = std::min(tiny.window, layer_count(workload));
    const uint32_t slots = tiny.ring_slots;
    plan.rings = {slots, slots, slots, slots, slots, slots, slots, slots, slots};
    if (tiny.commit == TinyCommit::never) return plan;
    const bool is_real = tiny.store == TinyStore::uring || tiny.store == TinyStore::threads;
    plan.path_count = is_real ? static_cast<uint32_t>(tiny.path_count) : 1;
    plan.commit_at = tiny.commit == TinyCommit::every_step ? offload::CommitAt::every_step
                                                           : offload::CommitAt::saves;
    if (tiny.commit == TinyCommit::in_place) plan.durable_copies = offload::Copies::one;
    return plan;
}

offload::Workload workload_of(const TinyJob& job, const TinyPlan& plan) {
    offload::Workload workload;
    workload.layout = offload::make_layout(layers_of(job.model.config),
                                           plan.part_blocks * offload::block_elements)
                          .value();
    workload.dtype = job.model.dtype;
    workload.gradients = job.gradients;
    workload.states = job.states;
    uint64_t tokens_max = 0;
    size_t most = 1;
    const LlamaCompute compute(job.model.config, job.model.dtype);
    for (const StepBatch& step : job.steps) {
        most = std::max(most, step.micro_batches.size());
        for (const TokenBatch& batch : step.micro_batches) {
            tokens_max =
                std::max(tokens_max, static_cast<uint64_t>(batch.row_count * batch.column_count));
            workload.workspace_bytes =
                std::max(workload.workspace_bytes,
                         compute.workspace_bytes(batch.row_count, batch.column_count));
            workload.kept_bytes = std::max(workload.kept_bytes,
                                           compute.kept_bytes(batch.row_count, batch.column_count));
        }
    }
    workload.workspace_bytes = offload::align_up(workload.workspace_bytes, offload::page_bytes);
    workload.micro_batch_count = static_cast<uint32_t>(most);
    workload.micro_batch_count_max = workload.micro_batch_count;
    const auto hidden = static_cast<uint64_t>(job.model.config.hidden_size);
    workload.act_bytes =
        offload::align_up(bytes_of(job.model.dtype, tokens_max * hidden), offload::page_bytes);
    return workload;
}

MicroBatch view_of(const TokenBatch& batch) {
    return {.row_count = batch.row_count,
            .column_count = batch.column_count,
            .input_ids = batch.input_ids,
            .targets = batch.targets};
}

// As digest_homes, from whole layers.
HomesDigest digest_of_layers(const ReferenceRun& run, offload::StateFormat format) {
    Sha256 weights;
    std::array<Sha256, 4> states;
    for (size_t layer = 0; layer < run.states.size(); ++layer) {
        weights.add(run.model.weights[layer]);
        const uint64_t element_count = run.model.layout.layers[layer].element_count;
        const auto layout = offload::state_layout(run.model.dtype, format, element_count);
        const auto bytes = offload::section_bytes(run.model.dtype, format, element_count);
        const std::array<uint64_t, 4> offsets = {layout.m_offset_bytes, layout.v_offset_bytes,
                                                 layout.steps_offset_bytes,
                                                 layout.master_offset_bytes};
        for (size_t i = 0; i < states.size(); ++i) {
            states[i].add(std::span(run.states[layer]).subspan(offsets[i], bytes[i]));
        }
    }
    Sha256 all;
    for (Sha256& state : states) {
        const std::string digest = state.finish();
        all.add(std::as_bytes(std::span(digest)));
    }
    return {.weights_sha256 = weights.finish(), .states_sha256 = all.finish()};
}

std::string first_difference(std::string_view name, const std::vector<double>& a,
                             const std::vector<double>& b) {
    if (a.size() != b.size()) return fmt::format("{} steps against {}", a.size(), b.size());
    for (size_t step = 0; step < a.size(); ++step) {
        if (std::bit_cast<uint64_t>(a[step]) == std::bit_cast<uint64_t>(b[step])) continue;
        if (std::isnan(a[step]) && std::isnan(b[step])) continue;
        return fmt::format("{} of step {}: {:.17g} against {:.17g}", name, step, a[step], b[step]);
    }
    return "";
}

}  // namespace

LlamaConfig tiny_config(bool tied, int64_t block_count) {
    LlamaConfig config;
    config.hidden_size = 64;
    config.intermediate_size = 96;
    config.block_count = block_count;
    config.head_count = 4;
    config.kv_head_count = 2;
    config.head_dim = 16;
    config.vocabulary_size = tiny_vocabulary;
    config.max_positions = 128;
    config.rms_norm_eps = 1e-5;
    config.tied = tied;
    return config;
}

FlatModel tiny_model(const LlamaConfig& config, Dtype dtype, uint64_t seed) {
    return make_flat_model(config, dtype, [&](const std::string& name, uint64_t element_count) {
        std::vector<uint32_t> key(name.begin(), name.end());
        key.push_back(static_cast<uint32_t>(seed));
        std::seed_seq sequence(key.begin(), key.end());
        std::mt19937 random(sequence);
        const bool is_norm = name.find("norm") != std::string::npos;
        std::vector<float> values(element_count);
        for (float& value : values) {
            const float unit = static_cast<float>(random() >> 8) / static_cast<float>(1 << 24);
            value = is_norm ? 0.75f + 0.5f * unit : 0.3f * (unit - 0.5f);
        }
        return values;
    });
}

TokenBatch make_tiny_batch(const TinyBatch& tiny) {
    CHECK_GT(tiny.row_count * tiny.column_count, 0);
    TokenBatch batch{.row_count = tiny.row_count, .column_count = tiny.column_count};
    std::mt19937 random(static_cast<uint32_t>(tiny.seed));
    const auto token_count = static_cast<size_t>(tiny.row_count * tiny.column_count);
    for (size_t token = 0; token < token_count; ++token) {
        batch.input_ids.push_back(
            static_cast<int32_t>(random() % static_cast<uint32_t>(tiny.token_end)));
    }
    for (size_t token = 0; token < token_count; ++token) {
        const bool is_last = (token + 1) % static_cast<size_t>(tiny.column_count) == 0;
        const bool is_trained = !is_last && token % 5 != 4 && !tiny.masked;
        batch.targets.push_back(is_trained ? batch.input_ids[token + 1] : not_trained);
        if (is_trained) ++batch.trained_token_count;
    }
    batch.token_count = static_cast<int64_t>(token_count);
    return batch;
}

std::vector<StepBatch> tiny_steps(int64_t step_count, int64_t micro_batch_count, uint64_t seed) {
    std::vector<StepBatch> steps;
    for (int64_t step = 0; step < step_count; ++step) {
        std::vector<TokenBatch> batches;
        for (int64_t m = 0; m < micro_batch_count; ++m) {
            batches.push_back(make_tiny_batch(
                {.row_count = 1 + (step + m) % 2,
                 .column_count = 8 * (1 + (step + 2 * m) % 3),
                 .seed = seed * 1000 + static_cast<uint64_t>(step * micro_batch_count + m)}));
        }
        steps.push_back(make_step(std::move(batches)));
    }
    return steps;
}

std::ostream& operator<<(std::ostream& out, const TinyPlan& plan) {
    return out << fmt::format(
               "{} hi={} opt={} stash={} acc={} act={} kept={} twice={} group={} window={} "
               "part_blocks={} "
               "rings={} "
               "threads={} store={} paths={} commit={} {}",
               plan.name, plan.hi, plan.opt, plan.stash, plan.acc, plan.act, plan.kept, plan.twice,
               plan.group, plan.window, plan.part_blocks, plan.ring_slots, plan.update_threads,
               static_cast<int>(plan.store), plan.path_count, static_cast<int>(plan.commit),
               plan.is_serial ? "serial" : "lanes");
}

std::string difference(const RunBits& a, const RunBits& b) {
    std::string loss = first_difference("loss", a.losses, b.losses);
    if (!loss.empty()) return loss;
    std::string norm = first_difference("norm", a.norms, b.norms);
    if (!norm.empty()) return norm;
    if (a.homes.weights_sha256 != b.homes.weights_sha256) return "weights";
    return a.homes.states_sha256 != b.homes.states_sha256 ? "states" : "";
}

RunBits reference_bits(const TinyJob& job) {
    start_torch(1);
    ReferenceOptions options{.gradients = job.gradients,
                             .states = job.states,
                             .rounding_seed = job.rounding_seed,
                             .loss_scale = job.loss_scale,
                             .max_grad_norm = job.max_grad_norm,
                             .learning_rates = {},
                             .adam = {.weight_decay = job.weight_decay}};
    std::vector<std::vector<MicroBatch>> steps;
    int64_t update_index = 0;
    for (size_t step = 0; step < job.steps.size(); ++step) {
        if (job.steps[step].is_masked()) continue;
        std::vector<MicroBatch> views;
        for (const TokenBatch& batch : job.steps[step].micro_batches) {
            views.push_back(view_of(batch));
        }
        steps.push_back(std::move(views));
        options.learning_rates.push_back(job.rate_of(update_index));
        if (!job.bad_steps.contains(static_cast<int64_t>(step))) ++update_index;
    }
    const ReferenceRun run = run_reference(job.model, steps, options);
    RunBits bits{.losses = {}, .norms = {}, .homes = digest_of_layers(run, job.states)};
    int64_t skipped = 0;
    for (const ReferenceStep& step : run.steps) {
        bits.losses.push_back(step.loss);
        bits.norms.push_back(step.grad_norm);
        skipped += step.skipped ? 1 : 0;
    }
    CHECK_EQ(skipped, static_cast<int64_t>(job.bad_steps.size()));
    return bits;
}

std::string write_tiny_checkpoint(const FlatModel& model, const TestFolder& folder) {
    std::vector<offload::TensorSpec> tensors;
    std::map<std::string, std::span<const std::byte>> bytes_of_tensor;
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        const std::vector<offload::TensorSpec>& specs = model.layout.specs[layer].tensors;
        for (size_t tensor = 0; tensor < specs.size(); ++tensor) {
            const offload::TensorExtent& extent = model.layout.layers[layer].tensors[tensor];
            tensors.push_back(specs[tensor]);
            bytes_of_tensor[specs[tensor].name] =
                std::span(model.weights[layer])
                    .subspan(bytes_of(model.dtype, extent.first_element),
                             bytes_of(model.dtype, extent.element_count));
        }
    }
    const SafetensorsLayout layout = lay_out_safetensors(tensors, model.dtype, {});
    std::string file = layout.head;
    file.resize(layout.file_size_bytes);
    for (const StoredTensor& tensor : layout.tensors) {
        const std::span<const std::byte> bytes = bytes_of_tensor.at(tensor.name);
        CHECK_EQ(bytes.size(), tensor.size_bytes);
        std::memcpy(file.data() + tensor.offset_bytes, bytes.data(), bytes.size());
    }
    std::filesystem::create_directory(folder.path("model"));
    folder.write("model/config.json", R"({"torch_dtype": "bfloat16"})");
    folder.write("model/model.safetensors", file);
    return folder.path("model");
}

TinyRun::TinyRun(const TinyJob& job, const TinyPlan& plan, uint64_t workspace_bytes) : job_(job) {
    start_torch(1);
    EngineOptions options;
    options.config = job.model.config;
    options.workload = workload_of(job, plan);
    if (workspace_bytes > 0) options.workload.workspace_bytes = workspace_bytes;
    options.plan = plan_of(options.workload, plan);
    const char* fault = find_fault(options.workload, options.plan);
    CHECK_TEXT(fault == nullptr, fault == nullptr ? "" : fault);
    CHECK(!find_fault(build(options.workload, options.plan).value()).has_value());
    options.update_threads = plan.update_threads;
    options.adam_step_of = [rate_of = &job_](int64_t update_index) {
        return cpu_adam::AdamStep{.learning_rate = rate_of->rate_of(update_index),
                                  .weight_decay = rate_of->weight_decay,
                                  .adam_step = static_cast<uint64_t>(update_index) + 1};
    };
    options.record_of = [](const Progress& progress) { return record_of({}, progress); };
    options.max_grad_norm = job.max_grad_norm;
    options.loss_scale = job.loss_scale;
    options.rounding_seed = job.rounding_seed;
    options.update_row = &cpu_adam::best();
    options.reduce_row = &kernels::best_reduce_row();
    options.open_store = [&](std::vector<offload::PlaceSpec> places, std::span<std::byte> buffers) {
        return open_store(plan, std::move(places), buffers);
    };
    options.is_serial = plan.is_serial;
    options.poison_released = true;
    auto memory = std::make_unique<kernels::HostMemory>(kernels::HostMemory::Options{
        .gpu_capacity_bytes = offload::gib, .ram_capacity_bytes = offload::gib});
    engine_ = std::move(Engine::create(std::move(options), std::move(memory)).value());
    start(plan);
}

void TinyRun::start(const TinyPlan& plan) {
    Status started;
    if (plan.is_resumed) {
        CHECK(recovered_.has_value());
        started = engine_->resume(read_record(*recovered_).value().progress);
    } else {
        const std::string folder = write_tiny_checkpoint(job_.model, folder_);
        started = engine_->load(Checkpoint::open(folder).value());
    }
    CHECK_TEXT(started.ok(), started.ok() ? "" : started.error().text());
}

TinyRun::~TinyRun() = default;

offload::Result<std::unique_ptr<offload::Store>> TinyRun::open_store(
    const TinyPlan& plan, std::vector<offload::PlaceSpec> places, std::span<std::byte> buffers) {
    std::unique_ptr<offload::Store> store;
    if (plan.store == TinyStore::memory) {
        store = std::make_unique<offload::MemoryStore>(std::move(places));
    } else if (plan.store == TinyStore::late) {
        store = std::make_unique<LateStore>(std::move(places), plan);
    } else {
        nvme::StoreOptions options{.run_name = "tiny", .places = std::move(places)};
        for (size_t path = 0; path < plan.path_count; ++path) {
            const std::string name = fmt::format("drive{}", path);
            options.paths.push_back(plan.drives.empty() ? folder_.path(name)
                                                        : plan.drives + "/" + name);
            std::filesystem::create_directory(options.paths.back());
        }
        const bool is_uring = plan.store == TinyStore::uring;
        options.engine = is_uring ? nvme::IoEngine::uring : nvme::IoEngine::threads;
        options.buffers = {buffers};
        options.operations = plan.operations;
        if (plan.is_resumed) options.opening = nvme::Opening::resume;
        auto opened = nvme::open_store(std::move(options));
        if (!opened) return opened.error();
        if (plan.is_resumed) recovered_ = (*opened)->recovered()->record;
        store = std::move(*opened);
    }
    return store;
}

Status TinyRun::train(int64_t first_step, int64_t step_count) {
    CHECK_EQ(engine_->progress().attempts, first_step);
    const auto step_at = [&](int64_t step) { return job_.steps.at(static_cast<size_t>(step)); };
    return engine_->train(
        {.step_count = step_count,
         .batch_of = step_at,
         .micro_batch_count_of =
             [&](int64_t step) { return static_cast<int64_t>(step_at(step).micro_batches.size()); },
         .on_step = [&](const StepOutcome& outcome) -> Status {
             outcomes_.push_back(outcome);
             return {};
         }});
}

RunBits TinyRun::bits() {
    RunBits bits{.losses = {}, .norms = {}, .homes = engine_->digest().value()};
    for (const StepOutcome& outcome : outcomes_) {
        if (outcome.counts.is_masked()) continue;
        bits.losses.push_back(outcome.loss);
        bits.norms.push_back(outcome.grad_norm);
    }
    return bits;
}

uint64_t TinyRun::store_bytes() const {
    uint64_t size_bytes = 0;
    if (engine_->store() == nullptr) return 0;
    for (const offload::PlaceSpec& place : engine_->store()->places()) {
        size_bytes += place.size_bytes * count_of(place.copies);
    }
    return size_bytes;
}

RunBits engine_bits(const TinyJob& job, const TinyPlan& plan) {
    TinyRun run(job, plan);
    const Status status = run.train(0, static_cast<int64_t>(job.steps.size()));
    CHECK_TEXT(status.ok(), status.ok() ? "" : status.error().text());
    return run.bits();
}

}  // namespace headrace::engine::tests
