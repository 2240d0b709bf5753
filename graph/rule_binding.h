// What the letters of a rule are in one use of an operator: how many axes, of which sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/rule.h"

namespace braid {

class Rule::Binding {
 public:
  static absl::StatusOr<Binding> Of(const Rule& rule, const OpContext& context);

  absl::StatusOr<std::vector<Shape>> OutputShapes() const;
  absl::StatusOr<FactorRule> Factors() const;

 private:
  // An operand of this use, and what the rule says of it.
  struct Bound {
    const Operand* operand;
    const Shape* shape;  // null: not known yet
    std::string name;    // in messages
    int leading = 0;     // axes for which its "..." stands
  };
  // Which axis it was that said how long an axis of a letter is.
  struct Source {
    const Bound* operand = nullptr;  // null: an attribute or a number
    int axis = 0;
  };

  Binding(const Rule& rule, const OpContext& context) : rule_(rule), context_(context) {}

  absl::Status BindOperands();
  absl::Status ReadCounts();
  absl::Status SolveRanks();
  absl::Status CheckRank(Bound& bound);
  void BindEllipsis();
  absl::Status BindSizes(const Bound& bound);
  // Number `index` of the axes of a letter is an operand's axis `axis`.
  absl::Status BindSize(int letter, int index, const Bound& bound, int axis);
  absl::Status BindParts(const Axis& parts, const Bound& bound, int axis);
  // Number `index` of the axes of a letter, in an operand; kAbsent if it has none, or broadcasts
  // it.
  int AxisOf(const Bound& bound, int letter, int index) const;

  bool HasEllipsis(const Operand& operand) const;
  // How many axes a letter is in an operand.
  int RankOf(const Bound& bound, int letter) const;
  // The operands, the attributes that the rule names, and why.
  absl::Status Error(const std::vector<const Bound*>& operands, const std::string& why) const;

  const Rule& rule_;
  const OpContext& context_;
  std::vector<Bound> inputs_, outputs_;
  std::vector<int> ranks_;                    // per letter; kNotSaid
  std::vector<std::vector<int64_t>> sizes_;   // per letter and axis of it; kNotSaid
  std::vector<std::vector<Source>> sources_;  // of these
};

}  // namespace braid
