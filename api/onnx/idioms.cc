#include "api/onnx/idioms.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "graph/functional.h"

namespace braid::onnx {
namespace {

// ---- The table. A term is an operator of Braid's with its operands, a number, or a letter: the
// same tensor wherever it stands, or any one number (e). The order of the operands of mul and add
// is free, and reductions are of the last axis, which stays with size 1.

constexpr char kMul[] = "mul", kAdd[] = "add", kSomeNumber[] = "e";

// What is halved and multiplied by x.
constexpr const char* kErfTerms[] = {
    "add(erf(div(x, 1.4142135)), 1)",
    "add(erf(mul(x, 0.70710678)), 1)",
};
constexpr const char* kTanhTerms[] = {
    "add(tanh(mul(add(x, mul(pow(x, 3), 0.044715)), 0.79788456)), 1)",
    "add(tanh(mul(add(x, mul(mul(x, mul(x, x)), 0.044715)), 0.79788456)), 1)",
};
constexpr const char* kHalvedProducts[] = {
    "mul(mul(x, TERM), 0.5)",
    "mul(mul(x, 0.5), TERM)",
    "mul(x, mul(TERM, 0.5))",
};
constexpr const char* kSquares[] = {"pow(x, 2)", "mul(x, x)"};
constexpr const char* kRmsNorms[] = {
    "mul(g, mul(x, div(1, sqrt(add(reduce_mean(SQUARE), e)))))",
    "mul(g, mul(x, reciprocal(sqrt(add(reduce_mean(SQUARE), e)))))",
    "mul(g, div(x, sqrt(add(reduce_mean(SQUARE), e))))",
};
// Where it is centered once, the product is an RMS norm, and known as one.
constexpr const char* kLayerNorms[] = {
    "add(rms_norm(CENTERED, g), b)",
    "add(mul(div(CENTERED, sqrt(add(reduce_mean(pow(CENTERED, 2)), e))), g), b)",
    "add(mul(div(CENTERED, sqrt(add(reduce_mean(mul(CENTERED, CENTERED)), e))), g), b)",
};
constexpr char kCentered[] = "sub(x, reduce_mean(x))";

// Numbers are f32 in files, some of them written with few digits.
constexpr double kTolerance = 1e-5;

bool IsNear(double a, double b) { return std::abs(a - b) <= kTolerance * std::abs(b); }

// Whether `part` broadcasts to `whole` and leaves its shape.
bool Spans(const Shape& whole, const Shape& part) {
  const int missing = whole.rank() - part.rank();
  if (missing < 0) return false;
  for (int axis = 0; axis < part.rank(); ++axis) {
    if (part[axis] != 1 && part[axis] != whole[missing + axis]) return false;
  }
  return true;
}

bool IsOfLastAxis(const LogicalGraph& graph, const Op& op) {
  const std::vector<int64_t>& axes = op.attrs.Ints("axes");
  return op.attrs.Bool("keep_dims") && axes.size() == 1 &&
         axes[0] == graph.type(op.inputs[0]).shape.rank() - 1;
}

}  // namespace

struct Idioms::Term {
  std::string op = {};  // empty: a number or a letter
  std::string letter = {};
  double number = 0;  // neither
  std::vector<Term> operands = {};

  // Reads from the front of `text`, which the table holds.
  static Term Read(std::string_view& text) {
    Skip(text);
    const size_t size = std::min(text.find_first_of("(),"), text.size());
    const std::string word(text.substr(0, size));
    text.remove_prefix(size);
    if (!text.starts_with('(')) {
      if (absl::ascii_isalpha(word[0])) return {.letter = word};
      return {.number = std::strtod(word.c_str(), nullptr)};
    }
    Term term = {.op = word};
    while (!text.starts_with(')')) {
      text.remove_prefix(1);
      term.operands.push_back(Read(text));
      Skip(text);
      CHECK(!text.empty()) << word;
    }
    text.remove_prefix(1);
    return term;
  }
  static void Skip(std::string_view& text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
};

// What the letters stand for.
struct Idioms::Found {
  std::map<std::string, TensorId> tensors = {};
  double number = 0;  // e, or of an operator that is known already, its epsilon

  Tensor At(const char* letter, LogicalGraph* graph) const {
    return Tensor(graph, tensors.at(letter));
  }

