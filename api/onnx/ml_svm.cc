// Support vector machines of the domain ai.onnx.ml. Kernels are computed in f64: a distance is the
// difference of two large numbers.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/ml_scores.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using Numbers = std::vector<double>;

constexpr int64_t kMaxCoupled = 32;  // classes with probabilities: operators grow with them

Numbers FloatList(const NodeView& n, const char* name) {
  return n.Floats(name).value_or(Numbers());
}

struct KernelFunction {
  std::string type;
  double gamma = 0, offset = 0, degree = 0;
};

absl::StatusOr<KernelFunction> KernelOf(const NodeView& n) {
  KernelFunction kernel = {.type = n.Text("kernel_type", "LINEAR")};
  for (const char* known : {"LINEAR", "POLY", "RBF", "SIGMOID"}) {
    if (kernel.type != known) continue;
    const Numbers params = FloatList(n, "kernel_params");
    if (params.size() >= 3) {
      kernel.gamma = params[0];
      kernel.offset = params[1];
      kernel.degree = params[2];
    } else if (!params.empty() || kernel.type != "LINEAR") {
      return Wrong(absl::StrCat("it has ", params.size(), " kernel_params; 3 are needed"));
    }
    return kernel;
  }
  return Wrong(absl::StrCat("kernel_type is '", kernel.type, "'"));
}

// Of rows x [n, f] and vectors [s, f]: [n, s].
Tensor KernelMatrix(const KernelFunction& kernel, Tensor x, Tensor vectors) {
  const Tensor products = MatMul(x, vectors, {.transpose_b = true});
  if (kernel.type == "LINEAR") return products;
  if (kernel.type == "RBF") {
    const Tensor of_x = ReduceSumSquare(x, {.axes = {1}, .keep_dims = true});
    const Tensor of_vectors = ReduceSumSquare(vectors, {.axes = {1}});
    const Tensor distance = Sub(Add(of_x, of_vectors), Scale(products, 2));
    return Exp(Scale(distance, -kernel.gamma));
  }
  const Tensor scaled = AddScalar(Scale(products, kernel.gamma), kernel.offset);
  return kernel.type == "POLY" ? Pow(scaled, kernel.degree) : Tanh(scaled);
}

// `count` vectors of as many features as x has.
absl::StatusOr<Tensor> VectorTable(const NodeView& n, const char* name, int64_t count, Tensor x) {
  const Numbers list = FloatList(n, name);
  const int64_t features = x.shape()[1];
  const auto size = static_cast<int64_t>(list.size());
  if (features == 0 || size % features != 0 || size / features != count) {
    return Wrong(
        absl::StrCat(size, " ", name, " are no ", count, " vectors of ", features, " features"));
  }
  return n.Table(name, TableOf(list, {count, features}, DType::kF64));
}

absl::StatusOr<Tensors> TranslateSvmRegressor(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const PostTransform transform, PostTransformOf(n));
  BRAID_ASSIGN_OR_RETURN(const KernelFunction kernel, KernelOf(n));
  BRAID_ASSIGN_OR_RETURN(const Tensor rows, Rows(n));
  const Tensor x = Cast(rows, DType::kF64);
  const Numbers rho = FloatList(n, "rho");
  const bool is_one_class = n.Flag("one_class");
  const int64_t supports = n.Int("n_supports", 0);
  if (rho.size() != 1) return Wrong(absl::StrCat("it has ", rho.size(), " rho; one is needed"));
  Tensor scores;
  if (supports > 0) {
    BRAID_ASSIGN_OR_RETURN(const Tensor vectors, VectorTable(n, "support_vectors", supports, x));
    const Numbers coefficients = FloatList(n, "coefficients");
    if (static_cast<int64_t>(coefficients.size()) != supports) {
      return Wrong(absl::StrCat("it has ", coefficients.size(), " coefficients for ", supports,
                                " support vectors"));
    }
    BRAID_ASSIGN_OR_RETURN(
        const Tensor weights,
        n.Table("coefficients", TableOf(coefficients, {supports, 1}, DType::kF64)));
    scores = MatMul(KernelMatrix(kernel, x, vectors), weights);
  } else {
    n.Ignore("support_vectors");
    BRAID_ASSIGN_OR_RETURN(const Tensor weights, VectorTable(n, "coefficients", 1, x));
    scores = MatMul(x, weights, {.transpose_b = true});
  }
  scores = AddScalar(scores, rho[0]);
  if (is_one_class) {
    const Tensor is_inside = Greater(scores, NumberLike(scores, 0));
    return Tensors{AddScalar(Scale(Cast(is_inside, DType::kF32), 2), -1)};
  }
  return Tensors{Cast(Transformed(scores, transform), DType::kF32)};
}

