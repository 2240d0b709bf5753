#include "graph/rule_binding.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "graph/input_checks.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

bool IsNumber(const std::string& count) {
  return std::isdigit(static_cast<unsigned char>(count[0])) != 0;
}

}  // namespace

absl::StatusOr<Rule::Binding> Rule::Binding::Of(const Rule& rule, const OpContext& context) {
  Binding binding(rule, context);
  BRAID_RETURN_IF_ERROR(binding.BindOperands());
  BRAID_RETURN_IF_ERROR(binding.ReadCounts());
  BRAID_RETURN_IF_ERROR(binding.SolveRanks());
  binding.BindEllipsis();
  for (const std::vector<Bound>* side : {&binding.inputs_, &binding.outputs_}) {
    for (const Bound& bound : *side) BRAID_RETURN_IF_ERROR(binding.BindSizes(bound));
  }
  return binding;
}

absl::Status Rule::Binding::BindOperands() {
  const auto bind = [](const std::vector<Operand>& operands, std::span<const TensorType> types,
                       auto name) {
    std::vector<Bound> bound;
    const auto is_full = [&] { return bound.size() >= types.size(); };
    for (const Operand& operand : operands) {
      if (operand.count != Operand::Count::kOne && is_full()) break;
      do {
        const Shape* shape = is_full() ? nullptr : &types[bound.size()].shape;
        bound.push_back({&operand, shape, name(static_cast<int>(bound.size()))});
      } while (operand.count == Operand::Count::kAny && !is_full());
    }
    return bound;
  };
  inputs_ = bind(rule_.inputs_, context_.inputs, LetterOf);
  outputs_ = bind(rule_.outputs_, context_.outputs,
                  [](int output) { return absl::StrCat("output ", output); });
  if (inputs_.size() == context_.inputs.size()) return absl::OkStatus();
  const auto is_needed = [](const Operand& operand) {
    return operand.count == Operand::Count::kOne;
  };
  const auto needed = std::count_if(rule_.inputs_.begin(), rule_.inputs_.end(), is_needed);
  return absl::InvalidArgumentError(
      absl::StrCat("has ", context_.inputs.size(), " inputs, takes ", needed,
                   needed == static_cast<int64_t>(rule_.inputs_.size())
                       ? std::string()
                       : absl::StrCat(" to ", rule_.inputs_.size())));
}

absl::Status Rule::Binding::ReadCounts() {
  for (const Letter& letter : rule_.letters_) {
    int64_t count = kNotSaid;
    if (!letter.count.empty() && IsNumber(letter.count)) {
      if (!absl::SimpleAtoi(letter.count, &count)) return Error({}, "a number is too large");
    } else if (!letter.count.empty()) {
      count = context_.attrs.Int(letter.count);
      constexpr int64_t kMostAxes = 1 << 16;
      if (count < 0) return Error({}, absl::StrCat(letter.count, " must not be negative"));
      if (letter.is_group && count > kMostAxes) return Error({}, "these are too many axes");
    }
    ranks_.push_back(letter.is_group ? static_cast<int>(count) : 1);
    sizes_.emplace_back();
    if (!letter.is_group) sizes_.back().push_back(count);
    sources_.emplace_back(sizes_.back().size());
  }
  return absl::OkStatus();
}

absl::Status Rule::Binding::SolveRanks() {
  // The one capital letter of an operand that is not known yet stands for all other axes.
  const auto solve = [this](const Bound& bound) {
    if (bound.shape == nullptr || HasEllipsis(*bound.operand)) return false;
    int unknown = -1, others = 0;
    for (const Axis& axis : bound.operand->axes) {
      if (ranks_[axis[0]] != kNotSaid) {
        others += ranks_[axis[0]];
      } else if (unknown >= 0) {
        return false;
      } else {
        unknown = axis[0];
      }
    }
    if (unknown < 0 || others > bound.shape->rank()) return false;
    ranks_[unknown] = bound.shape->rank() - others;
    return true;
  };
  for (bool has_solved = true; has_solved;) {
    has_solved = false;
    for (const std::vector<Bound>* side : {&inputs_, &outputs_}) {
      for (const Bound& bound : *side) has_solved = solve(bound) || has_solved;
    }
  }
  for (std::vector<Bound>* side : {&inputs_, &outputs_}) {
    for (Bound& bound : *side) BRAID_RETURN_IF_ERROR(CheckRank(bound));
  }
  return absl::OkStatus();
}

