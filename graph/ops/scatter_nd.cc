// The same of slices (gather_nd, scatter_nd), where the last axis of the indices is a position on
// several axes of the table.
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/scatter_reduction.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;
using Ints = std::vector<int64_t>;
constexpr int kNone = Factor::kAbsent;

// table [batch.., indexed.., slice..] and indices [batch.., lead.., indexed axes].
struct NdAxes {
  int batch = 0, lead = 0, indexed = 0;
  int leading() const { return batch + lead; }   // axes before the slice of what is read
  int slice() const { return batch + indexed; }  // the first axis of the slice in the table
  int ToRead(int axis) const { return axis - slice() + leading(); }
};

absl::StatusOr<NdAxes> NdAxesOf(const Shape& table, const Shape& indices, int64_t batch_dims) {
  const int rank = indices.rank();
  const auto wrong = [&](std::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the table is ", table.ToString(), ", the indices are ", indices.ToString(),
                     ", batch_dims is ", batch_dims, "; ", std::string(why)));
  };
  if (rank == 0) return wrong("the indices need an axis");
  if (batch_dims < 0 || batch_dims >= rank || batch_dims > table.rank()) {
    return wrong("batch_dims must be less than the ranks");
  }
  const int64_t indexed = indices[rank - 1];
  if (indexed < 1 || indexed > table.rank() - batch_dims) {
    return wrong("the last dim of the indices must be a number of axes of the table");
  }
  for (int i = 0; i < batch_dims; ++i) {
    if (table[i] != indices[i]) return wrong("the first batch_dims dims must be equal");
  }
  const int batch = static_cast<int>(batch_dims);
  return NdAxes{.batch = batch, .lead = rank - 1 - batch, .indexed = static_cast<int>(indexed)};
}

// After Infer.
NdAxes KnownNdAxes(const Shape& table, const Shape& indices, const Attrs& attrs) {
  return *NdAxesOf(table, indices, attrs.Int("batch_dims"));
}

Shape ReadShape(const Shape& table, const Shape& indices, const NdAxes& axes) {
  Ints dims(indices.begin(), indices.end() - 1);
  dims.insert(dims.end(), table.begin() + axes.slice(), table.end());
  return Shape(std::move(dims));
}

// On how many axes of the table an index is a position.
int64_t IndexedAxes(const TensorType& indices) { return indices.shape[indices.shape.rank() - 1]; }

Places NdPlaces(const Context& c, Tensor indices, const Shape& table_shape) {
  const int64_t batch_dims = c.op.attrs.Int("batch_dims");
  const NdAxes axes = KnownNdAxes(table_shape, indices.shape(), c.op.attrs);
  Places at;
  at.read = [=](Tensor table) { return GatherNd(table, indices, batch_dims); };
  at.sum = [=](Tensor updates, Shape table) {
    return Apply("gather_nd_grad", {indices, updates},
                 {{"batch_dims", batch_dims}, {"shape", table.dims()}});
  };
  at.join = [=](Tensor table, Tensor updates, std::string reduction) {
    return Apply("scatter_nd", {table, indices, updates},
                 {{"batch_dims", batch_dims}, {"reduction", std::move(reduction)}});
  };
  at.last_ones = [=, &c, read = at.read, join = at.join] {
    const Shape slots(Ints(table_shape.begin(), table_shape.begin() + axes.slice()));
    const Shape lead = Leading(indices.shape(), 1);
    const Tensor number = Reshape(Numbered(c, {lead.num_elements()}, 0), lead);
    const Tensor is_last =
        Equal(read(join(Unset(c, number.dtype(), slots), number, "none")), number);
    Ints thin = lead.dims();
    thin.resize(thin.size() + table_shape.rank() - axes.slice(), 1);
    return Reshape(is_last, Shape(std::move(thin)));
  };
  return at;
}

OpDef GatherNdOp() {
  return OpDef("gather_nd")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
        BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 1));
        const Shape &table = ctx.inputs[0].shape, &indices = ctx.inputs[1].shape;
        BRAID_ASSIGN_OR_RETURN(const NdAxes axes,
                               NdAxesOf(table, indices, ctx.attrs.Int("batch_dims")));
        return std::vector<TensorType>{{ctx.inputs[0].dtype, ReadShape(table, indices, axes)}};
      })
      .Rule([](const OpContext& ctx) {
        return absl::StrCat("B{batch_dims}N{", IndexedAxes(ctx.inputs[1]), "}S,BL_->BLS; BLNS");
      })
      .Linear({0})
      .Gradient([](const Context& c) {
        const Shape table = c.inputs[0].shape();
        const Places at = NdPlaces(c, c.inputs[1], table);
        return Gradients{at.sum(c.output_gradients[0], table), Tensor()};
      })
      .Sample({.inputs = {{DType::kF32, {5, 6, 3}}, {DType::kI32, {4, 2}}},
               .attrs = {{"batch_dims", int64_t{0}}},
               .int_high = 5})
      .Sample({.inputs = {{DType::kF32, {3, 6, 2}}, {DType::kI64, {3, 5, 1}}},
               .attrs = {{"batch_dims", int64_t{1}}},
               .int_high = 6});
}

