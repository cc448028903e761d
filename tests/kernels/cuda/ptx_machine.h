// PtxKernel: a kernel as nvcc compiled it to PTX, run on this machine's CPU one thread of the grid
// after another; so what a card would compute can be compared bit by bit where there is no card.
// What is left unseen is ptxas, which may not change the result of an instruction that names its
// rounding.
//
// It knows the instructions that the update compiles to, and refuses all others. That is the point
// of half of them: a multiplication that may be fused (mul.f32 without .rn), a result that is
// flushed (.ftz) or approximated (.approx) is no instruction here. NaNs that are made have the
// card's bits, 0x7FFFFFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "offload/result.h"

namespace headrace::kernels {

struct PtxGrid {
    uint32_t block_count = 1;
    uint32_t threads_per_block = 1;
};

class PtxKernel {
  public:
    // The one kernel of the PTX text whose (mangled) name contains `name_part`. Error: there is
    // none, or a line that is not understood, with the line.
    static offload::Result<PtxKernel> parse(const std::string& text, const std::string& name_part);

    // Runs every thread to its end. `parameters` are the bytes of each, in order; memory is this
    // process's. CHECKs that no thread takes more than 2^20 instructions.
    void run(const PtxGrid& grid, const std::vector<std::span<const std::byte>>& parameters) const;

  private:
    struct Operand {
        enum class Kind : uint8_t { reg, immediate, memory, parameter, label, special, list };
        Kind kind = Kind::immediate;
        uint32_t index = 0;      // of the register, parameter, label or special register
        uint64_t immediate = 0;  // or the offset in bytes from a register or parameter
        std::vector<Operand> list{};
    };
    struct Instruction {
        std::string text;
        std::string opcode;
        // What computes its result from the values behind it; null for loads, stores and jumps.
        uint64_t (*function)(const std::vector<uint64_t>& arguments) = nullptr;
        uint64_t moved_bytes = 0;  // of one element of a load or store
        int guard = -1;            // register, or none
        bool is_guard_negated = false;
        std::vector<Operand> operands{};
    };
    struct Thread;

    offload::Status add_line(const std::string& line);
    offload::Result<Operand> parse_operand(const std::string& word);
    uint32_t register_of(const std::string& name);
    uint32_t label_of(const std::string& name);
    void step(Thread& thread) const;
    bool do_memory(const Instruction& instruction, Thread& thread) const;
    void run_thread(Thread& thread) const;

    std::vector<std::string> parameter_names_;
    std::vector<Instruction> instructions_;
    std::map<std::string, uint32_t> registers_;
    std::map<std::string, uint32_t> labels_;
    std::vector<uint64_t> label_targets_;  // by label: the instruction behind it
};

}  // namespace headrace::kernels