absl::Status Rule::Binding::CheckRank(Bound& bound) {
  if (bound.shape == nullptr) return absl::OkStatus();
  const bool has_ellipsis = HasEllipsis(*bound.operand);
  int needed = 0;
  bool is_exact = !has_ellipsis;
  for (const Axis& axis : bound.operand->axes) {
    if (rule_.letters_[axis[0]].broadcasts) continue;
    const bool is_known = ranks_[axis[0]] != kNotSaid;
    needed += is_known ? ranks_[axis[0]] : 0;
    is_exact = is_exact && is_known;
  }
  bound.leading = bound.shape->rank() - needed;
  if (bound.leading == 0 || (bound.leading > 0 && has_ellipsis)) return absl::OkStatus();
  return Error({&bound}, absl::StrCat(bound.name, " must have ", is_exact ? "" : "at least ",
                                      needed, " dims (", rule_.text_, ")"));
}

// Leading dims align to the right.
void Rule::Binding::BindEllipsis() {
  for (size_t id = 0; id < ranks_.size(); ++id) {
    if (!rule_.letters_[id].is_group) continue;
    if (!rule_.letters_[id].broadcasts) {
      ranks_[id] = std::max(0, ranks_[id]);  // of operands that are left out
      sizes_[id].assign(ranks_[id], kNotSaid);
      sources_[id].resize(ranks_[id]);
      continue;
    }
    ranks_[id] = 0;
    for (const std::vector<Bound>* side : {&inputs_, &outputs_}) {
      for (const Bound& bound : *side) ranks_[id] = std::max(ranks_[id], bound.leading);
    }
    sizes_[id].assign(ranks_[id], 1);
    sources_[id].resize(ranks_[id]);
  }
}

absl::Status Rule::Binding::BindSizes(const Bound& bound) {
  if (bound.shape == nullptr) return absl::OkStatus();
  int at = 0;
  for (const Axis& axis : bound.operand->axes) {
    if (axis.size() > 1) {
      BRAID_RETURN_IF_ERROR(BindParts(axis, bound, at++));
      continue;
    }
    const int rank = RankOf(bound, axis[0]);
    for (int i = 0; i < rank; ++i) {
      BRAID_RETURN_IF_ERROR(BindSize(axis[0], ranks_[axis[0]] - rank + i, bound, at++));
    }
  }
  return absl::OkStatus();
}

absl::Status Rule::Binding::BindSize(int letter, int index, const Bound& bound, int axis) {
  const int64_t size = (*bound.shape)[axis];
  int64_t& known = sizes_[letter][index];
  Source& source = sources_[letter][index];
  const bool broadcasts = rule_.letters_[letter].broadcasts;
  const bool is_unlike = rule_.letters_[letter].name == "_";
  if (known == kNotSaid || is_unlike || (broadcasts && known == 1)) {
    known = size;
    source = {&bound, axis};
    return absl::OkStatus();
  }
  if (known == size || (broadcasts && size == 1)) return absl::OkStatus();
  const std::string should = absl::StrCat("axis ", axis, " of ", bound.name, " must be ", known);
  if (source.operand == nullptr) return Error({&bound}, should);
  return Error({source.operand, &bound},
               broadcasts
                   ? "they do not broadcast"
                   : absl::StrCat(should, ", as axis ", source.axis, " of ", source.operand->name));
}

