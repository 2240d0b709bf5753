// The notation of sharding rules: "ik,kj->ij" says in one line how an operator's shapes follow from
// each other, and which axes are split together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/factor_rule.h"
#include "graph/shape.h"

namespace braid {

// Operands stand in order, inputs left of the arrow. In an operand
//   k      a small letter is one axis. Equal letters have equal sizes and are split together; a
//          letter only on the left, once split, leaves addends (P).
//   N      a capital letter is any number of axes, each with its like in other operands.
//   ...    in front: any number of axes that broadcast by numpy's rules (an operand of 1 against a
//          larger size is whole when the axis is split).
//   [c]    is never split.   _  is one axis that is never split, and unlike any other.
//   4      an axis of 4, never split.
//   (gc)   one axis made of several, the first one outermost: only that one can be split.
// Which attribute says more stands in braces at one place of a letter: the size of `c{size}`, the
// number of axes of `A{axis}`. What axes a capital letter stands for otherwise follows from ranks.
//   c?     this operand may be left out, if all behind it are.   c*  any number of such operands.
//   ()     no operands at all.
// After "; " stand letters in the order in which their splits are preferred where costs are equal
// ("ik,kj->ij; ijk"), those left out are never split; otherwise it is the order in which they
// appear. "..." comes first.
class Rule {
 public:
  static absl::StatusOr<Rule> Parse(std::string_view text);

  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  // Why output shapes do not follow from inputs and attributes, or OK.
  absl::Status CheckShapesFollow() const;
  // Errors say all shapes and attributes that the rule looks at.
  absl::StatusOr<std::vector<Shape>> InferShapes(const OpContext& context) const;
  absl::StatusOr<FactorRule> Factors(const OpContext& context) const;

 private:
  struct Letter {
    std::string name;         // of an axis that is a number, the number
    std::string count;        // the attribute or number of its size or axes; "": not said
    bool is_group = false;    // any number of axes
    bool broadcasts = false;  // "..."
    bool is_fixed = false;    // never split
    bool is_minor = false;    // stands behind another in an axis
    bool is_major = false;    // stands in front of others in an axis
  };
  using Axis = std::vector<int>;  // letters, major to minor
  struct Operand {
    std::vector<Axis> axes;
    enum class Count { kOne, kOptional, kAny } count = Count::kOne;
  };
  class Parser;
  class Binding;

  static constexpr int64_t kNotSaid = -1;

  std::string text_;
  std::vector<Letter> letters_;
  std::vector<Operand> inputs_, outputs_;
  std::vector<int> order_;  // of letters, as they are preferred
};

}  // namespace braid
