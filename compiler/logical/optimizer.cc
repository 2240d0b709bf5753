#include "compiler/logical/optimizer.h"

#include <glog/logging.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/logical/adafactor.h"
#include "compiler/logical/loss_scale.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "graph/op_roles.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

// How many workers push to an asynchronous server; 0: there is none.
int64_t WorkersOf(const MinimizeRequest& request) {
  return request.attrs.Has("workers") ? request.attrs.Int("workers") : 0;
}

struct Trained {
  OpId variable;
  Tensor value, gradient;
};

// Runs `append` at the variable's placement, with names under the variable's.
template <typename Append>
auto AtVariable(LogicalGraph& graph, OpId variable, Append append) {
  graph.PushPlacement(graph.op(variable).placement);
  graph.PushScope(graph.op(variable).name);
  auto result = append();
  graph.PopScope();
  graph.PopPlacement();
  return result;
}

// The sum of squares of each gradient, in f32, or f64 if one of them is.
std::vector<Tensor> SquaresOf(LogicalGraph& graph, const std::vector<Trained>& all,
                              const SourceLocation& where) {
  const bool is_wide = std::any_of(all.begin(), all.end(), [](const Trained& trained) {
    return trained.gradient.dtype() == DType::kF64;
  });
  const DType dtype = is_wide ? DType::kF64 : DType::kF32;
  std::vector<Tensor> squares;
  for (const Trained& trained : all) {
    squares.push_back(AtVariable(graph, trained.variable, [&] {
      return ReduceSum(Square(Cast(trained.gradient, dtype, where), where), {}, where);
    }));
  }
  return squares;
}

// The root of their sum.
Tensor NormOf(const std::vector<Tensor>& squares, const SourceLocation& where) {
  Tensor total = squares[0];
  for (size_t i = 1; i < squares.size(); ++i) total = Add(total, squares[i], where);
  return Sqrt(total, where);
}

// Pascanu et al., "On the difficulty of training recurrent neural networks", 2013; constants as in
// torch.nn.utils.clip_grad_norm_.
void ClipGlobalNorm(LogicalGraph& graph, double limit, const SourceLocation& where, Tensor norm,
                    std::vector<Trained>& all) {
  graph.PushScope("clip");
  const Tensor ratio = Scale(Reciprocal(AddScalar(norm, 1e-6, where), where), limit, where);
  const Tensor factor = Minimum(ratio, Constant(graph, 1, {.dtype = norm.dtype()}, where), where);
  graph.PopScope();
  for (Trained& trained : all) {
    trained.gradient = AtVariable(graph, trained.variable, [&] {
      return Mul(trained.gradient, Cast(factor, trained.gradient.dtype(), where), where);
    });
  }
}

absl::Status FetchUnder(LogicalGraph& graph, const std::string& name, Tensor value,
                        const SourceLocation& where) {
  for (const Op& op : graph.ops()) {
    if (!HasRole(graph, op, OpRole::kFetch) || op.attrs.String("name") != name) continue;
    return absl::AlreadyExistsError(absl::StrCat(
        "Minimize fetches a value of its own as '", name, "', and that is fetched at ",
        op.location.ToString(), " already; give it another name (", where.ToString(), ")"));
  }
  Fetch(value, name, where);
  return absl::OkStatus();
}

// `norm`: of all gradients.
absl::Status FetchNorms(LogicalGraph& graph, const MinimizeRequest& request,
                        const std::vector<Trained>& all, const std::vector<Tensor>& squares,
                        Tensor norm) {
  const std::string& name = request.attrs.String("norms");
  BRAID_RETURN_IF_ERROR(FetchUnder(graph, name, norm, request.location));
  for (const VariableGroup& group : request.groups) {
    std::vector<Tensor> own;
    for (size_t i = 0; i < all.size(); ++i) {
      if (request.GroupOf(graph.op(all[i].variable).name) == &group) own.push_back(squares[i]);
    }
    if (own.empty()) continue;
    BRAID_RETURN_IF_ERROR(FetchUnder(graph, absl::StrCat(name, ".", group.names),
                                     NormOf(own, request.location), request.location));
  }
  return absl::OkStatus();
}

