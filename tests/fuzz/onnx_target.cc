// Models as users bring them: an ONNX file is read and, if it can be, appended to a job.
#include <braid/onnx.h>

#include <string>
#include <vector>

#include "graph/functional.h"
#include "graph/op_registry.h"
#include "tests/fuzz/input_reader.h"
#include "tests/runtime/temp_dir.h"

namespace braid::fuzz {
namespace {

// Of the input's type, small where it leaves sizes open.
onnx::Argument ArgumentFor(const onnx::ValueInfo& info, LogicalGraph& graph) {
  constexpr int64_t kLargest = 64;
  Shape shape;
  if (info.dims) {
    std::vector<int64_t> dims;
    for (const onnx::Dim& dim : *info.dims) dims.push_back(dim.size.value_or(2));
    int64_t elements = 1;
    for (int64_t dim : dims) {
      if (dim < 0 || dim > kLargest || elements > kLargest) return onnx::Argument(Tensor());
      elements *= dim;
    }
    shape = Shape(dims);
  }
  const TensorType type{info.dtype.value_or(DType::kF32), shape};
  const onnx::Argument argument(Input(graph, info.name, type), Array(type.dtype, type.shape));
  return info.is_sequence ? onnx::Argument::Sequence({argument, argument}) : argument;
}

void Run(Bytes input) {
  const TempDir folder;
  const std::string path = folder / "model.onnx";
  PutFile(path, TextOf(input));
  absl::StatusOr<onnx::Model> model = onnx::Load(path);
  if (!model.ok()) return;
  static const OpRegistry ops = BuiltinOps();
  LogicalGraph graph(&ops);
  std::vector<onnx::Argument> arguments;
  for (const onnx::ValueInfo& info : model->inputs()) arguments.push_back(ArgumentFor(info, graph));
  model->Apply(graph, arguments).IgnoreError();
}

}  // namespace

Target OnnxTarget() { return {.name = "onnx", .run = Run}; }

}  // namespace braid::fuzz
