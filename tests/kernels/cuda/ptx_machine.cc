#include "tests/kernels/cuda/ptx_machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>

#include "offload/check.h"

namespace headrace::kernels {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

constexpr uint64_t instructions_max = 1 << 20;
const std::vector<std::string> special_names = {"%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x"};

std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t;") + 1 - first);
}

// At commas outside of braces and brackets.
std::vector<std::string> split_operands(const std::string& text) {
    std::vector<std::string> words(1);
    int depth = 0;
    for (const char c : text) {
        depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        if (c == ',' && depth == 0) {
            words.emplace_back();
        } else {
            words.back() += c;
        }
    }
    for (std::string& word : words) word = trimmed(word);
    if (words.back().empty()) words.pop_back();
    return words;
}

float as_float(uint64_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
}

uint64_t as_bits(float value) {
    return std::isnan(value) ? 0x7FFFFFFFu : std::bit_cast<uint32_t>(value);
}

float least(float a, float b) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
}

using Arguments = std::vector<uint64_t>;
using Function = uint64_t (*)(const Arguments&);

constexpr uint64_t low_32 = 0xFFFFFFFFu;

uint64_t low(uint64_t value) {
    return value & low_32;
}

int32_t as_int(uint64_t value) {
    return static_cast<int32_t>(low(value));
}

uint64_t as_u32(int32_t value) {
    return static_cast<uint32_t>(value);
}

bool is_unordered(uint64_t a, uint64_t b) {
    return std::isnan(as_float(a)) || std::isnan(as_float(b));
}

// Saturated, as cvt does; NaN is 0.
int32_t nearest_int(float value) {
    if (std::isnan(value)) return 0;
    const double rounded = std::nearbyint(static_cast<double>(value));
    return static_cast<int32_t>(std::clamp(rounded, -2147483648.0, 2147483647.0));
}

// One result of the values of the operands behind it: words, predicates, jumps' conditions.
void add_integers(std::map<std::string, Function>& table) {
    const std::map<std::string, Function> more = {
        {"mov.u16", [](const Arguments& a) { return a[0]; }},
        {"mov.pred", [](const Arguments& a) { return a[0]; }},
        {"or.pred", [](const Arguments& a) { return a[0] | a[1]; }},
        {"xor.pred", [](const Arguments& a) { return a[0] ^ a[1]; }},
        {"not.b64", [](const Arguments& a) { return ~a[0]; }},
        {"sub.s64", [](const Arguments& a) { return a[0] - a[1]; }},
        {"mul.lo.s64", [](const Arguments& a) { return a[0] * a[1]; }},
        {"min.u64", [](const Arguments& a) { return std::min(a[0], a[1]); }},
        {"max.u64", [](const Arguments& a) { return std::max(a[0], a[1]); }},
        {"max.u32", [](const Arguments& a) { return std::max(low(a[0]), low(a[1])); }},
        {"min.s32",
         [](const Arguments& a) { return as_u32(std::min(as_int(a[0]), as_int(a[1]))); }},
        {"max.s32",
         [](const Arguments& a) { return as_u32(std::max(as_int(a[0]), as_int(a[1]))); }},
        {"shr.s32", [](const Arguments& a) { return as_u32(as_int(a[0]) >> a[1]); }},
        {"setp.lt.s32", [](const Arguments& a) { return uint64_t{as_int(a[0]) < as_int(a[1])}; }},
        {"setp.eq.s32", [](const Arguments& a) { return uint64_t{low(a[0]) == low(a[1])}; }},
        {"setp.ne.s32", [](const Arguments& a) { return uint64_t{low(a[0]) != low(a[1])}; }},
        {"setp.gt.u32", [](const Arguments& a) { return uint64_t{low(a[0]) > low(a[1])}; }},
        {"setp.eq.b64", [](const Arguments& a) { return uint64_t{a[0] == a[1]}; }},
        {"setp.le.u64", [](const Arguments& a) { return uint64_t{a[0] <= a[1]}; }},
        {"setp.gt.u64", [](const Arguments& a) { return uint64_t{a[0] > a[1]}; }},
        {"setp.eq.s16",
         [](const Arguments& a) { return uint64_t{(a[0] & 0xFFFFu) == (a[1] & 0xFFFFu)}; }},
        {"selp.u32", [](const Arguments& a) { return a[2] != 0 ? a[0] : a[1]; }},
        {"cvt.s16.s8", [](const Arguments& a) {
             return uint64_t{static_cast<uint16_t>(static_cast<int8_t>(a[0]))};
         }}};
    table.insert(more.begin(), more.end());
}

