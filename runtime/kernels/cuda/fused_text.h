// The text of a kernel that does what several pointwise kernels do, one after another: an element
// is read once, and what only they hand to each other stays in registers, rounded as if it had been
// stored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/kernels/cuda/pointwise_piece.h"

namespace braid::cuda {

// Where a piece's input comes from.
struct FusedInput {
  int step = -1;     // the piece that made it, before this one; -1: it is read
  int operand = -1;  // which of the reads
};
struct FusedStep {
  const PointwisePiece* piece = nullptr;  // borrowed
  std::vector<FusedInput> inputs;
  int output = -1;  // which of the writes; -1: nobody else reads it
};
// An operand that is read, as an input of a piece has it.
struct FusedRead {
  const PointwisePiece* piece = nullptr;  // borrowed
  int input = 0;
};

struct FusedKernelText {
  std::string text;    // for Programs
  int64_t groups = 0;  // each of which is one thread's work, in turn
  int group = 1;       // elements
};

// The operands are the reads, then the writes, in the order of the steps. All outputs have as many
// elements, at least one. Pointers must be aligned to 16 bytes if a group has more than one.
FusedKernelText TextOf(const std::vector<FusedRead>& reads, const std::vector<FusedStep>& steps);

// Whether an operand of a walk lies as a dense output does.
bool IsDense(const Walk& walk, int operand);

}  // namespace braid::cuda