// Every class against every other one: the scores of the pairs [n, pairs] and, of each class, how
// many pairs it wins [n, classes].
struct Duels {
  Tensor scores, votes;
};

absl::StatusOr<Duels> FightDuels(const NodeView& n, Tensor x, const KernelFunction& kernel,
                                 const Ints& per_class) {
  const auto classes = static_cast<int64_t>(per_class.size());
  const int64_t pairs = classes * (classes - 1) / 2;
  Ints first;  // vector of each class
  int64_t vectors = 0;
  for (int64_t count : per_class) {
    if (count < 0 || count > (int64_t{1} << 31)) return Wrong("vectors_per_class is out of range");
    first.push_back(vectors);
    vectors += count;
  }
  BRAID_ASSIGN_OR_RETURN(const Tensor support, VectorTable(n, "support_vectors", vectors, x));
  const Numbers coefficients = FloatList(n, "coefficients"), rho = FloatList(n, "rho");
  if (static_cast<int64_t>(coefficients.size()) != (classes - 1) * vectors ||
      static_cast<int64_t>(rho.size()) != pairs) {
    return Wrong(absl::StrCat("it has ", coefficients.size(), " coefficients and ", rho.size(),
                              " rho for ", classes, " classes and ", vectors, " vectors"));
  }
  // Row j - 1 of the coefficients has those of class i's vectors against class j, row i those of
  // class j's against class i.
  Numbers weights(vectors * pairs), wins(pairs * classes), losses(pairs * classes);
  int64_t pair = 0;
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      for (int64_t k = first[i]; k < first[i] + per_class[i]; ++k) {
        weights[k * pairs + pair] = coefficients[(j - 1) * vectors + k];
      }
      for (int64_t k = first[j]; k < first[j] + per_class[j]; ++k) {
        weights[k * pairs + pair] = coefficients[i * vectors + k];
      }
      wins[pair * classes + i] = 1;
      losses[pair * classes + j] = 1;
    }
  }
  BRAID_ASSIGN_OR_RETURN(const Tensor factor,
                         n.Table("coefficients", TableOf(weights, {vectors, pairs}, DType::kF64)));
  BRAID_ASSIGN_OR_RETURN(const Tensor bias, n.Table("rho", TableOf(rho, {pairs}, DType::kF64)));
  BRAID_ASSIGN_OR_RETURN(const Tensor winner,
                         n.Table("wins", TableOf(wins, {pairs, classes}, DType::kF32)));
  BRAID_ASSIGN_OR_RETURN(const Tensor loser,
                         n.Table("losses", TableOf(losses, {pairs, classes}, DType::kF32)));
  const Tensor scores = Add(MatMul(KernelMatrix(kernel, x, support), factor), bias);
  const Tensor is_won = Greater(scores, NumberLike(scores, 0));
  const Tensor votes = Add(MatMul(Cast(is_won, DType::kF32), winner),
                           MatMul(Cast(LogicalNot(is_won), DType::kF32), loser));
  return Duels{scores, votes};
}