// Polyak and Juditsky, SIAM J. Control Optim. 30, 1992; the formula of
// torch.optim.swa_utils.get_ema_multi_avg_fn.
void AppendAverages(LogicalGraph& graph, const MinimizeRequest& request,
                    const std::vector<Trained>& all, Tensor applies) {
  const SourceLocation& where = request.location;
  // Jobs that train other variables begin by themselves.
  const Tensor kept = AtVariable(graph, all[0].variable, [&] {
    const Tensor begun = Variable(graph, {.name = "ema_begun", .trainable = false}, where);
    AssignIfApplies(begun, Constant(graph, 1, {}, where), applies, where);
    return Scale(begun, request.attrs.Double("ema"), where);
  });
  for (const Trained& trained : all) {
    const TensorType type = trained.value.type();
    const DType dtype = SizeOf(type.dtype) < SizeOf(DType::kF32) ? DType::kF32 : type.dtype;
    const std::vector<std::optional<NdSbp>> hints = graph.op(trained.variable).hints;
    AtVariable(graph, trained.variable, [&] {
      const Tensor average = Variable(graph,
                                      {.name = "ema",
                                       .dtype = dtype,
                                       .shape = type.shape,
                                       .trainable = false,
                                       .sbp = hints.empty() ? std::nullopt : hints[0]},
                                      where);
      const Tensor value = Cast(trained.value, dtype, where);
      const Tensor rest = Mul(Sub(average, value, where), Cast(kept, dtype, where), where);
      AssignIfApplies(average, Add(value, rest, where), applies, where);
      return 0;
    });
  }
}

Tensor LearningRate(LogicalGraph& graph, const MinimizeRequest& request, double factor) {
  if (request.learning_rate == kNone) {
    graph.PushScope("learning_rate");
    const Tensor constant =
        Constant(graph, request.attrs.Double("learning_rate") * factor, {}, request.location);
    graph.PopScope();
    return constant;
  }
  Tensor rate(&graph, request.learning_rate);
  const bool is_wide = rate.dtype() == DType::kF32 || rate.dtype() == DType::kF64;
  if (!is_wide) rate = Cast(rate, DType::kF32, request.location);
  return factor == 1 ? rate : Scale(rate, factor, request.location);
}

// Attributes of a request that are not its update's.
constexpr std::string_view kOwn[] = {"ema", "learning_rate", "norms", "staleness", "workers"};

// What an update of the group has, which may be null.
Attrs AttrsOf(const MinimizeRequest& request, const VariableGroup* group) {
  Attrs attrs;
  for (const auto& [name, value] : request.attrs.values()) {
    if (std::find(std::begin(kOwn), std::end(kOwn), name) == std::end(kOwn)) attrs.Set(name, value);
  }
  if (group != nullptr && group->weight_decay.has_value()) {
    attrs.Set("weight_decay", *group->weight_decay);
  }
  return attrs;
}

// `attrs` are the optimizer's; `applies`: bool [], or invalid: always.
void AppendUpdate(LogicalGraph& graph, const MinimizeRequest& request, const Trained& trained,
                  Attrs attrs, const std::vector<Tensor>& scalars, Tensor applies) {
  const OpDef& def = *graph.registry().Find(request.optimizer);
  const TensorType type = trained.value.type();
  const std::vector<std::optional<NdSbp>> hints = graph.op(trained.variable).hints;
  const bool is_narrow = SizeOf(type.dtype) < SizeOf(DType::kF32);
  std::vector<Tensor> inputs = {trained.value, trained.gradient};
  for (const std::string& state : def.update_states()) {
    inputs.push_back(Variable(graph,
                              {.name = state,
                               .dtype = is_narrow ? DType::kF32 : type.dtype,
                               .shape = type.shape,
                               .trainable = false,
                               .sbp = hints.empty() ? std::nullopt : hints[0]},
                              request.location));
  }
  inputs.insert(inputs.end(), scalars.begin(), scalars.end());
  if (def.update_scalar()) {
    inputs.push_back(def.update_scalar()(inputs, attrs, request.location));
  }
  if (applies.valid()) inputs.push_back(applies);
  graph.Append(def.name(), inputs,
               {.name = def.name(), .attrs = std::move(attrs), .location = request.location});
}

// Each of n workers has 1/n of the gradient of the whole batch, which is made that of the mean over
// its own samples.
void MakeGradientsOfWorkers(int64_t workers, const SourceLocation& where,
                            std::vector<Trained>& all) {
  for (Trained& trained : all) {
    trained.gradient = Scale(trained.gradient, static_cast<double>(workers), where);
  }
}

// Workers are counted by the least that they push.
absl::Status FetchStaleness(LogicalGraph& graph, const MinimizeRequest& request,
                            const std::vector<Trained>& all) {
  const auto least = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.gradient.shape().num_elements() < b.gradient.shape().num_elements();
  });
  const std::optional<Placement>& server = graph.op(least->variable).placement;
  if (!server.has_value()) return absl::InternalError("a server without a placement");
  graph.PushPlacement(server->Slice(0, 1));
  const Tensor staleness =
      graph.Append1("staleness", {{least->gradient}},
                    {.name = "staleness",
                     .attrs = {{"workers", WorkersOf(request)},
                               {"max_staleness", request.attrs.Int("max_staleness")}},
                     .location = request.location});
  graph.PopPlacement();
  return FetchUnder(graph, request.attrs.String("staleness"), staleness, request.location);
}

// The number of the last update of the step, where each of n workers' is one.
Tensor StepOfUpdates(LogicalGraph& graph, int64_t workers, Tensor step,
                     const SourceLocation& where) {
  if (workers <= 1) return step;
  const auto constant = [&](int64_t value) {
    return Constant(graph, static_cast<double>(value), {.dtype = step.dtype()}, where);
  };
  return Add(Mul(step, constant(workers), where), constant(workers - 1), where);
}

