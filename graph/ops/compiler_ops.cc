// Ops that no user calls: compiler passes append them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// The sum of x over the micro-batches of a step.
OpDef AccumulateOp() {
  return OpDef("accumulate")
      .Rule("...->...")
      .Linear({0})
      .NoGradient()
      .Sample({.inputs = {SampleMatrix()}, .attrs = {}});
}

// The same elements in another order: the `parts` even parts of `axis` one after another, each
// dense (block_pack), and back (block_unpack).
OpDef BlockOp(std::string name) {
  return OpDef(std::move(name))
      .Rule("[N]->[N]")
      .Check([](const OpContext& ctx) -> absl::Status {
        BRAID_RETURN_IF_ERROR(CheckAxis(ctx.attrs.Int("axis"), ctx.inputs[0].shape.rank()));
        if (ctx.attrs.Int("parts") < 1) {
          return absl::InvalidArgumentError(
              absl::StrCat("parts is ", ctx.attrs.Int("parts"), "; at least 1 is needed"));
        }
        return absl::OkStatus();
      })
      .NoGradient()
      .Sample({.inputs = {SampleMatrix()}, .attrs = {{"axis", int64_t{1}}, {"parts", int64_t{4}}}});
}

// The first operand, once the second is there: what is computed of it is not computed before.
OpDef AfterOp() {
  return OpDef("after")
      .Role(OpRole::kAfter)
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
        return std::vector<TensorType>{ctx.inputs[0]};
      })
      // By hand: the operands have nothing to do with each other, so each layout of one goes with
      // each of the other, two splits at once.
      .Signatures([](const OpContext& ctx, int64_t) {
        const auto layouts = [](const TensorType& type) {
          std::vector<Sbp> all = {sbp::B};
          for (int axis = 0; axis < type.shape.rank(); ++axis) all.push_back(sbp::S(axis));
          all.push_back(sbp::P);
          return all;
        };
        std::vector<SbpSignature> signatures;
        for (const Sbp& value : layouts(ctx.inputs[0])) {
          for (const Sbp& other : layouts(ctx.inputs[1])) {
            signatures.push_back({{value, other}, {value}});
          }
        }
        return signatures;
      })
      .NoGradient()
      .Flops([](const OpContext&) { return 0; })
      .Parts(CopyParts)
      .Inplace(0, 0)
      .Sample({.inputs = {SampleMatrix(), {DType::kF32, Shape{3}}}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> CompilerOps() {
  return {AccumulateOp(), AfterOp(), BlockOp("block_pack"), BlockOp("block_unpack")};
}

}  // namespace braid
