// Ops whose values come from or go to the outside; the runtime knows how.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// "f32[64, 784]".
absl::StatusOr<TensorType> ParseType(std::string_view text) {
  const auto error = [text] {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text), "' is no type; f32[64, 784] would be one"));
  };
  const size_t open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']')) return error();
  const std::optional<DType> dtype = ParseDType(text.substr(0, open));
  if (!dtype) return error();
  const std::string dims(text.substr(open + 1, text.size() - open - 2));
  std::vector<int64_t> shape;
  for (const auto dim : absl::StrSplit(dims, ", ", absl::SkipEmpty())) {
    int64_t size;
    if (!absl::SimpleAtoi(dim, &size) || size < 0) return error();
    shape.push_back(size);
  }
  return TensorType{*dtype, Shape(std::move(shape))};
}

// A value of the type in the attributes, laid out in any way.
OpDef Typed(std::string name) {
  return OpDef(std::move(name))
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 0));
        const std::vector<int64_t>& dims = ctx.attrs.Ints("shape");
        for (int64_t dim : dims) {
          if (dim < 0) {
            return absl::InvalidArgumentError(
                absl::StrCat("shape is ", Shape(dims).ToString(), "; a dim must not be negative"));
          }
        }
        return std::vector<TensorType>{{ctx.attrs.Type("dtype"), Shape(dims)}};
      })
      .Rule("()->N")
      .NoGradient()
      .External();
}

// Overwrites a variable of the type in the attributes, laid out in any way.
OpDef Overwriting(std::string name) {
  return OpDef(std::move(name))
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        const TensorType type{ctx.attrs.Type("dtype"), Shape(ctx.attrs.Ints("shape"))};
        if (ctx.inputs[0] != type) {
          return absl::InvalidArgumentError(absl::StrCat(
              "the variable is ", ctx.inputs[0].ToString(), ", what is read ", type.ToString()));
        }
        return std::vector<TensorType>{};
      })
      .Rule("N->()")
      .Mutates({0})
      .NoGradient()
      .External();
}

// One output per field of a sample; all are split along the batch, or none.
OpDef ReadOp() {
  return OpDef("read")
      .Role(OpRole::kReader)
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 0));
        std::vector<TensorType> types;
        for (const auto text : absl::StrSplit(ctx.attrs.String("types"), "; ", absl::SkipEmpty())) {
          BRAID_ASSIGN_OR_RETURN(TensorType type, ParseType(std::string(text)));
          const int64_t batch = ctx.attrs.Int("batch");
          if (type.shape.rank() == 0 || type.shape[0] != batch) {
            return absl::InvalidArgumentError(absl::StrCat(
                "a field is ", type.ToString(), ", batch is ", batch, "; axis 0 is the batch"));
          }
          types.push_back(std::move(type));
        }
        return types;
      })
      .Rule([](const OpContext& ctx) {
        return FactorRule{.factors = {{.outputs = std::vector<int>(ctx.outputs.size(), 0)}}};
      })
      .NoGradient()
      .External();
}

OpDef FetchOp() {
  return OpDef("fetch").Role(OpRole::kFetch).Rule("[N]->()").NoGradient().External();
}

// Writes what each device holds of a tensor into a checkpoint's file.
OpDef WriteCheckpointOp() {
  return OpDef("write_checkpoint").Rule("N->()").NoGradient().External();
}

// [devices, inputs]: row d has the checksums of what device d holds of each input. All inputs are
// laid out alike; whoever asks knows how, and which rows should be equal.
OpDef ReplicaChecksumsOp() {
  return OpDef("replica_checksums")
      .Infer([](const OpContext& ctx) -> Types {
        return std::vector<TensorType>{
            {DType::kI64,
             Shape({ctx.attrs.Int("devices"), static_cast<int64_t>(ctx.inputs.size())})}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        int rank = ctx.inputs.empty() ? 0 : ctx.inputs[0].shape.rank();
        for (const TensorType& input : ctx.inputs) rank = std::min(rank, input.shape.rank());
        const size_t inputs = ctx.inputs.size();
        std::vector<SbpSignature> signatures = {{std::vector<Sbp>(inputs, sbp::B), {sbp::S(0)}}};
        for (int axis = 0; axis < rank; ++axis) {
          signatures.push_back({std::vector<Sbp>(inputs, sbp::S(axis)), {sbp::S(0)}});
        }
        return signatures;
      })
      .NoBroadcast()
      .Flops([](const OpContext&) { return 0; })
      .NoGradient()
      .External();
}

// Stands for d loss / d x until the autograd pass puts the gradient in its place.
OpDef GradientOfOp() {
  return OpDef("gradient_of")
      .Role(OpRole::kGradientRequest)
      .Rule("...->...")
      .Takes("f")
      .NoGradient()
      .External();
}

// What the gradients of a variable come to that its `mirror` operators would bring: the job reduces
// them itself. The autograd pass takes it in.
OpDef ReducedGradientOp() {
  return OpDef("reduced_gradient")
      .Role(OpRole::kReducedGradient)
      .Rule("[N],[N]->()")
      .NoGradient()
      .External();
}

// Stands for one of its operands until the pass on training has put that in its place.
OpDef IfTrainingOp() {
  return OpDef("if_training")
      .Role(OpRole::kIfTraining)
      .Rule("...,...->...")
      .Takes("xx")
      .NoGradient()
      .External();
}

}  // namespace

std::vector<OpDef> ExternalOps() {
  return {Typed("variable").Role(OpRole::kVariable),
          Typed("input").Role(OpRole::kInput),
          Typed("read_checkpoint").ReadsInto("read_checkpoint_into"),
          Overwriting("read_checkpoint_into"),
          Typed("read_file").ReadsInto("read_file_into"),
          Overwriting("read_file_into"),
          WriteCheckpointOp(),
          ReplicaChecksumsOp(),
          ReadOp(),
          FetchOp(),
          GradientOfOp(),
          ReducedGradientOp(),
          IfTrainingOp()};
}

}  // namespace braid