// The same of floats: comparisons (with "u": also true where one is a NaN) and conversions.
void add_floats(std::map<std::string, Function>& table) {
    const std::map<std::string, Function> more = {
        {"setp.lt.f32",
         [](const Arguments& a) { return uint64_t{as_float(a[0]) < as_float(a[1])}; }},
        {"setp.gt.f32",
         [](const Arguments& a) { return uint64_t{as_float(a[0]) > as_float(a[1])}; }},
        {"setp.eq.f32",
         [](const Arguments& a) { return uint64_t{as_float(a[0]) == as_float(a[1])}; }},
        {"setp.leu.f32",
         [](const Arguments& a) {
             return uint64_t{is_unordered(a[0], a[1]) || as_float(a[0]) <= as_float(a[1])};
         }},
        {"setp.geu.f32",
         [](const Arguments& a) {
             return uint64_t{is_unordered(a[0], a[1]) || as_float(a[0]) >= as_float(a[1])};
         }},
        {"setp.neu.f32",
         [](const Arguments& a) {
             return uint64_t{is_unordered(a[0], a[1]) || as_float(a[0]) != as_float(a[1])};
         }},
        {"cvt.rni.s32.f32", [](const Arguments& a) { return as_u32(nearest_int(as_float(a[0]))); }},
        {"cvt.rn.f32.u16",
         [](const Arguments& a) { return as_bits(static_cast<float>(a[0] & 0xFFFFu)); }},
        {"cvt.rn.f32.s16", [](const Arguments& a) {
             return as_bits(static_cast<float>(static_cast<int16_t>(a[0])));
         }}};
    table.insert(more.begin(), more.end());
}

