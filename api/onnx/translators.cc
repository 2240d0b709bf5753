#include "api/onnx/translators.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {

Translators AllTranslators() {
  Translators all;
  AddConstant(all);
  AddControl(all);
  AddSequence(all);
  AddSignal(all);
  AddRandom(all);
  AddMath(all);
  AddDeterminant(all);
  AddReduce(all);
  AddLayout(all);
  AddIndex(all);
  AddSelect(all);
  AddNgrams(all);
  AddConv(all);
  AddUnpool(all);
  AddGrid(all);
  AddRegions(all);
  AddChannelNorm(all);
  AddResize(all);
  AddNorm(all);
  AddRnn(all);
  AddAttention(all);
  AddLinearAttention(all);
  AddMicrosoft(all);
  AddMicrosoftAttention(all);
  AddLoss(all);
  AddActivations(all);
  AddQuantize(all);
  AddTraining(all);
  AddMlFeatures(all);
  AddMlLinear(all);
  AddMlSvm(all);
  AddMlTrees(all);
  AddMicrosoftQuantize(all);
  return all;
}

TranslateFunction Unary(Tensor (*f)(Tensor, SourceLocation)) {
  return [f](const NodeView& n) { return Tensors{f(n.in(0), Here())}; };
}

TranslateFunction Binary(std::function<Tensor(Tensor, Tensor, SourceLocation)> f) {
  return [f = std::move(f)](const NodeView& n) -> absl::StatusOr<Tensors> {
    // Before version 7 the second operand's axes stood at `axis` of the first one's.
    if (n.opset() >= 7 || !n.Flag("broadcast") || !n.Has("axis")) {
      return Tensors{f(n.in(0), n.in(1), Here())};
    }
    BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0));
    Ints dims = n.shape(1).dims();
    if (axis + n.rank(1) > n.rank()) {
      return Wrong(absl::StrCat("operands have ", n.rank(), " and ", n.rank(1), " axes, from axis ",
                                axis, " on"));
    }
    dims.resize(n.rank() - axis, 1);
    return Tensors{f(n.in(0), Reshape(n.in(1), Shape(dims)), Here())};
  };
}

TranslateFunction Folded(Tensor (*f)(Tensor, Tensor, SourceLocation)) {
  return [f](const NodeView& n) {
    Tensor result = n.in(0);
    for (int i = 1; i < n.num_inputs(); ++i) result = f(result, n.in(i), Here());
    return Tensors{result};
  };
}

}  // namespace braid::onnx
