// Ops that overwrite variables: optimizers' updates and assign. Each may have one input more at the
// end, bool []: where it is false, nothing is overwritten.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

TensorType Scalar(DType dtype = DType::kF32) { return {dtype, {}}; }

struct Update {
  std::string name;
  std::vector<std::string> states = {};
  bool takes_step = false;
  Attrs attrs = {};                // of the sample
  OpDef::UpdateScalar ratio = {};  // may be empty
};

// The variable, its gradient and its states: of one type, but the states of a narrow variable may
// be f32, which the sums in them need.
absl::Status CheckOperands(const OpContext& ctx, int num_states) {
  BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
  BRAID_RETURN_IF_ERROR(CheckSameType(ctx, 0, 1));
  for (int i = 2; i < 2 + num_states; ++i) {
    const bool is_wide_state =
        ctx.inputs[i].dtype == DType::kF32 && SizeOf(ctx.inputs[0].dtype) < SizeOf(DType::kF32);
    if (!is_wide_state) BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, i));
    BRAID_RETURN_IF_ERROR(CheckShape(ctx, i, ctx.inputs[0].shape));
  }
  return absl::OkStatus();
}

// The inputs are `count`, or one more, which says whether the update applies.
absl::Status CheckInputsOfUpdate(const OpContext& ctx, int count) {
  if (static_cast<int>(ctx.inputs.size()) != count + 1) return CheckInputs(ctx, count);
  if (ctx.inputs[count] == Scalar(DType::kBool)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input ", count, ", whether the update applies, is ",
                   ctx.inputs[count].ToString(), "; bool[] was expected"));
}

OpSample Conditional(OpSample sample) {
  sample.inputs.push_back(Scalar(DType::kBool));
  return sample;
}

// The variable, its gradient and `states` are split alike; all else are scalars.
std::string TogetherRule(int states) {
  std::string text = "N,N";
  for (int i = 0; i < states; ++i) text += ",N";
  return text + ",*->()";
}

// (variable, gradient, states..., learning rate[, step][, ratio][, applies]).
OpDef UpdateOp(const Update& update) {
  const int num_states = static_cast<int>(update.states.size());
  const bool takes_step = update.takes_step, takes_ratio = static_cast<bool>(update.ratio);
  std::vector<int> mutated = {0};
  for (int i = 0; i < num_states; ++i) mutated.push_back(2 + i);
  std::vector<TensorType> inputs(2 + num_states, SampleMatrix());
  inputs.push_back(Scalar());
  if (takes_step) inputs.push_back(Scalar(DType::kI64));
  if (takes_ratio) inputs.push_back(Scalar());
  // Positive, because the states of some are sums of squares.
  const OpSample sample = {
      .inputs = std::move(inputs), .attrs = update.attrs, .low = 0.1, .high = 1};
  return OpDef(update.name)
      .Infer([num_states, takes_step, takes_ratio](const OpContext& ctx) -> Types {
        const int scalars = 1 + (takes_step ? 1 : 0) + (takes_ratio ? 1 : 0);
        BRAID_RETURN_IF_ERROR(CheckInputsOfUpdate(ctx, 2 + num_states + scalars));
        BRAID_RETURN_IF_ERROR(CheckOperands(ctx, num_states));
        for (int i = 2 + num_states; i < 2 + num_states + scalars; ++i) {
          BRAID_RETURN_IF_ERROR(CheckShape(ctx, i, {}));
          const bool is_step = takes_step && i == 3 + num_states;
          BRAID_RETURN_IF_ERROR(is_step ? CheckInteger(ctx, i) : CheckFloating(ctx, i));
        }
        return std::vector<TensorType>{};
      })
      .Rule(TogetherRule(num_states))
      .Flops([num_states](const OpContext& ctx) {
        return (2.0 + 4.0 * num_states) * ctx.inputs[0].shape.num_elements();
      })
      .Mutates(std::move(mutated))
      .Update(update.states, takes_step)
      .TakesScalar(update.ratio)
      .NoGradient()
      .Sample(sample)
      .Sample(Conditional(sample));
}