  // Whether every tensor is made by what its term says.
  bool Solve(const LogicalGraph& graph, std::vector<std::pair<const Term*, TensorId>> goals) {
    if (goals.empty()) return true;
    const auto [term, tensor] = goals.back();
    goals.pop_back();
    const Op& op = graph.producer(tensor);
    if (term->op.empty() && (term->letter.empty() || term->letter == kSomeNumber)) {
      if (op.type != kNumber || graph.type(tensor).shape.num_elements() != 1) return false;
      const double value = op.attrs.Double("value");
      if (term->letter.empty() && !IsNear(value, term->number)) return false;
      if (!term->letter.empty()) number = value;
      return Solve(graph, std::move(goals));
    }
    if (term->op.empty()) {
      const auto [known, is_new] = tensors.emplace(term->letter, tensor);
      return known->second == tensor && Solve(graph, std::move(goals));
    }
    if (op.type != term->op || op.inputs.size() != term->operands.size()) return false;
    if (tensor != op.outputs[0]) return false;
    if (op.attrs.Has("epsilon")) number = op.attrs.Double("epsilon");
    if (op.attrs.Has("axes") && !IsOfLastAxis(graph, op)) return false;
    const bool is_free = op.type == kMul || op.type == kAdd;
    for (const bool is_swapped : {false, true}) {
      if (is_swapped && !is_free) break;
      auto more = goals;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        more.emplace_back(&term->operands[i], op.inputs[is_swapped ? 1 - i : i]);
      }
      Found found = *this;
      if (!found.Solve(graph, std::move(more))) continue;
      *this = std::move(found);
      return true;
    }
    return false;
  }
};

struct Idioms::Idiom {
  Term term;
  std::function<Tensor(const Found&, LogicalGraph*, SourceLocation)> make;
};

Idioms::Idioms() {
  const auto add = [this](const std::string& text, auto make) {
    std::string_view rest = text;
    idioms_.push_back({Term::Read(rest), make});
  };
  add("mul(x, sigmoid(x))", [](const Found& found, LogicalGraph* graph, SourceLocation where) {
    return Silu(found.At("x", graph), where);
  });
  const auto gelu = [](bool approximate) {
    return [=](const Found& found, LogicalGraph* graph, SourceLocation where) {
      return Gelu(found.At("x", graph), {.approximate = approximate}, where);
    };
  };
  for (const char* product : kHalvedProducts) {
    for (const char* term : kErfTerms) {
      add(absl::StrReplaceAll(product, {{"TERM", term}}), gelu(/*approximate=*/false));
    }
    for (const char* term : kTanhTerms) {
      add(absl::StrReplaceAll(product, {{"TERM", term}}), gelu(/*approximate=*/true));
    }
  }
  const auto is_of_columns = [](Tensor numbers, Tensor x) {
    return numbers.shape().rank() == 1 && numbers.shape()[0] == x.shape()[x.shape().rank() - 1];
  };
  for (const char* norm : kRmsNorms) {
    for (const char* square : kSquares) {
      add(absl::StrReplaceAll(norm, {{"SQUARE", square}}),
          [=](const Found& found, LogicalGraph* graph, SourceLocation where) {
            const Tensor x = found.At("x", graph), gamma = found.At("g", graph);
            if (!is_of_columns(gamma, x)) return Tensor();
            return RmsNorm(x, gamma, {.epsilon = found.number}, where);
          });
    }
  }
  for (const char* norm : kLayerNorms) {
    add(absl::StrReplaceAll(norm, {{"CENTERED", kCentered}}),
        [=](const Found& found, LogicalGraph* graph, SourceLocation where) {
          const Tensor x = found.At("x", graph);
          const Tensor gamma = found.At("g", graph), beta = found.At("b", graph);
          if (!is_of_columns(gamma, x) || !is_of_columns(beta, x)) return Tensor();
          return LayerNorm(x, gamma, beta, {.epsilon = found.number}, where);
        });
  }
}

Idioms::~Idioms() = default;

std::optional<Tensor> Idioms::Find(std::string_view last, Tensor a, Tensor b,
                                   SourceLocation where) const {
  if (!a.valid() || !b.valid() || !IsFloating(a.dtype())) return std::nullopt;
  LogicalGraph* const graph = a.graph();
  for (const Idiom& idiom : idioms_) {
    if (idiom.term.op != last) continue;
    const std::vector<Term>& operands = idiom.term.operands;
    for (const auto& [first, second] : {std::pair{a, b}, {b, a}}) {
      Found found;
      if (!found.Solve(*graph, {{&operands[0], first.id()}, {&operands[1], second.id()}})) continue;
      const Shape shape = found.At("x", graph).shape();
      if (!Spans(shape, a.shape()) || !Spans(shape, b.shape())) continue;
      const Tensor made = idiom.make(found, graph, where);
      if (made.valid()) return made;
    }
  }
  return std::nullopt;
}

Tensor Idioms::Product(Tensor a, Tensor b, SourceLocation where) const {
  const std::optional<Tensor> found = Find(kMul, a, b, where);
  return found ? *found : Mul(a, b, where);
}

Tensor Idioms::Sum(Tensor a, Tensor b, SourceLocation where) const {
  const std::optional<Tensor> found = Find(kAdd, a, b, where);
  return found ? *found : Add(a, b, where);
}

}  // namespace braid::onnx