// Scores [n, c] as the output has them.
Tensor Finished(Tensor scores, PostTransform transform) {
  const bool is_pair = scores.valid() && scores.shape()[1] == 1;
  const Tensor result =
      is_pair ? TransformedPair(Neg(scores), scores, transform) : Transformed(scores, transform);
  return Cast(result, DType::kF32);
}

// Without support vectors: a row of coefficients for each class.
absl::StatusOr<Tensors> LinearMachine(const NodeView& n, Tensor x, const Ints& labels,
                                      PostTransform transform) {
  for (const char* unused : {"support_vectors", "prob_a", "prob_b"}) n.Ignore(unused);
  const Numbers rho = FloatList(n, "rho");
  if (rho.empty()) return Wrong("it has no rho");
  BRAID_ASSIGN_OR_RETURN(const Tensor weights,
                         VectorTable(n, "coefficients", static_cast<int64_t>(labels.size()), x));
  const Tensor scores = AddScalar(MatMul(x, weights, {.transpose_b = true}), rho[0]);
  return Tensors{LabelsOf(ArgMax(scores), labels), Finished(scores, transform)};
}

// The probability of each class against each other one, [n, classes, classes] and 0 against itself,
// from those of the pairs' first ones [n, pairs].
absl::StatusOr<Tensor> PairMatrix(const NodeView& n, Tensor first, int64_t classes) {
  const int64_t pairs = classes * (classes - 1) / 2;
  Numbers above(pairs * classes * classes), below(pairs * classes * classes);
  int64_t pair = 0;
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      above[(pair * classes + i) * classes + j] = 1;
      below[(pair * classes + j) * classes + i] = 1;
    }
  }
  const Shape shape = {pairs, classes * classes};
  BRAID_ASSIGN_OR_RETURN(const Tensor of_first,
                         n.Table("above", TableOf(above, shape, DType::kF64)));
  BRAID_ASSIGN_OR_RETURN(const Tensor of_second,
                         n.Table("below", TableOf(below, shape, DType::kF64)));
  const Tensor second = AddScalar(Neg(first), 1);
  const Tensor flat = Add(MatMul(first, of_first), MatMul(second, of_second));
  return Reshape(flat, {first.shape()[0], classes, classes});
}

// The classes' probabilities [n, classes] that agree best with those of the pairs, by coordinate
// descent: the second algorithm of Wu, Lin and Weng, JMLR 5, 2004, which ends for a row as in
// LIBSVM (Chang and Lin, 2011), so that the numbers are the same.
absl::StatusOr<Tensor> Coupled(const NodeView& n, Tensor first, int64_t classes) {
  constexpr int kSweeps = 12;  // LIBSVM makes 100 at most; 4 were enough for random pairs
  BRAID_ASSIGN_OR_RETURN(const Tensor matrix, PairMatrix(n, first, classes));
  const Tensor products = Neg(Mul(matrix, Transpose(matrix, {0, 2, 1})));
  const Tensor diagonal = ReduceSumSquare(matrix, {.axes = {1}});
  const Tensor eye = Eye(n.graph(), classes, classes, {.dtype = DType::kF64});
  const Tensor q = Add(products, Mul(ExpandDims(diagonal, 1), eye));
  const Tensor end = NumberLike(q, 0.005 / static_cast<double>(classes));
  const auto column = [](Tensor x, int64_t i) {
    return SliceAxis(x, 1, {.begin = i, .end = i + 1});
  };
  Tensor p = Constant(n.graph(), 1 / static_cast<double>(classes),
                      {.dtype = DType::kF64, .shape = {first.shape()[0], classes}});
  Tensor is_done;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    Tensor qp = ReduceSum(Mul(q, ExpandDims(p, 1)), {.axes = {2}});
    Tensor pqp = ReduceSum(Mul(p, qp), {.axes = {1}, .keep_dims = true});
    const Tensor error = ReduceMax(Abs(Sub(qp, pqp)), {.axes = {1}, .keep_dims = true});
    is_done = sweep == 0 ? Less(error, end) : LogicalOr(is_done, Less(error, end));
    Tensor next = p;
    for (int64_t i = 0; i < classes; ++i) {
      const Tensor own = column(diagonal, i), own_qp = column(qp, i);
      const Tensor step = Div(Sub(pqp, own_qp), own), grown = AddScalar(step, 1);
      pqp = Add(pqp, Mul(step, Add(Mul(step, own), Scale(own_qp, 2))));
      pqp = Div(pqp, Square(grown));
      qp = Div(Add(qp, Mul(step, Squeeze(column(q, i), 1))), grown);
      next = Div(Add(next, Mul(step, SliceAxis(eye, 0, {.begin = i, .end = i + 1}))), grown);
    }
    p = Where(is_done, p, next);
  }
  return p;
}