// The rest.
const std::map<std::string, Function>& functions() {
    static const std::map<std::string, Function> common = {
        {"mov.u32", [](const Arguments& a) { return a[0]; }},
        {"mov.u64", [](const Arguments& a) { return a[0]; }},
        {"mov.b32", [](const Arguments& a) { return a.size() == 1 ? a[0] : a[0] | a[1] << 16; }},
        {"mov.f32", [](const Arguments& a) { return a[0]; }},
        {"cvta.to.global.u64", [](const Arguments& a) { return a[0]; }},
        {"cvt.u64.u32", [](const Arguments& a) { return low(a[0]); }},
        {"cvt.u32.u16", [](const Arguments& a) { return a[0] & 0xFFFFu; }},
        {"cvt.u16.u32", [](const Arguments& a) { return a[0] & 0xFFFFu; }},
        {"mul.wide.u32", [](const Arguments& a) { return low(a[0]) * low(a[1]); }},
        {"add.s64", [](const Arguments& a) { return a[0] + a[1]; }},
        {"add.s32", [](const Arguments& a) { return low(a[0] + a[1]); }},
        {"sub.s32", [](const Arguments& a) { return low(a[0] - a[1]); }},
        {"shl.b64", [](const Arguments& a) { return a[0] << a[1]; }},
        {"shl.b32", [](const Arguments& a) { return low(a[0] << a[1]); }},
        {"shr.u64", [](const Arguments& a) { return a[0] >> a[1]; }},
        {"shr.u32", [](const Arguments& a) { return low(a[0]) >> a[1]; }},
        {"and.b64", [](const Arguments& a) { return a[0] & a[1]; }},
        {"and.b32", [](const Arguments& a) { return low(a[0] & a[1]); }},
        {"xor.b32", [](const Arguments& a) { return low(a[0] ^ a[1]); }},
        {"mul.lo.s32", [](const Arguments& a) { return low(low(a[0]) * low(a[1])); }},
        {"cvt.u32.u64", [](const Arguments& a) { return low(a[0]); }},
        {"setp.eq.s64", [](const Arguments& a) { return uint64_t{a[0] == a[1]}; }},
        {"setp.ne.s64", [](const Arguments& a) { return uint64_t{a[0] != a[1]}; }},
        {"setp.ge.u64", [](const Arguments& a) { return uint64_t{a[0] >= a[1]}; }},
        {"setp.lt.u64", [](const Arguments& a) { return uint64_t{a[0] < a[1]}; }},
        {"setp.num.f32",
         [](const Arguments& a) {
             return uint64_t{!std::isnan(as_float(a[0])) && !std::isnan(as_float(a[1]))};
         }},
        {"setp.nan.f32",
         [](const Arguments& a) {
             return uint64_t{std::isnan(as_float(a[0])) || std::isnan(as_float(a[1]))};
         }},
        {"selp.b16", [](const Arguments& a) { return a[2] != 0 ? a[0] : a[1]; }},
        {"selp.b32", [](const Arguments& a) { return a[2] != 0 ? a[0] : a[1]; }},
        {"selp.f32", [](const Arguments& a) { return a[2] != 0 ? a[0] : a[1]; }},
        {"min.f32",
         [](const Arguments& a) { return as_bits(least(as_float(a[0]), as_float(a[1]))); }},
        {"mul.rn.f32", [](const Arguments& a) { return as_bits(as_float(a[0]) * as_float(a[1])); }},
        {"sub.rn.f32", [](const Arguments& a) { return as_bits(as_float(a[0]) - as_float(a[1])); }},
        {"div.rn.f32", [](const Arguments& a) { return as_bits(as_float(a[0]) / as_float(a[1])); }},
        {"fma.rn.f32",
         [](const Arguments& a) {
             return as_bits(std::fma(as_float(a[0]), as_float(a[1]), as_float(a[2])));
         }},
        {"sqrt.rn.f32", [](const Arguments& a) { return as_bits(std::sqrt(as_float(a[0]))); }}};
    static const std::map<std::string, Function> table = [] {
        std::map<std::string, Function> all = common;
        add_integers(all);
        add_floats(all);
        return all;
    }();
    return table;
}

// Bytes of one element that a load or store moves; 0: neither.
uint64_t moved_bytes(const std::string& opcode) {
    const bool is_memory = opcode.starts_with("ld.param.") || opcode.starts_with("ld.global.") ||
                           opcode.starts_with("st.global.");
    if (!is_memory) return 0;
    if (opcode.ends_with(".u8") || opcode.ends_with(".s8")) return 1;
    if (opcode.ends_with(".u16")) return 2;
    if (opcode.ends_with(".f32") || opcode.ends_with(".u32")) return 4;
    return opcode.ends_with(".u64") ? 8 : 0;
}

}  // namespace

struct PtxKernel::Thread {
    std::array<uint32_t, 4> special;  // as special_names
    const std::vector<std::span<const std::byte>>* parameters;
    std::vector<uint64_t> registers;
    uint64_t next = 0;

    uint64_t value_of(const Operand& operand) const {
        using Kind = Operand::Kind;
        if (operand.kind == Kind::reg) return registers[operand.index];
        if (operand.kind == Kind::special) return special[operand.index];
        CHECK(operand.kind == Kind::immediate);
        return operand.immediate;
    }
    std::byte* address_of(const Operand& operand) const {
        using Kind = Operand::Kind;
        if (operand.kind == Kind::parameter) {
            const std::span<const std::byte> parameter = (*parameters)[operand.index];
            CHECK_LT(operand.immediate, parameter.size());
            return const_cast<std::byte*>(parameter.data()) + operand.immediate;
        }
        CHECK(operand.kind == Kind::memory);
        return reinterpret_cast<std::byte*>(registers[operand.index] + operand.immediate);
    }
};

uint32_t PtxKernel::register_of(const std::string& name) {
    return registers_.emplace(name, static_cast<uint32_t>(registers_.size())).first->second;
}

uint32_t PtxKernel::label_of(const std::string& name) {
    const auto found = labels_.emplace(name, static_cast<uint32_t>(labels_.size())).first;
    label_targets_.resize(labels_.size(), ~uint64_t{0});
    return found->second;
}

