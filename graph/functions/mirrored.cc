#include "graph/functions/mirrored.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"

namespace braid {
namespace {

Tensor Failed(const Tensor& x, std::string_view function, std::string_view problem,
              SourceLocation where) {
  return x.graph()->Fail(absl::InvalidArgumentError(absl::StrCat(
      std::string(function), ": ", std::string(problem), " (", where.ToString(), ")")));
}

Tensor ApplyMirroring(const Tensor& x, const char* op, const Mirroring& mirroring,
                      SourceLocation where) {
  Attrs attrs;
  mirroring.Set(attrs);
  return Apply(op, {x}, std::move(attrs), where);
}

// Into the current mirroring.
Tensor LeadIn(const Tensor& x, const char* function, const char* op, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<Mirroring> mirroring = x.graph()->current_mirroring();
  if (!mirroring.has_value()) {
    return Failed(x, function, "it was called outside job.Mirrored, which says over which devices",
                  where);
  }
  return ApplyMirroring(x, op, *mirroring, where);
}

// Of a mirrored value; else the graph has an error.
std::optional<Mirroring> MirroringOf(const Tensor& x, const char* function, SourceLocation where) {
  if (!x.valid()) return std::nullopt;
  const std::optional<Mirroring> mirroring = x.mirroring();
  if (!mirroring.has_value()) {
    Failed(x, function,
           absl::StrCat("x, ", x.type().ToString(),
                        ", is not mirrored: all devices share its value already"),
           where);
  }
  return mirroring;
}

}  // namespace

Tensor Mirror(Tensor x, SourceLocation where) { return LeadIn(x, "Mirror", "mirror", where); }

Tensor MirrorParts(Tensor x, SourceLocation where) {
  return LeadIn(x, "MirrorParts", "mirror_parts", where);
}

Tensor SumMirrored(Tensor x, SourceLocation where) {
  const std::optional<Mirroring> mirroring = MirroringOf(x, "SumMirrored", where);
  if (!mirroring.has_value()) return Tensor(x.graph(), kNone);
  if (x.dtype() == DType::kBool) {
    return Failed(x, "SumMirrored",
                  absl::StrCat("x is ", x.type().ToString(),
                               ", which has no sum; Cast(x, DType::kI32) counts what is true"),
                  where);
  }
  return ApplyMirroring(x, "sum_mirrored", *mirroring, where);
}

Tensor MeanMirrored(Tensor x, SourceLocation where) {
  const std::optional<Mirroring> mirroring = MirroringOf(x, "MeanMirrored", where);
  if (!mirroring.has_value()) return Tensor(x.graph(), kNone);
  if (!IsFloating(x.dtype())) {
    return Failed(x, "MeanMirrored",
                  absl::StrCat("x is ", x.type().ToString(),
                               ", and its mean need not be; Cast(x, DType::kF32) has one"),
                  where);
  }
  const double share = 1.0 / static_cast<double>(mirroring->parts);
  return Scale(ApplyMirroring(x, "sum_mirrored", *mirroring, where), share, where);
}

Tensor JoinParts(Tensor x, SourceLocation where) {
  const std::optional<Mirroring> mirroring = MirroringOf(x, "JoinParts", where);
  if (!mirroring.has_value()) return Tensor(x.graph(), kNone);
  return ApplyMirroring(x, "join_mirrored", *mirroring, where);
}

Tensor Stack(Tensor x, SourceLocation where) {
  if (!MirroringOf(x, "Stack", where).has_value()) return Tensor(x.graph(), kNone);
  return JoinParts(ExpandDims(x, 0, where), where);
}

Tensor FromRank(Tensor x, int64_t rank, SourceLocation where) {
  const std::optional<Mirroring> mirroring = MirroringOf(x, "FromRank", where);
  if (!mirroring.has_value()) return Tensor(x.graph(), kNone);
  if (rank < 0 || rank >= mirroring->parts) {
    return Failed(x, "FromRank",
                  absl::StrCat("rank is ", rank, ", and there are ", mirroring->ToString(),
                               "; they count from 0"),
                  where);
  }
  const Tensor all = Stack(x, where);
  if (!all.valid()) return all;
  return Reshape(SliceAxis(all, 0, {.begin = rank, .end = rank + 1}, where), x.shape(), where);
}

OwnVariable MakeOwnVariable(LogicalGraph& graph, const Mirroring& mirroring, std::string name,
                            const TensorType& type, SourceLocation where) {
  OwnVariable own;
  own.stored = Variable(graph,
                        {.name = std::move(name),
                         .dtype = type.dtype,
                         .shape = {mirroring.parts * type.shape.num_elements()},
                         .trainable = false},
                        where);
  graph.PushMirroring(mirroring);
  own.value = Reshape(MirrorParts(own.stored, where), type.shape, where);
  graph.PopMirroring();
  return own;
}

Tensor StoreOwn(Tensor value, SourceLocation where) {
  return JoinParts(Reshape(value, {value.shape().num_elements()}, where), where);
}

Tensor MirroredInput(LogicalGraph& graph, std::string name, TensorType type, SourceLocation where) {
  const std::optional<Mirroring> mirroring = graph.current_mirroring();
  if (!mirroring.has_value()) {
    return graph.Fail(absl::InvalidArgumentError(
        absl::StrCat("MirroredInput '", name, "': it was called outside job.Mirrored (",
                     where.ToString(), ")")));
  }
  Attrs attrs = {{"dtype", type.dtype}, {"shape", type.shape.dims()}};
  mirroring->Set(attrs);
  return graph.Append1("input", {},
                       {.name = std::move(name), .attrs = std::move(attrs), .location = where});
}

void FetchMirrored(Tensor x, std::string name, SourceLocation where) {
  const std::optional<Mirroring> mirroring = MirroringOf(x, "FetchMirrored", where);
  if (!mirroring.has_value()) return;
  Attrs attrs = {{"name", std::move(name)}};
  mirroring->Set(attrs);
  ApplyAll("fetch", {x}, std::move(attrs), where);
}

}  // namespace braid