// Labels i64 [n], and f32 scores of the pairs of classes, or probabilities of the classes.
absl::StatusOr<Tensors> TranslateSvmClassifier(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const PostTransform transform, PostTransformOf(n));
  BRAID_ASSIGN_OR_RETURN(const KernelFunction kernel, KernelOf(n));
  BRAID_ASSIGN_OR_RETURN(const Ints labels, ClassLabels(n, "classlabels_ints"));
  BRAID_ASSIGN_OR_RETURN(const Tensor rows, Rows(n));
  const Tensor x = Cast(rows, DType::kF64);
  const Ints per_class = n.List("vectors_per_class").value_or(Ints());
  if (labels.size() < 2) return Lacking("a classifier with one class");
  if (per_class.empty()) return LinearMachine(n, x, labels, transform);
  if (per_class.size() != labels.size()) {
    return Wrong(absl::StrCat("it has ", labels.size(), " labels and vectors of ", per_class.size(),
                              " classes"));
  }
  const Numbers a = FloatList(n, "prob_a"), b = FloatList(n, "prob_b");
  if (a.size() != b.size()) return Wrong("prob_a and prob_b are not of one size");
  BRAID_ASSIGN_OR_RETURN(const Duels duels, FightDuels(n, x, kernel, per_class));
  const Tensor label = LabelsOf(ArgMax(duels.votes), labels);
  if (a.empty()) return Tensors{label, Finished(duels.scores, transform)};
  const auto classes = static_cast<int64_t>(labels.size());
  if (classes > kMaxCoupled) {
    return Lacking(absl::StrCat("probabilities of ", classes, " classes, more than ", kMaxCoupled));
  }
  if (static_cast<int64_t>(a.size()) != classes * (classes - 1) / 2) {
    return Wrong(absl::StrCat("prob_a has ", a.size(), " elements for ", classes, " classes"));
  }
  // Platt's: a logistic function of the pair's score, kept off 0 and 1.
  constexpr double kLeast = 1e-7;
  const Shape pairs = {static_cast<int64_t>(a.size())};
  BRAID_ASSIGN_OR_RETURN(const Tensor scale, n.Table("prob_a", TableOf(a, pairs, DType::kF64)));
  BRAID_ASSIGN_OR_RETURN(const Tensor offset, n.Table("prob_b", TableOf(b, pairs, DType::kF64)));
  const Tensor second = Sigmoid(Add(Mul(duels.scores, scale), offset));
  const Tensor first = Clip(AddScalar(Neg(second), 1), kLeast, 1 - kLeast);
  BRAID_ASSIGN_OR_RETURN(const Tensor result, Coupled(n, first, classes));
  return Tensors{label, Cast(Transformed(result, transform), DType::kF32)};
}

}  // namespace

void AddMlSvm(Translators& all) {
  all.Add("ai.onnx.ml.SVMRegressor", {}, TranslateSvmRegressor);
  all.Add("ai.onnx.ml.SVMClassifier", {}, TranslateSvmClassifier);
}

}  // namespace braid::onnx