// (variable, indices of rows, what their gradients are the sums of, states..., learning rate[,
// step]
// [, applies]): as the update of that name, of these rows; the gradient of all others is 0.
OpDef RowUpdateOp(const Update& update) {
  const int num_states = static_cast<int>(update.states.size());
  const bool takes_step = update.takes_step;
  std::vector<int> mutated = {0};
  std::vector<TensorType> inputs = {
      {DType::kF32, {7, 3}}, {DType::kI32, {5}}, {DType::kF32, {5, 3}}};
  std::string rule = "vB,I,IB";
  for (int i = 0; i < num_states; ++i) {
    mutated.push_back(3 + i);
    inputs.push_back(inputs[0]);
    rule += ",vB";
  }
  inputs.push_back(Scalar());
  if (takes_step) inputs.push_back(Scalar(DType::kI64));
  const OpSample sample = {
      .inputs = std::move(inputs), .attrs = update.attrs, .low = 0.1, .high = 1, .int_high = 7};
  return OpDef(update.name)
      .Infer([num_states, takes_step](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputsOfUpdate(ctx, 4 + num_states + (takes_step ? 1 : 0)));
        BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
        BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 1));
        BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, 2));
        std::vector<int64_t> rows = ctx.inputs[1].shape.dims();
        const std::vector<int64_t>& table = ctx.inputs[0].shape.dims();
        if (table.empty()) return absl::InvalidArgumentError("a scalar has no rows");
        rows.insert(rows.end(), table.begin() + 1, table.end());
        BRAID_RETURN_IF_ERROR(CheckShape(ctx, 2, Shape(rows)));
        for (int i = 3; i < 3 + num_states; ++i) BRAID_RETURN_IF_ERROR(CheckSameType(ctx, 0, i));
        BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 3 + num_states));
        if (takes_step) BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 4 + num_states));
        return std::vector<TensorType>{};
      })
      .Rule(rule + ",*->(); vB")
      .Flops([num_states](const OpContext& ctx) {
        return (3.0 + 4.0 * num_states) * ctx.inputs[2].shape.num_elements();
      })
      .Mutates(std::move(mutated))
      .NoGradient()
      .Sample(sample)
      .Sample(Conditional(sample));
}

// Of updates in which a gradient of 0 changes nothing but by decay.
bool HasNoDecay(const Attrs& attrs) { return attrs.Double("weight_decay") == 0; }
// Of those in which it changes nothing at all.
bool IsLazy(const Attrs& attrs) { return attrs.Has("lazy") && attrs.Bool("lazy"); }

OpDef Varied(OpDef def, const Attrs& attrs) {
  OpSample sample = def.samples()[0];
  for (const auto& [name, value] : attrs.values()) sample.attrs.Set(name, value);
  return def.Sample(std::move(sample));
}

Tensor Norm(Tensor x, SourceLocation where) {
  const bool is_narrow = SizeOf(x.dtype()) < SizeOf(DType::kF32);
  return ReduceL2(is_narrow ? Cast(x, DType::kF32, where) : x, {}, where);
}

// a / b, or 1 where either is 0.
Tensor Ratio(Tensor a, Tensor b, SourceLocation where) {
  const Tensor zero = Constant(*a.graph(), 0, {.dtype = a.dtype()}, where);
  const Tensor one = Constant(*a.graph(), 1, {.dtype = a.dtype()}, where);
  const Tensor is_ratio = LogicalAnd(Greater(a, zero, where), Greater(b, zero, where), where);
  return Where(is_ratio, Div(a, Where(is_ratio, b, one, where), where), one, where);
}

// You et al., arXiv 1708.03888: trust |w| / (|g| + weight_decay |w| + epsilon).
Tensor LarsRatio(const std::vector<Tensor>& inputs, const Attrs& attrs, SourceLocation where) {
  const Tensor weight = Norm(inputs[0], where), gradient = Norm(inputs[1], where);
  const Tensor decayed = Scale(weight, attrs.Double("weight_decay"), where);
  const Tensor whole = AddScalar(Add(gradient, decayed, where), attrs.Double("epsilon"), where);
  const Tensor trusted = Scale(weight, attrs.Double("trust"), where);
  // A gradient of 0 has no direction; where nothing is divided the rate stays as it is.
  const Tensor zero = Constant(*weight.graph(), 0, {.dtype = weight.dtype()}, where);
  return Ratio(trusted, Where(Greater(gradient, zero, where), whole, zero, where), where);
}

// You et al., arXiv 1904.00962: |w| / |direction|.
Tensor LambRatio(const std::vector<Tensor>& inputs, const Attrs& attrs, SourceLocation where) {
  const Tensor weight = Norm(inputs[0], where);
  const Tensor square =
      Apply("lamb_square", {inputs[0], inputs[1], inputs[2], inputs[3], inputs[5]}, attrs, where);
  return Ratio(weight, Sqrt(square, where), where);
}

// (variable, gradient, m, v, step): the sum of squares of the direction that lamb_update goes, f32
// of narrow variables.
OpDef LambSquareOp(const Attrs& attrs) {
  return OpDef("lamb_square")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 5));
        BRAID_RETURN_IF_ERROR(CheckOperands(ctx, 2));
        BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 4));
        BRAID_RETURN_IF_ERROR(CheckShape(ctx, 4, {}));
        const bool is_wide = ctx.inputs[0].dtype == DType::kF64;
        return std::vector<TensorType>{Scalar(is_wide ? DType::kF64 : DType::kF32)};
      })
      .Rule("N,N,N,N,->")
      .Flops([](const OpContext& ctx) { return 12.0 * ctx.inputs[0].shape.num_elements(); })
      .NoGradient()
      .Sample({.inputs = {SampleMatrix(), SampleMatrix(), SampleMatrix(), SampleMatrix(),
                          Scalar(DType::kI64)},
               .attrs = attrs,
               .low = 0.1,
               .high = 1});
}

