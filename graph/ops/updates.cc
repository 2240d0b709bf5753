// Ops that overwrite variables: optimizers' updates and assign.
#include <utility>

#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

TensorType Matrix() { return {DType::kF32, {5, 6}}; }
TensorType Scalar(DType dtype = DType::kF32) { return {dtype, {}}; }

// (variable, gradient, states..., learning rate[, step]). Variable, gradient and states are split
// alike; the scalars are whole.
OpDef UpdateOp(std::string name, std::vector<std::string> states, bool takes_step, Attrs attrs) {
  const int num_states = static_cast<int>(states.size());
  std::vector<int> mutated = {0};
  for (int i = 0; i < num_states; ++i) mutated.push_back(2 + i);
  std::vector<TensorType> inputs(2 + num_states, Matrix());
  inputs.push_back(Scalar());
  if (takes_step) inputs.push_back(Scalar(DType::kI64));
  return OpDef(std::move(name))
      .Infer([num_states, takes_step](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 3 + num_states + (takes_step ? 1 : 0)));
        RETURN_IF_ERROR(CheckFloating(ctx, 0));
        for (int i = 1; i < 2 + num_states; ++i) RETURN_IF_ERROR(CheckSameType(ctx, 0, i));
        RETURN_IF_ERROR(CheckFloating(ctx, 2 + num_states));
        RETURN_IF_ERROR(CheckShape(ctx, 2 + num_states, {}));
        if (takes_step) {
          RETURN_IF_ERROR(CheckInteger(ctx, 3 + num_states));
          RETURN_IF_ERROR(CheckShape(ctx, 3 + num_states, {}));
        }
        return std::vector<TensorType>{};
      })
      .Signatures([num_states](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        for (int axis = 0; axis < ctx.inputs[0].shape.rank(); ++axis) {
          SbpSignature signature;
          signature.inputs.assign(ctx.inputs.size(), sbp::B);
          for (int i = 0; i < 2 + num_states; ++i) signature.inputs[i] = sbp::S(axis);
          signatures.push_back(std::move(signature));
        }
        return signatures;
      })
      .Flops([num_states](const OpContext& ctx) {
        return (2.0 + 4.0 * num_states) * ctx.inputs[0].shape.num_elements();
      })
      .Mutates(std::move(mutated))
      .Update(std::move(states), takes_step)
      .NoGradient()
      // Positive, because the states of some are sums of squares.
      .Sample({.inputs = std::move(inputs), .attrs = std::move(attrs), .low = 0.1, .high = 1});
}

OpDef AssignOp() {
  return OpDef("assign")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 2));
        RETURN_IF_ERROR(CheckSameType(ctx, 0, 1));
        return std::vector<TensorType>{};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        return LeadingSignatures(ctx, ctx.inputs[0].shape.rank());
      })
      .Mutates({0})
      .NoGradient()
      .Sample({.inputs = {Matrix(), Matrix()}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> UpdateOps() {
  return {UpdateOp("sgd_update", {}, /*takes_step=*/false, {{"weight_decay", 0.01}}),
          UpdateOp("momentum_update", {"momentum"}, /*takes_step=*/false,
                   {{"momentum", 0.9}, {"nesterov", false}, {"weight_decay", 0.01}})
              .Sample({.inputs = {Matrix(), Matrix(), Matrix(), Scalar()},
                       .attrs = {{"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.0}}}),
          UpdateOp("adam_update", {"adam_m", "adam_v"}, /*takes_step=*/true,
                   {{"beta1", 0.9},
                    {"beta2", 0.999},
                    {"epsilon", 1e-8},
                    {"weight_decay", 0.01},
                    {"decoupled", false}})
              .Sample({.inputs = {Matrix(), Matrix(), Matrix(), Matrix(), Scalar(),
                                  Scalar(DType::kI64)},
                       .attrs = {{"beta1", 0.9},
                                 {"beta2", 0.999},
                                 {"epsilon", 1e-8},
                                 {"weight_decay", 0.01},
                                 {"decoupled", true}},
                       .low = 0.1,
                       .high = 1}),
          AssignOp()};
}

}  // namespace braid
