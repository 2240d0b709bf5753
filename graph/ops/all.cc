#include <glog/logging.h>

#include <utility>

#include "graph/op_registry.h"
#include "graph/ops/families.h"

namespace braid {

OpRegistry BuiltinOps() {
  OpRegistry registry;
  for (auto family :
       {ElementwiseOps, LayoutOps, ReduceOps, MatmulOps, SoftmaxOps, CrossEntropyOps,
        NormalizationOps, IndexingOps, GeneratorOps, UpdateOps, ExternalOps, CompilerOps}) {
    for (OpDef& def : family()) {
      const absl::Status status = registry.Register(std::move(def));
      CHECK(status.ok()) << status;
    }
  }
  return registry;
}

}  // namespace braid