OpDef RmspropOp(bool centered, bool has_velocity) {
  std::vector<std::string> states = {"rmsprop_square"};
  if (centered) states.push_back("rmsprop_mean");
  if (has_velocity) states.push_back("rmsprop_velocity");
  Attrs attrs = {{"alpha", 0.9}, {"epsilon", 1e-3}, {"weight_decay", 0.01}};
  if (has_velocity) attrs.Set("momentum", 0.9);
  return UpdateOp({.name = absl::StrCat("rmsprop", centered ? "_centered" : "",
                                        has_velocity ? "_momentum" : "", "_update"),
                   .states = std::move(states),
                   .attrs = std::move(attrs)});
}

// Of what workers push to an asynchronous server: how many steps the one that is furthest ahead in
// a round of updates is ahead of the slowest.
OpDef StalenessOp() {
  return OpDef("staleness")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        if (const int64_t workers = ctx.attrs.Int("workers"); workers < 1) {
          return absl::InvalidArgumentError(
              absl::StrCat("workers is ", workers, "; at least 1 was expected"));
        }
        return std::vector<TensorType>{Scalar(DType::kI64)};
      })
      .Signatures([](const OpContext&, int64_t) { return std::vector<SbpSignature>{}; })
      .Flops([](const OpContext&) { return 0; })
      .NoGradient()
      .Sample({.inputs = {SampleMatrix()}, .attrs = {{"workers", int64_t{3}}}});
}

OpDef AssignOp() {
  const OpSample sample = {.inputs = {SampleMatrix(), SampleMatrix()}, .attrs = {}};
  return OpDef("assign")
      .Role(OpRole::kAssign)
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputsOfUpdate(ctx, 2));
        BRAID_RETURN_IF_ERROR(CheckSameType(ctx, 0, 1));
        return std::vector<TensorType>{};
      })
      .Rule(TogetherRule(0))
      .Mutates({0})
      .NoGradient()
      .Sample(sample)
      .Sample(Conditional(sample));
}

}  // namespace

std::vector<OpDef> UpdateOps() {
  const Attrs adam = {{"beta1", 0.9},
                      {"beta2", 0.999},
                      {"decoupled", false},
                      {"epsilon", 1e-8},
                      {"weight_decay", 0.01}};
  Attrs lazy_adam = adam;
  lazy_adam.Set("lazy", true);
  const Attrs lamb = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-6}, {"weight_decay", 0.01}};
  return {
      UpdateOp({.name = "sgd_update", .attrs = {{"weight_decay", 0.01}}})
          .RowForm("sgd_rows_update", HasNoDecay),
      RowUpdateOp({.name = "sgd_rows_update", .attrs = {{"weight_decay", 0.0}}}),
      Varied(UpdateOp({.name = "momentum_update",
                       .states = {"momentum"},
                       .attrs = {{"momentum", 0.9}, {"nesterov", false}, {"weight_decay", 0.01}}}),
             {{"nesterov", true}, {"weight_decay", 0.0}}),
      Varied(Varied(UpdateOp({.name = "adam_update",
                              .states = {"adam_m", "adam_v"},
                              .takes_step = true,
                              .attrs = adam}),
                    {{"decoupled", true}}),
             {{"lazy", true}})
          .RowForm("adam_rows_update", IsLazy),
      Varied(RowUpdateOp({.name = "adam_rows_update",
                          .states = {"adam_m", "adam_v"},
                          .takes_step = true,
                          .attrs = lazy_adam}),
             {{"decoupled", true}}),
      RmspropOp(/*centered=*/false, /*has_velocity=*/false),
      RmspropOp(/*centered=*/false, /*has_velocity=*/true),
      RmspropOp(/*centered=*/true, /*has_velocity=*/false),
      RmspropOp(/*centered=*/true, /*has_velocity=*/true),
      UpdateOp({.name = "adagrad_update",
                .states = {"adagrad_sum"},
                .takes_step = true,
                .attrs = {{"epsilon", 1e-10},
                          {"initial", 0.1},
                          {"lr_decay", 0.01},
                          {"weight_decay", 0.01}}})
          .RowForm("adagrad_rows_update", HasNoDecay),
      RowUpdateOp({.name = "adagrad_rows_update",
                   .states = {"adagrad_sum"},
                   .takes_step = true,
                   .attrs = {{"epsilon", 1e-10},
                             {"initial", 0.1},
                             {"lr_decay", 0.01},
                             {"weight_decay", 0.0}}}),
      UpdateOp(
          {.name = "lars_update",
           .states = {"lars_velocity"},
           .attrs = {{"epsilon", 1e-8}, {"momentum", 0.9}, {"trust", 1e-3}, {"weight_decay", 0.01}},
           .ratio = LarsRatio}),
      UpdateOp({.name = "lamb_update",
                .states = {"lamb_m", "lamb_v"},
                .takes_step = true,
                .attrs = lamb,
                .ratio = LambRatio}),
      LambSquareOp(lamb),
      StalenessOp(),
      AssignOp(),
  };
}

}  // namespace braid
