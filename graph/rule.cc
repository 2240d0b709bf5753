#include "graph/rule.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"
#include "graph/op_def.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// "a is [64, 784], b is [512, 10]": the operands of an error, named by position.
std::string Describe(std::span<const Shape> inputs) {
  std::string text;
  for (size_t i = 0; i < inputs.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", std::string(1, static_cast<char>('a' + i)), " is ",
                    inputs[i].ToString());
  }
  return text;
}

}  // namespace

struct Rule::Sizes {
  std::map<char, int64_t> letters;
  std::vector<int64_t> ellipsis;  // broadcast over all operands that have it
  std::vector<int> leading;       // per input: how many dims its ellipsis stands for
};

absl::StatusOr<Rule::Operand> Rule::ParseOperand(std::string_view text) {
  Operand operand;
  if (text.starts_with("...")) {
    operand.ellipsis = true;
    text.remove_prefix(3);
  }
  bool in_brackets = false;
  for (char c : text) {
    if (c == '[' && !in_brackets) {
      in_brackets = true;
    } else if (c == ']' && in_brackets) {
      in_brackets = false;
    } else if (std::isalpha(static_cast<unsigned char>(c)) == 0) {
      return absl::InvalidArgumentError(absl::StrFormat("'%c' is not expected here", c));
    } else if (std::any_of(operand.letters.begin(), operand.letters.end(),
                           [c](const Letter& letter) { return letter.name == c; })) {
      return absl::InvalidArgumentError(absl::StrFormat("%c comes twice in one operand", c));
    } else {
      operand.letters.push_back({c, in_brackets});
    }
  }
  if (in_brackets) return absl::InvalidArgumentError("a ']' is missing");
  return operand;
}

absl::StatusOr<Rule> Rule::Parse(std::string_view text) {
  auto error = [text](std::string_view why) {
    return absl::InvalidArgumentError(absl::StrFormat("rule \"%s\": %s", text, why));
  };
  Rule rule;
  for (char c : text) {
    if (c != ' ') rule.text_.push_back(c);
  }
  std::vector<std::string> sides = absl::StrSplit(rule.text_, "->");
  if (sides.size() != 2) return error("one \"->\" is expected");
  for (bool is_output : {false, true}) {
    for (const std::string& part :
         std::vector<std::string>(absl::StrSplit(sides[is_output ? 1 : 0], ','))) {
      absl::StatusOr<Operand> operand = ParseOperand(part);
      if (!operand.ok()) return error(std::string(operand.status().message()));
      (is_output ? rule.outputs_ : rule.inputs_).push_back(*std::move(operand));
    }
  }
  for (const Operand& output : rule.outputs_) {
    auto has_ellipsis = [](const Operand& input) { return input.ellipsis; };
    if (output.ellipsis && std::none_of(rule.inputs_.begin(), rule.inputs_.end(), has_ellipsis)) {
      return error("an output has \"...\", no input has");
    }
    for (const Letter& letter : output.letters) {
      auto has_letter = [&letter](const Operand& input) {
        return std::any_of(input.letters.begin(), input.letters.end(),
                           [&letter](const Letter& other) { return other.name == letter.name; });
      };
      if (std::none_of(rule.inputs_.begin(), rule.inputs_.end(), has_letter)) {
        return error(absl::StrFormat("no input says how long %c is", letter.name));
      }
    }
  }
  return rule;
}

int Rule::num_inputs() const { return static_cast<int>(inputs_.size()); }
int Rule::num_outputs() const { return static_cast<int>(outputs_.size()); }

bool Rule::IsFixed(char name) const {
  for (const std::vector<Operand>* side : {&inputs_, &outputs_}) {
    for (const Operand& operand : *side) {
      for (const Letter& letter : operand.letters) {
        if (letter.name == name && letter.fixed) return true;
      }
    }
  }
  return false;
}