// Returns whether the step applies: bool [], or invalid: always.
absl::StatusOr<Tensor> AppendUpdates(LogicalGraph& graph, const MinimizeRequest& request) {
  if (request.optimizer.empty()) return Tensor();
  const bool is_adafactor = request.optimizer == "adafactor";
  const OpDef* def = is_adafactor ? nullptr : graph.registry().Find(request.optimizer);
  if (!is_adafactor && (def == nullptr || !def->is_update())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer '", request.optimizer, "' is neither an update operator nor 'adafactor' (",
        request.location.ToString(), ")"));
  }
  std::vector<Trained> all;
  for (OpId variable : request.variables) {
    const TensorId value = graph.op(variable).outputs[0];
    const auto gradient = graph.gradients().find(value);
    CHECK(gradient != graph.gradients().end() && gradient->second != kNone)
        << graph.op(variable).name << " has no gradient: Autograd runs first";
    all.push_back({variable, Tensor(&graph, value), Tensor(&graph, gradient->second)});
  }
  CHECK(!all.empty()) << "a Minimize request without variables: Autograd runs first";
  Tensor applies;
  if (request.loss_scale != kNone && WorkersOf(request) > 0) {
    return absl::UnimplementedError(absl::StrCat(
        "an asynchronous server (max_staleness ", request.attrs.Int("max_staleness"),
        ") does not go with --precision=f16, whose steps may update nothing; use bf16 or f32, or "
        "let max_staleness be 0 (",
        request.location.ToString(), ")"));
  }
  if (request.loss_scale != kNone) {
    std::vector<Tensor> gradients;
    for (const Trained& trained : all) gradients.push_back(trained.gradient);
    applies = AppendLossScaleUpdate(graph, request, gradients);
  }
  const bool wants_norms = request.attrs.Has("norms"), clips = request.clip_global_norm > 0;
  if (wants_norms || clips) {
    const std::vector<Tensor> squares = SquaresOf(graph, all, request.location);
    graph.PushScope("clip");
    const Tensor norm = NormOf(squares, request.location);
    graph.PopScope();
    if (wants_norms) BRAID_RETURN_IF_ERROR(FetchNorms(graph, request, all, squares, norm));
    if (clips) ClipGlobalNorm(graph, request.clip_global_norm, request.location, norm, all);
  }
  const int64_t workers = WorkersOf(request);
  const double share = workers > 0 ? 1.0 / static_cast<double>(workers) : 1;
  if (workers > 1) MakeGradientsOfWorkers(workers, request.location, all);
  if (request.attrs.Has("staleness")) BRAID_RETURN_IF_ERROR(FetchStaleness(graph, request, all));
  std::vector<Tensor> scalars = {LearningRate(graph, request, share)};
  if (is_adafactor || def->update_takes_step()) {
    scalars.push_back(applies.valid() ? AppendAppliedSteps(graph, request, applies)
                                      : StepOfUpdates(graph, workers, Step(graph, request.location),
                                                      request.location));
  }
  // By the groups' factors, each computed once.
  std::map<double, Tensor> rates = {{1.0, scalars[0]}};
  for (const Trained& trained : all) {
    const VariableGroup* const group = request.GroupOf(graph.op(trained.variable).name);
    const double factor = group == nullptr ? 1 : group->rate;
    if (!rates.contains(factor)) {
      rates[factor] = LearningRate(graph, request, factor * share);
    }
    scalars[0] = rates[factor];
    const Attrs attrs = AttrsOf(request, group);
    AtVariable(graph, trained.variable, [&] {
      if (is_adafactor) {
        AppendAdafactor(trained.value, trained.gradient, scalars[0], scalars[1], applies, attrs,
                        request.location);
      } else {
        AppendUpdate(graph, request, trained, attrs, scalars, applies);
      }
      return 0;
    });
  }
  if (request.attrs.Has("ema")) AppendAverages(graph, request, all, applies);
  BRAID_RETURN_IF_ERROR(graph.status());
  return applies;
}

}  // namespace

absl::StatusOr<LogicalGraph> Optimizer(LogicalGraph graph) {
  BRAID_RETURN_IF_ERROR(graph.status());
  const auto end = static_cast<OpId>(graph.ops().size());
  std::vector<Tensor> applies;
  for (size_t i = 0; i < graph.minimize().size(); ++i) {
    const MinimizeRequest request = graph.minimize()[i];
    BRAID_ASSIGN_OR_RETURN(const Tensor one, AppendUpdates(graph, request));
    if (one.valid()) applies.push_back(one);
  }
  GuardAssignments(graph, end, applies);
  BRAID_RETURN_IF_ERROR(graph.status());
  return graph;
}

}  // namespace braid::compiler