absl::Status Rule::Binding::BindParts(const Axis& parts, const Bound& bound, int axis) {
  const int64_t size = (*bound.shape)[axis];
  __int128 product = 1;
  int unknown = -1;
  for (const int part : parts) {
    if (sizes_[part][0] != kNotSaid) {
      product *= sizes_[part][0];
    } else if (unknown >= 0) {
      return absl::OkStatus();  // they need not be known: the first one's size is asked for later
    } else {
      unknown = part;
    }
  }
  const bool fits = product == 0 || unknown < 0 ? product == size : size % product == 0;
  if (!fits) {
    return Error({&bound}, absl::StrCat("axis ", axis, " of ", bound.name, " must be ",
                                        unknown < 0 ? "" : "a multiple of ",
                                        static_cast<int64_t>(product), " (", rule_.text_, ")"));
  }
  if (unknown >= 0 && product != 0) sizes_[unknown][0] = static_cast<int64_t>(size / product);
  return absl::OkStatus();
}

int Rule::Binding::AxisOf(const Bound& bound, int letter, int index) const {
  int at = 0;
  for (const Axis& axis : bound.operand->axes) {
    const int rank = RankOf(bound, axis[0]);
    if (axis[0] != letter) {
      at += rank;
      continue;
    }
    const int own = index - (ranks_[letter] - rank);
    if (own < 0) return Factor::kAbsent;
    const bool is_stretched =
        rule_.letters_[letter].broadcasts && (*bound.shape)[at + own] != sizes_[letter][index];
    return is_stretched ? Factor::kAbsent : at + own;
  }
  return Factor::kAbsent;
}

absl::StatusOr<std::vector<Shape>> Rule::Binding::OutputShapes() const {
  std::vector<Shape> shapes;
  for (const Bound& output : outputs_) {
    std::vector<int64_t> dims;
    for (const Axis& axis : output.operand->axes) {
      if (axis.size() == 1) {
        dims.insert(dims.end(), sizes_[axis[0]].begin(), sizes_[axis[0]].end());
        continue;
      }
      dims.push_back(1);
      for (const int part : axis) dims.back() *= sizes_[part][0];
    }
    shapes.emplace_back(std::move(dims));
  }
  return shapes;
}

absl::StatusOr<FactorRule> Rule::Binding::Factors() const {
  FactorRule rule;
  for (const int letter : rule_.order_) {
    for (int i = 0; i < ranks_[letter]; ++i) {
      Factor& factor = rule.factors.emplace_back();
      for (const Bound& bound : inputs_) factor.inputs.push_back(AxisOf(bound, letter, i));
      for (const Bound& bound : outputs_) factor.outputs.push_back(AxisOf(bound, letter, i));
      if (!rule_.letters_[letter].is_major) continue;
      factor.size = sizes_[letter][0];
      if (factor.size == kNotSaid) {
        return Error({},
                     absl::StrCat("nothing says how long ", rule_.letters_[letter].name, " is"));
      }
    }
  }
  return rule;
}

bool Rule::Binding::HasEllipsis(const Operand& operand) const {
  return !operand.axes.empty() && rule_.letters_[operand.axes[0][0]].broadcasts;
}

int Rule::Binding::RankOf(const Bound& bound, int letter) const {
  return rule_.letters_[letter].broadcasts ? bound.leading : ranks_[letter];
}

absl::Status Rule::Binding::Error(const std::vector<const Bound*>& operands,
                                  const std::string& why) const {
  std::string text;
  for (const Bound* bound : operands) {
    absl::StrAppend(&text, bound->name, " is ", bound->shape->ToString(), ", ");
  }
  for (const Letter& letter : rule_.letters_) {
    if (letter.count.empty() || IsNumber(letter.count)) continue;
    absl::StrAppend(&text, letter.count, " is ", context_.attrs.Int(letter.count), ", ");
  }
  if (!text.empty()) text.replace(text.size() - 2, 2, "; ");
  return absl::InvalidArgumentError(text + why);
}

}  // namespace braid
