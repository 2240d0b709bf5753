#include <glog/logging.h>

#include <utility>

#include "graph/op_registry.h"
#include "graph/ops/families.h"

namespace braid {
namespace {

OpRegistry MakeBuiltinOps() {
  OpRegistry registry;
  for (auto family : {ElementwiseOps,  CastOps,      MathOps,
                      ActivationOps,   LayoutOps,    ReduceOps,
                      ScanOps,         MatmulOps,    SoftmaxOps,
                      CrossEntropyOps, LossOps,      NormalizationOps,
                      IndexingOps,     GeneratorOps, UpdateOps,
                      ExternalOps,     CompilerOps,  ConvolutionOps,
                      PoolingOps,      BatchNormOps, InterpolateOps,
                      AttentionOps,    RmsNormOps,   RotaryOps,
                      RecurrentOps,    RearrangeOps, ScatterElementsOps,
                      ScatterNdOps,    SortOps,      KeyValueCacheOps,
                      MirroredOps}) {
    for (OpDef& def : family()) {
      const absl::Status status = registry.Register(std::move(def));
      CHECK(status.ok()) << status;
    }
  }
  return registry;
}

}  // namespace

// Checking all definitions takes milliseconds, copying them a tenth of that: every session has a
// copy.
OpRegistry BuiltinOps() {
  static const OpRegistry& ops = *new OpRegistry(MakeBuiltinOps());
  return ops;
}

}  // namespace braid