Result<PtxKernel::Operand> PtxKernel::parse_operand(const std::string& word) {
    using Kind = Operand::Kind;
    const Error fault{ErrorCode::bad_data, "an operand of PTX that is not known: " + word, ""};
    if (word.empty()) return fault;
    if (word[0] == '{' || word[0] == '[') {
        const std::string inside = word.substr(1, word.size() - 2);
        if (word[0] == '{') {
            Operand list{.kind = Kind::list};
            for (const std::string& one : split_operands(inside)) {
                const Result<Operand> parsed = parse_operand(one);
                if (!parsed) return parsed.error();
                list.list.push_back(*parsed);
            }
            return list;
        }
        const size_t plus = inside.find('+');
        const std::string base = inside.substr(0, plus);
        const uint64_t offset =
            plus == std::string::npos ? 0 : std::stoull(inside.substr(plus + 1));
        if (base[0] == '%') {
            return Operand{.kind = Kind::memory, .index = register_of(base), .immediate = offset};
        }
        for (uint32_t i = 0; i < parameter_names_.size(); ++i) {
            if (parameter_names_[i] != base) continue;
            return Operand{.kind = Kind::parameter, .index = i, .immediate = offset};
        }
        return fault;
    }
    for (uint32_t i = 0; i < special_names.size(); ++i) {
        if (word == special_names[i]) return Operand{.kind = Kind::special, .index = i};
    }
    if (word[0] == '%') return Operand{.kind = Kind::reg, .index = register_of(word)};
    if (word[0] == '$') return Operand{.kind = Kind::label, .index = label_of(word)};
    if (word.starts_with("0f"))
        return Operand{.immediate = std::stoull(word.substr(2), nullptr, 16)};
    if (word[0] != '-' && std::isdigit(static_cast<unsigned char>(word[0])) == 0) return fault;
    return Operand{.immediate = static_cast<uint64_t>(std::stoll(word))};
}

// A label or an instruction.
Status PtxKernel::add_line(const std::string& line) {
    std::string rest = trimmed(line);
    if (rest.empty() || rest.starts_with("//") || rest.starts_with(".reg")) return {};
    if (rest.ends_with(':')) {
        const uint32_t label = label_of(rest.substr(0, rest.size() - 1));
        label_targets_[label] = instructions_.size();
        return {};
    }
    Instruction made{.text = rest, .opcode = ""};
    if (rest[0] == '@') {
        made.is_guard_negated = rest[1] == '!';
        const size_t space = rest.find_first_of(" \t");
        const size_t first = made.is_guard_negated ? 2 : 1;
        made.guard = static_cast<int>(register_of(rest.substr(first, space - first)));
        rest = trimmed(rest.substr(space));
    }
    const size_t space = std::min(rest.find_first_of(" \t"), rest.size());
    made.opcode = rest.substr(0, space);
    for (const std::string& word : split_operands(rest.substr(space))) {
        const Result<Operand> operand = parse_operand(word);
        if (!operand) return operand.error();
        made.operands.push_back(*operand);
    }
    const auto function = functions().find(made.opcode);
    if (function != functions().end()) made.function = function->second;
    made.moved_bytes = moved_bytes(made.opcode);
    const bool is_jump = made.opcode == "bra" || made.opcode == "bra.uni" || made.opcode == "ret";
    if (made.function == nullptr && made.moved_bytes == 0 && !is_jump) {
        return Error{ErrorCode::bad_data, "an instruction of PTX that is not known: " + line, ""};
    }
    instructions_.push_back(std::move(made));
    return {};
}