OpDef GatherNdGradientOp() {
  return OpDef("gather_nd_grad")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
        BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 0));
        const Shape table(ctx.attrs.Ints("shape"));
        BRAID_RETURN_IF_ERROR(CheckDims(table.dims()));
        const Shape& indices = ctx.inputs[0].shape;
        BRAID_ASSIGN_OR_RETURN(const NdAxes axes,
                               NdAxesOf(table, indices, ctx.attrs.Int("batch_dims")));
        const Shape read = ReadShape(table, indices, axes);
        if (ctx.inputs[1].shape != read) {
          return absl::InvalidArgumentError(absl::StrCat("b is ", ctx.inputs[1].ToString(),
                                                         ", the indices read ", read.ToString(),
                                                         "; these must be equal"));
        }
        return std::vector<TensorType>{{ctx.inputs[1].dtype, table}};
      })
      .Rule([](const OpContext& ctx) {
        return absl::StrCat("BL_,BLS->B{batch_dims}N{", IndexedAxes(ctx.inputs[0]), "}S; BLNS");
      })
      .Linear({1})
      .Gradient([](const Context& c) {
        return Gradients{
            Tensor(), GatherNd(c.output_gradients[0], c.inputs[0], c.op.attrs.Int("batch_dims"))};
      })
      .Flops([](const OpContext& ctx) {
        return static_cast<double>(ctx.inputs[1].shape.num_elements());
      })
      .Sample({.inputs = {{DType::kI32, {7, 2}}, {DType::kF32, {7, 3}}},
               .attrs = {{"batch_dims", int64_t{0}}, {"shape", Ints{5, 6, 3}}},
               .int_high = 5})
      .Sample({.inputs = {{DType::kI64, {3, 5, 1}}, {DType::kF32, {3, 5, 2}}},
               .attrs = {{"batch_dims", int64_t{1}}, {"shape", Ints{3, 6, 2}}},
               .int_high = 6});
}

OpDef ScatterNdOp() {
  OpDef def("scatter_nd");
  def.Infer([](const OpContext& ctx) -> Types {
       BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 3));
       BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 1));
       BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, 2));
       BRAID_RETURN_IF_ERROR(CheckReduction(ctx));
       const Shape &table = ctx.inputs[0].shape, &indices = ctx.inputs[1].shape;
       BRAID_ASSIGN_OR_RETURN(const NdAxes axes,
                              NdAxesOf(table, indices, ctx.attrs.Int("batch_dims")));
       const Shape read = ReadShape(table, indices, axes);
       if (ctx.inputs[2].shape != read) {
         return absl::InvalidArgumentError(absl::StrCat("c is ", ctx.inputs[2].ToString(),
                                                        ", the indices name ", read.ToString(),
                                                        "; these must be equal"));
       }
       return std::vector<TensorType>{ctx.inputs[0]};
     })
      .Rule([](const OpContext& ctx) {
        FactorRule rule;
        const Shape& table = ctx.inputs[0].shape;
        const NdAxes axes = KnownNdAxes(table, ctx.inputs[1].shape, ctx.attrs);
        for (int i = 0; i < axes.leading(); ++i) {
          if (i < axes.batch) {
            rule.factors.push_back({.inputs = {i, i, i}, .outputs = {i}});
          } else {
            AppendSplitUpdates(ctx, i, rule);
          }
        }
        for (int i = axes.batch; i < table.rank(); ++i) {
          const int in_updates = i < axes.slice() ? kNone : axes.ToRead(i);
          rule.factors.push_back({.inputs = {i, kNone, in_updates}, .outputs = {i}});
        }
        AppendPartials(ctx, rule);
        return rule;
      })
      .Inplace(0, 0)
      .Gradient([](const Context& c) {
        return ScatterGradient(c, NdPlaces(c, c.inputs[1], c.inputs[0].shape()));
      });
  for (const char* reduction : {"none", "mul", "max", "min"}) {
    def.Sample({.inputs = {{DType::kF32, {5, 4, 3}}, {DType::kI32, {6, 2}}, {DType::kF32, {6, 3}}},
                .attrs = {{"batch_dims", int64_t{0}}, {"reduction", reduction}},
                .int_high = 3});
  }
  return def.Sample(
      {.inputs = {{DType::kF32, {3, 6, 2}}, {DType::kI64, {3, 5, 1}}, {DType::kF32, {3, 5, 2}}},
       .attrs = {{"batch_dims", int64_t{1}}, {"reduction", "none"}}});
}

}  // namespace

std::vector<OpDef> ScatterNdOps() { return {GatherNdOp(), GatherNdGradientOp(), ScatterNdOp()}; }

}  // namespace braid
