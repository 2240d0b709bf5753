// The rule language: "ik,kj->ij" says an operator's shapes and SBP signatures in one line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/sbp.h"
#include "graph/shape.h"

namespace braid {

struct SbpSignature;

// A letter on both sides may be split; a letter only on the left, once split, leaves P; "[c]" is
// never split; "..." is any number of leading dims, equal in all operands that have it (an operand
// dim of 1 against a larger one broadcasts: that operand is B when the axis is split); equal
// letters must be equal sizes.
class Rule {
 public:
  static absl::StatusOr<Rule> Parse(std::string_view text);

  int num_inputs() const;
  int num_outputs() const;
  absl::StatusOr<std::vector<Shape>> InferShapes(std::span<const Shape> inputs) const;
  // Without all-B and without P in an input (see OpDef::Linear): first the ellipsis' axes, then the
  // letters in the order in which they appear. The shapes must fit (CHECK).
  std::vector<SbpSignature> Signatures(std::span<const Shape> inputs) const;

 private:
  struct Letter {
    char name;
    bool fixed;  // in brackets
  };
  struct Operand {
    bool ellipsis = false;  // first
    std::vector<Letter> letters;
  };
  // The operands' shapes as seen by the letters: size of every letter, and the broadcast ellipsis.
  struct Sizes;

  static absl::StatusOr<Operand> ParseOperand(std::string_view text);
  absl::StatusOr<Sizes> Match(std::span<const Shape> inputs) const;
  bool IsFixed(char letter) const;

  std::string text_;
  std::vector<Operand> inputs_, outputs_;
};

}  // namespace braid