Result<PtxKernel> PtxKernel::parse(const std::string& text, const std::string& name_part) {
    PtxKernel kernel;
    enum class Where : uint8_t { outside, parameters, body };
    Where where = Where::outside;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t entry = line.find(".entry");
        if (where == Where::outside && entry != std::string::npos) {
            if (line.find(name_part) != std::string::npos) where = Where::parameters;
        } else if (where == Where::parameters && line.find(".param") != std::string::npos) {
            const size_t name = line.find_last_of(" \t") + 1;
            kernel.parameter_names_.push_back(line.substr(name, line.find('[') - name));
        } else if (where == Where::parameters && line.starts_with("{")) {
            where = Where::body;
        } else if (where == Where::body && line.starts_with("}")) {
            return kernel;
        } else if (where == Where::body) {
            if (Status status = kernel.add_line(line); !status) return status.error();
        }
    }
    return Error{ErrorCode::bad_data, "the PTX has no whole kernel named like " + name_part, ""};
}

bool PtxKernel::do_memory(const Instruction& instruction, Thread& thread) const {
    const uint64_t element_bytes = instruction.moved_bytes;
    if (element_bytes == 0) return false;
    const bool is_store = instruction.opcode.starts_with("st.");
    CHECK_EQ(instruction.operands.size(), 2u);
    std::byte* at = thread.address_of(instruction.operands[is_store ? 0 : 1]);
    const Operand& moved = instruction.operands[is_store ? 1 : 0];
    const std::span<const Operand> elements = moved.kind == Operand::Kind::list
                                                  ? std::span<const Operand>(moved.list)
                                                  : std::span<const Operand>(&moved, 1);
    const bool is_pair = instruction.opcode.find(".v2.") != std::string::npos;
    const bool is_quad = instruction.opcode.find(".v4.") != std::string::npos;
    CHECK_EQ(elements.size(), is_quad ? 4u : is_pair ? 2u : 1u);
    CHECK_EQ(reinterpret_cast<uintptr_t>(at) % (element_bytes * elements.size()), 0u);
    for (const Operand& element : elements) {
        if (is_store) {
            const uint64_t value = thread.value_of(element);
            std::memcpy(at, &value, element_bytes);
        } else {
            uint64_t value = 0;
            std::memcpy(&value, at, element_bytes);
            // 16 bits: no register of a byte is wider here.
            if (instruction.opcode.ends_with(".s8")) {
                value = static_cast<uint16_t>(static_cast<int8_t>(value));
            }
            thread.registers[element.index] = value;
        }
        at += element_bytes;
    }
    return true;
}

void PtxKernel::step(Thread& thread) const {
    const Instruction& instruction = instructions_[thread.next++];
    if (instruction.guard >= 0) {
        const bool is_set = thread.registers[static_cast<size_t>(instruction.guard)] != 0;
        if (is_set == instruction.is_guard_negated) return;
    }
    if (do_memory(instruction, thread)) return;
    if (instruction.function == nullptr) {
        const bool is_end = instruction.opcode == "ret";
        thread.next = is_end ? instructions_.size() : label_targets_[instruction.operands[0].index];
        CHECK_LE(thread.next, instructions_.size());
        return;
    }
    Arguments arguments;
    for (size_t i = 1; i < instruction.operands.size(); ++i) {
        const Operand& operand = instruction.operands[i];
        if (operand.kind == Operand::Kind::list) {
            for (const Operand& one : operand.list) arguments.push_back(thread.value_of(one));
        } else {
            arguments.push_back(thread.value_of(operand));
        }
    }
    CHECK_TEXT(instruction.operands[0].kind == Operand::Kind::reg, instruction.text);
    thread.registers[instruction.operands[0].index] = functions().at(instruction.opcode)(arguments);
}

void PtxKernel::run_thread(Thread& thread) const {
    for (uint64_t count = 0; thread.next < instructions_.size(); ++count) {
        CHECK_LT(count, instructions_max);
        step(thread);
    }
}

void PtxKernel::run(const PtxGrid& grid,
                    const std::vector<std::span<const std::byte>>& parameters) const {
    CHECK_EQ(parameters.size(), parameter_names_.size());
    for (uint32_t block = 0; block < grid.block_count; ++block) {
        for (uint32_t index = 0; index < grid.threads_per_block; ++index) {
            Thread thread{.special = {index, grid.threads_per_block, block, grid.block_count},
                          .parameters = &parameters,
                          .registers = std::vector<uint64_t>(registers_.size())};
            run_thread(thread);
        }
    }
}

}  // namespace headrace::kernels
