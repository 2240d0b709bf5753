#include "graph/rule.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "graph/rule_binding.h"
#include "runtime/base/status.h"

namespace braid {

// Reads the text into the rule's fields.
class Rule::Parser {
 public:
  explicit Parser(Rule& rule) : rule_(rule) {}

  absl::Status Parse() {
    const std::vector<std::string> parts = absl::StrSplit(rule_.text_, ';');
    const std::vector<std::string> sides = absl::StrSplit(parts[0], "->");
    if (sides.size() != 2 || parts.size() > 2) return Error("one \"->\" is expected");
    BRAID_RETURN_IF_ERROR(ParseSide(sides[0], rule_.inputs_));
    BRAID_RETURN_IF_ERROR(ParseSide(sides[1], rule_.outputs_));
    const auto has_ellipsis = [this](const Operand& operand) {
      return !operand.axes.empty() && rule_.letters_[operand.axes[0][0]].broadcasts;
    };
    if (std::none_of(rule_.inputs_.begin(), rule_.inputs_.end(), has_ellipsis) &&
        std::any_of(rule_.outputs_.begin(), rule_.outputs_.end(), has_ellipsis)) {
      return Error("an output has \"...\", no input has");
    }
    return ParseOrder(parts.size() == 2 ? parts[1] : "");
  }

 private:
  absl::Status Error(std::string_view why) const {
    return absl::InvalidArgumentError(absl::StrFormat("rule \"%s\": %s", rule_.text_, why));
  }

  absl::Status ParseSide(const std::string& text, std::vector<Operand>& operands) {
    if (text == "()") return absl::OkStatus();
    for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
      if (!operands.empty() && operands.back().count == Operand::Count::kAny) {
        return Error("nothing can stand behind \"*\"");
      }
      BRAID_RETURN_IF_ERROR(ParseOperand(part, operands.emplace_back()));
      const size_t last = operands.size() - 1;
      if (last > 0 && operands[last - 1].count == Operand::Count::kOptional &&
          operands[last].count != Operand::Count::kOptional) {
        return Error("behind \"?\" all need one");
      }
    }
    return absl::OkStatus();
  }

  absl::Status ParseOperand(std::string_view text, Operand& operand) {
    if (text.ends_with('?')) operand.count = Operand::Count::kOptional;
    if (text.ends_with('*')) operand.count = Operand::Count::kAny;
    if (operand.count != Operand::Count::kOne) text.remove_suffix(1);
    if (text.starts_with("...")) {
      operand.axes.push_back({LetterOf("...")});
      Letter& letter = rule_.letters_[operand.axes[0][0]];
      letter.is_group = letter.broadcasts = true;
      text.remove_prefix(3);
    }
    bool in_brackets = false, in_axis = false;
    while (!text.empty()) {
      const char c = text[0];
      if (c == '[' && !in_brackets && !in_axis) {
        in_brackets = true;
      } else if (c == ']' && in_brackets) {
        in_brackets = false;
      } else if (c == '(' && !in_brackets && !in_axis) {
        in_axis = true;
        operand.axes.emplace_back();
      } else if (c == ')' && in_axis && !operand.axes.back().empty()) {
        in_axis = false;
      } else {
        if (!in_axis) operand.axes.emplace_back();
        BRAID_RETURN_IF_ERROR(ParseLetter(text, operand, in_brackets, in_axis));
        continue;
      }
      text.remove_prefix(1);
    }
    if (in_brackets || in_axis) return Error(in_brackets ? "a ']' is missing" : "a ')' is missing");
    return absl::OkStatus();
  }

