// Into mirrored values, of which each device has its own, and out of them. On the dimensions over
// which they mirror each has one signature, that of Mirrors; on others it copies.
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Without them the sample would not say how many values there are.
Attrs OneValue() {
  Attrs attrs;
  Mirroring{}.Set(attrs);
  return attrs;
}

absl::StatusOr<int64_t> PartsOf(const OpContext& ctx) {
  const std::optional<Mirroring> mirroring = Mirroring::Of(ctx.attrs);
  if (!mirroring.has_value() || mirroring->parts < 1) {
    return absl::InvalidArgumentError(
        "mirrored_dims and mirrored_parts must say over how many devices");
  }
  return mirroring->parts;
}

// The same bytes: all that changes is how they are meant.
OpDef Relabel(std::string name, Sbp from, Sbp to) {
  return OpDef(std::move(name))
      .Rule("...->...")
      .Linear({0})
      .PassesPartialMaxMin()
      .Check([](const OpContext& ctx) { return PartsOf(ctx).status(); })
      .Takes("x")
      .Mirrors(from, to)
      .Flops([](const OpContext&) { return 0; })
      .Parts(CopyParts)
      .Inplace(0, 0)
      .Sample({.inputs = {SampleMatrix()}, .attrs = OneValue(), .check_gradient = false});
}

// Between a tensor and its equal parts along axis 0, a value of each device.
OpDef PartsOp(std::string name, bool leads_in) {
  return OpDef(std::move(name))
      .Infer([leads_in](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        BRAID_ASSIGN_OR_RETURN(const int64_t parts, PartsOf(ctx));
        TensorType type = ctx.inputs[0];
        if (type.shape.rank() == 0 || (leads_in && type.shape[0] % parts != 0)) {
          return absl::InvalidArgumentError(
              absl::StrCat("x is ", type.ToString(), "; axis 0 must be a multiple of the ", parts,
                           " devices that each have a part of it"));
        }
        type.shape[0] = leads_in ? type.shape[0] / parts : type.shape[0] * parts;
        return std::vector<TensorType>{std::move(type)};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        for (int axis = 1; axis < ctx.inputs[0].shape.rank(); ++axis) {
          signatures.push_back({{sbp::S(axis)}, {sbp::S(axis)}});
        }
        for (const Sbp& partial : {sbp::P, sbp::Pmax, sbp::Pmin}) {
          signatures.push_back({{partial}, {partial}});
        }
        return signatures;
      })
      // The part of a device in a micro-batch is one of that micro-batch.
      .MicroBatchSignatures([](const OpContext& ctx) {
        std::vector<SbpSignature> signatures = {{{sbp::B}, {sbp::B}}};
        for (int axis = 0; axis < ctx.inputs[0].shape.rank(); ++axis) {
          signatures.push_back({{sbp::S(axis)}, {sbp::S(axis)}});
        }
        return signatures;
      })
      .Mirrors(leads_in ? sbp::S(0) : sbp::M, leads_in ? sbp::M : sbp::S(0))
      .Flops([](const OpContext&) { return 0; })
      .Parts(CopyParts)
      .Inplace(0, 0)
      .Sample({.inputs = {SampleMatrix()}, .attrs = OneValue(), .check_gradient = false});
}

}  // namespace

std::vector<OpDef> MirroredOps() {
  const auto back = [](const char* op) {
    return [op](const GradientContext& c) {
      Attrs attrs;
      Mirroring::Of(c.op.attrs)->Set(attrs);
      return std::vector<Tensor>{Apply(op, {c.output_gradients[0]}, std::move(attrs))};
    };
  };
  return {Relabel("mirror", sbp::B, sbp::M).Gradient(back("sum_mirrored")),
          Relabel("sum_mirrored", sbp::M, sbp::P).Gradient(back("mirror")),
          PartsOp("mirror_parts", /*leads_in=*/true).Gradient(back("join_mirrored")),
          PartsOp("join_mirrored", /*leads_in=*/false).Gradient(back("mirror_parts"))};
}

}  // namespace braid
