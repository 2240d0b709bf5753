// Losses. ONNX has the classes on axis 1, Braid on the last one.
#include <numeric>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

absl::Status CheckClasses(const NodeView& n) {
  if (n.rank() >= 2) return absl::OkStatus();
  return Wrong(absl::StrCat("scores have ", n.rank(), " axes; 2 are needed"));
}

// Classes from axis 1 to the end, and back.
Ints ToEnd(int rank) {
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  perm.erase(perm.begin() + 1);
  perm.push_back(1);
  return perm;
}
Ints FromEnd(int rank) {
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), -1);
  perm[0] = 0;
  perm[1] = rank - 1;
  return perm;
}

absl::StatusOr<LossReduction> LossReductionOf(const NodeView& n) {
  const std::string name = n.Text("reduction", "mean");
  if (name == "none") return LossReduction::kNone;
  if (name == "mean") return LossReduction::kMean;
  if (name == "sum") return LossReduction::kSum;
  return Wrong(absl::StrCat("reduction is '", name, "'; none, mean or sum is needed"));
}

std::optional<int64_t> IgnoredOf(const NodeView& n) {
  if (!n.Has("ignore_index")) return std::nullopt;
  return n.Int("ignore_index", 0);
}

absl::StatusOr<Tensors> TranslateCrossEntropy(const NodeView& n) {
  BRAID_RETURN_IF_ERROR(CheckClasses(n));
  BRAID_ASSIGN_OR_RETURN(const LossReduction reduction, LossReductionOf(n));
  const Tensor scores = Transpose(n.in(0), ToEnd(n.rank()));
  Tensors outputs = {CrossEntropy(
      scores, n.in(1), {.weights = n.in(2), .ignore_index = IgnoredOf(n), .reduction = reduction})};
  if (n.HasOutput(1)) outputs.push_back(Transpose(LogSoftmax(scores), FromEnd(n.rank())));
  return outputs;
}

absl::StatusOr<Tensors> TranslateNll(const NodeView& n) {
  BRAID_RETURN_IF_ERROR(CheckClasses(n));
  BRAID_ASSIGN_OR_RETURN(const LossReduction reduction, LossReductionOf(n));
  return Tensors{
      NllLoss(Transpose(n.in(0), ToEnd(n.rank())), n.in(1),
              {.weights = n.in(2), .ignore_index = IgnoredOf(n), .reduction = reduction})};
}

}  // namespace

void AddLoss(Translators& all) {
  all.Add("SoftmaxCrossEntropyLoss", {2, 3}, TranslateCrossEntropy);
  all.Add("NegativeLogLikelihoodLoss", {2, 3}, TranslateNll);
}

}  // namespace braid::onnx