absl::StatusOr<Rule::Sizes> Rule::Match(std::span<const Shape> inputs) const {
  if (inputs.size() != inputs_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes ", inputs_.size(), " inputs, got ", inputs.size()));
  }
  Sizes sizes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    int letters = static_cast<int>(inputs_[i].letters.size());
    int leading = inputs[i].rank() - letters;
    if (leading < 0 || (leading > 0 && !inputs_[i].ellipsis)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s; %c must have %s%d dims (%s)", Describe(inputs), static_cast<char>('a' + i),
          inputs_[i].ellipsis ? "at least " : "", letters, text_));
    }
    sizes.leading.push_back(leading);
    for (int l = 0; l < letters; ++l) {
      char name = inputs_[i].letters[l].name;
      auto [found, is_new] = sizes.letters.emplace(name, inputs[i][leading + l]);
      if (!is_new && found->second != inputs[i][leading + l]) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s; %c differs", Describe(inputs), name));
      }
    }
  }
  // Leading dims align to the right.
  int rank =
      sizes.leading.empty() ? 0 : *std::max_element(sizes.leading.begin(), sizes.leading.end());
  sizes.ellipsis.assign(rank, 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int axis = 0; axis < sizes.leading[i]; ++axis) {
      int64_t& size = sizes.ellipsis[rank - sizes.leading[i] + axis];
      int64_t here = inputs[i][axis];
      if (size != 1 && here != 1 && size != here) {
        return absl::InvalidArgumentError(
            absl::StrCat(Describe(inputs), "; the leading dims differ"));
      }
      if (here != 1) size = here;
    }
  }
  return sizes;
}

absl::StatusOr<std::vector<Shape>> Rule::InferShapes(std::span<const Shape> inputs) const {
  ASSIGN_OR_RETURN(Sizes sizes, Match(inputs));
  std::vector<Shape> shapes;
  for (const Operand& output : outputs_) {
    std::vector<int64_t> dims;
    if (output.ellipsis) dims = sizes.ellipsis;
    for (const Letter& letter : output.letters) dims.push_back(sizes.letters.at(letter.name));
    shapes.emplace_back(std::move(dims));
  }
  return shapes;
}

std::vector<SbpSignature> Rule::Signatures(std::span<const Shape> inputs) const {
  absl::StatusOr<Sizes> sizes = Match(inputs);
  CHECK(sizes.ok()) << sizes.status();
  int rank = static_cast<int>(sizes->ellipsis.size());
  std::vector<SbpSignature> signatures;

  for (int axis = 0; axis < rank; ++axis) {
    SbpSignature signature;
    for (size_t i = 0; i < inputs.size(); ++i) {
      int own_axis = axis - (rank - sizes->leading[i]);
      bool is_split = own_axis >= 0 && inputs[i][own_axis] == sizes->ellipsis[axis];
      signature.inputs.push_back(is_split ? sbp::S(own_axis) : sbp::B);
    }
    for (const Operand& output : outputs_) {
      signature.outputs.push_back(output.ellipsis ? sbp::S(axis) : sbp::P);
    }
    signatures.push_back(std::move(signature));
  }

  std::string done;
  for (const Operand& first : inputs_) {
    for (const Letter& letter : first.letters) {
      if (done.find(letter.name) != std::string::npos || IsFixed(letter.name)) continue;
      done.push_back(letter.name);
      auto split = [&letter](const Operand& operand, int leading, Sbp otherwise) {
        for (size_t l = 0; l < operand.letters.size(); ++l) {
          if (operand.letters[l].name == letter.name) return sbp::S(leading + static_cast<int>(l));
        }
        return otherwise;
      };
      SbpSignature signature;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        signature.inputs.push_back(split(inputs_[i], sizes->leading[i], sbp::B));
      }
      for (const Operand& output : outputs_) {
        signature.outputs.push_back(split(output, output.ellipsis ? rank : 0, sbp::P));
      }
      signatures.push_back(std::move(signature));
    }
  }
  return signatures;
}

}  // namespace braid