  // Appends what stands first in `text`, and takes it off.
  absl::Status ParseLetter(std::string_view& text, Operand& operand, bool in_brackets,
                           bool in_axis) {
    const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    const char c = text[0];
    const bool is_letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    if (!is_letter && c != '_' && !is_digit(c)) {
      return Error(absl::StrFormat("'%c' is not expected here", c));
    }
    const size_t length =
        is_digit(c) ? std::find_if_not(text.begin(), text.end(), is_digit) - text.begin() : 1;
    const std::string name(text.substr(0, length));
    const int id = is_letter ? LetterOf(name) : NewLetter(name);
    Letter& letter = rule_.letters_[id];
    letter.is_fixed = letter.is_fixed || in_brackets || !is_letter;
    letter.is_group = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (is_digit(c)) letter.count = name;
    for (const Axis& axis : operand.axes) {
      if (std::find(axis.begin(), axis.end(), id) != axis.end()) {
        return Error(absl::StrFormat("%c comes twice in one operand", c));
      }
    }
    Axis& axis = operand.axes.back();
    if (in_axis && !axis.empty()) letter.is_minor = rule_.letters_[axis[0]].is_major = true;
    if (in_axis && letter.is_group) return Error(absl::StrFormat("%c is several axes", c));
    axis.push_back(id);
    text.remove_prefix(length);
    if (!text.starts_with('{')) return absl::OkStatus();
    const size_t end = text.find('}');
    if (end == std::string_view::npos || end == 1) return Error("an attribute in {} is missing");
    letter.count = std::string(text.substr(1, end - 1));
    text.remove_prefix(end + 1);
    return absl::OkStatus();
  }

  absl::Status ParseOrder(const std::string& text) {
    const auto prefer = [this](int id) {
      const Letter& letter = rule_.letters_[id];
      if (!letter.is_fixed && !letter.is_minor) rule_.order_.push_back(id);
    };
    for (size_t id = 0; id < rule_.letters_.size(); ++id) {
      if (rule_.letters_[id].broadcasts) prefer(static_cast<int>(id));
    }
    for (const char c : text) {
      const int id = Find(std::string(1, c));
      if (id < 0) return Error(absl::StrFormat("%c stands behind ';' only", c));
      prefer(id);
    }
    for (size_t id = 0; text.empty() && id < rule_.letters_.size(); ++id) {
      if (!rule_.letters_[id].broadcasts) prefer(static_cast<int>(id));
    }
    return absl::OkStatus();
  }

  int Find(const std::string& name) const {
    for (size_t id = 0; id < rule_.letters_.size(); ++id) {
      if (rule_.letters_[id].name == name) return static_cast<int>(id);
    }
    return -1;
  }
  int NewLetter(const std::string& name) {
    rule_.letters_.push_back({.name = name});
    return static_cast<int>(rule_.letters_.size()) - 1;
  }
  int LetterOf(const std::string& name) {
    const int id = Find(name);
    return id < 0 ? NewLetter(name) : id;
  }

  Rule& rule_;
};

absl::StatusOr<Rule> Rule::Parse(std::string_view text) {
  Rule rule;
  for (char c : text) {
    if (c != ' ') rule.text_.push_back(c);
  }
  BRAID_RETURN_IF_ERROR(Parser(rule).Parse());
  return rule;
}

absl::Status Rule::CheckShapesFollow() const {
  const auto stands_in_inputs = [this](int id) {
    return std::any_of(inputs_.begin(), inputs_.end(), [id](const Operand& input) {
      return std::any_of(input.axes.begin(), input.axes.end(), [id](const Axis& axis) {
        return std::find(axis.begin(), axis.end(), id) != axis.end();
      });
    });
  };
  for (const Operand& output : outputs_) {
    for (const Axis& axis : output.axes) {
      for (const int id : axis) {
        const Letter& letter = letters_[id];
        if (stands_in_inputs(id) || (!letter.is_group && !letter.count.empty())) continue;
        return absl::InvalidArgumentError(
            absl::StrFormat("rule \"%s\": no input says how long %s is", text_, letter.name));
      }
    }
    if (output.count != Operand::Count::kOne) {
      return absl::InvalidArgumentError(
          absl::StrFormat("rule \"%s\": nothing says how many outputs there are", text_));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Shape>> Rule::InferShapes(const OpContext& context) const {
  BRAID_RETURN_IF_ERROR(CheckShapesFollow());
  BRAID_ASSIGN_OR_RETURN(const Binding binding, Binding::Of(*this, context));
  return binding.OutputShapes();
}

absl::StatusOr<FactorRule> Rule::Factors(const OpContext& context) const {
  BRAID_ASSIGN_OR_RETURN(const Binding binding, Binding::Of(*this, context));
  return binding.Factors();
}

}  // namespace braid
