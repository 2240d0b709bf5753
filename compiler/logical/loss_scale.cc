#include "compiler/logical/loss_scale.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

constexpr double kFirst = 65536, kLeast = 1, kMost = 0x1p32;
constexpr double kGrowth = 2, kBackoff = 0.5;
constexpr double kGrowthInterval = 2000;

// Whether no element is infinite or NaN: the sum of magnitudes is so, too, then. Elements that are
// finite, but whose sum is not, are far beyond what can be trained with.
Tensor AreFinite(LogicalGraph& graph, const std::vector<Tensor>& gradients,
                 const SourceLocation& where) {
  Tensor total;
  for (const Tensor& gradient : gradients) {
    graph.PushPlacement(graph.producer(gradient.id()).placement);
    const Tensor sum = Cast(ReduceL1(gradient, {}, where), DType::kF32, where);
    graph.PopPlacement();
    total = total.valid() ? Add(total, sum, where) : sum;
  }
  return LessEqual(total, Constant(graph, std::numeric_limits<float>::max(), {}, where), where);
}

}  // namespace

LogicalGraph AddLossScales(LogicalGraph graph) {
  for (size_t i = 0; i < graph.minimize().size(); ++i) {
    const Tensor scale = Variable(graph,
                                  {.name = i == 0 ? "loss_scale" : absl::StrCat("loss_scale_", i),
                                   .init = "constant",
                                   .value = kFirst,
                                   .trainable = false},
                                  graph.minimize()[i].location);
    if (scale.valid()) graph.minimize()[i].loss_scale = scale.id();
  }
  return graph;
}

Tensor AppendLossScaleUpdate(LogicalGraph& graph, const MinimizeRequest& request,
                             const std::vector<Tensor>& gradients) {
  const SourceLocation& where = request.location;
  const auto number = [&](double value) { return Constant(graph, value, {}, where); };
  const Tensor scale(&graph, request.loss_scale);
  graph.PushScope(graph.producer(request.loss_scale).name);
  const Tensor is_good = AreFinite(graph, gradients, where);
  const Tensor good_steps = Variable(graph, {.name = "good_steps", .trainable = false}, where);
  const Tensor counted = AddScalar(good_steps, 1, where);
  const Tensor grows =
      LogicalAnd(is_good, GreaterEqual(counted, number(kGrowthInterval), where), where);
  // One op a statement: a compiler chooses in which order it makes a call's arguments.
  const Tensor most = number(kMost);
  const Tensor grown = Minimum(Scale(scale, kGrowth, where), most, where);
  const Tensor least = number(kLeast);
  const Tensor backed_off = Maximum(Scale(scale, kBackoff, where), least, where);
  const Tensor kept = Where(is_good, scale, backed_off, where);
  const Tensor counts = LogicalAnd(is_good, LogicalNot(grows, where), where);
  Assign(scale, Where(grows, grown, kept, where), where);
  Assign(good_steps, Where(counts, counted, number(0), where), where);
  graph.PopScope();
  return is_good;
}

Tensor AppendAppliedSteps(LogicalGraph& graph, const MinimizeRequest& request, Tensor applies) {
  const SourceLocation& where = request.location;
  graph.PushScope(graph.producer(request.loss_scale).name);
  // Exact as long as any step is.
  const Tensor steps =
      Variable(graph, {.name = "applied_steps", .dtype = DType::kF64, .trainable = false}, where);
  const Tensor counted = AddScalar(steps, 1, where);
  Assign(steps, Where(applies, counted, steps, where), where);
  graph.PopScope();
  return Cast(steps, DType::kI64, where);
}

void AssignIfApplies(Tensor variable, Tensor value, Tensor applies, const SourceLocation& where) {
  if (!variable.valid()) return;
  std::vector<Tensor> operands = {variable, value};
  if (applies.valid()) operands.push_back(applies);
  variable.graph()->Append("assign", operands, {.location = where});
}

void GuardAssignments(LogicalGraph& graph, OpId end, const std::vector<Tensor>& applies) {
  if (applies.empty()) return;
  Tensor all = applies[0];
  for (size_t i = 1; i < applies.size(); ++i) {
    all = LogicalAnd(all, applies[i], graph.producer(applies[i].id()).location);
  }
  for (OpId id = 0; id < end; ++id) {
    const OpDef& def = DefOf(graph, graph.op(id));
    const Op op = graph.op(id);
    // Overwrites the whole of its first input with its second.
    const bool assigns = !def.is_update() && def.mutates() == std::vector<int>{0} &&
                         op.inputs.size() == 2 &&
                         graph.type(op.inputs[0]) == graph.type(op.inputs[1]);
    if (!assigns) continue;
    graph.PushPlacement(op.placement);
    graph.PushScope(op.name);
    const Tensor kept =
        Where(all, Tensor(&graph, op.inputs[1]), Tensor(&graph, op.inputs[0]), op.location);
    graph.PopScope();
    graph.PopPlacement();
    if (kept.valid()) graph.mutable_op(id).inputs[1] = kept.id();
  }
  graph.SortTopologically();
}

}  // namespace braid::compiler
