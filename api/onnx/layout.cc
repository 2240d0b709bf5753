// Shapes, joining, cutting, padding.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

absl::StatusOr<Tensors> TranslateTranspose(const NodeView& n) {
  Ints reversed(n.rank());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return Tensors{Transpose(n.in(0), n.List("perm").value_or(reversed))};
}

absl::StatusOr<Tensors> TranslateReshape(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(std::optional<Ints> shape, n.ListOrInput("shape", 1));
  const bool allow_zero = n.Flag("allowzero");
  if (!shape) return Wrong("there is no shape");
  for (size_t i = 0; i < shape->size() && !allow_zero; ++i) {
    if ((*shape)[i] != 0) continue;
    if (static_cast<int>(i) >= n.rank()) {
      return Wrong(absl::StrCat("dim ", i, " is 0, the input's, which has ", n.rank(), " dims"));
    }
    (*shape)[i] = n.shape()[static_cast<int>(i)];
  }
  return Tensors{Reshape(n.in(0), Shape(*shape))};
}

absl::StatusOr<Tensors> TranslateFlatten(const NodeView& n) {
  // One past the last axis is legal.
  int64_t axis = n.Int("axis", 1);
  if (axis != n.rank()) {
    BRAID_ASSIGN_OR_RETURN(axis, NormalAxis(axis, n.rank()));
  }
  const Shape shape = n.shape();
  int64_t rows = 1, columns = 1;
  for (int i = 0; i < shape.rank(); ++i) (i < axis ? rows : columns) *= shape[i];
  return Tensors{Reshape(n.in(0), {rows, columns})};
}

absl::StatusOr<Tensors> TranslateSqueeze(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(std::optional<Ints> axes, n.ListOrInput("axes", 1));
  if (!axes) {
    axes.emplace();
    for (int i = 0; i < n.rank(); ++i) {
      if (n.shape()[i] == 1) axes->push_back(i);
    }
  }
  BRAID_ASSIGN_OR_RETURN(Ints sorted, NormalAxes(*axes, n.rank()));
  std::sort(sorted.rbegin(), sorted.rend());
  Tensor x = n.in(0);
  for (int64_t axis : sorted) x = Squeeze(x, axis);
  return Tensors{x};
}

absl::StatusOr<Tensors> TranslateUnsqueeze(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const std::optional<Ints> axes, n.ListOrInput("axes", 1));
  if (!axes) return Wrong("there are no axes");
  const int rank = n.rank() + static_cast<int>(axes->size());
  BRAID_ASSIGN_OR_RETURN(Ints sorted, NormalAxes(*axes, rank));
  std::sort(sorted.begin(), sorted.end());
  Tensor x = n.in(0);
  for (int64_t axis : sorted) x = ExpandDims(x, axis);
  return Tensors{x};
}

absl::StatusOr<Tensors> TranslateExpand(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(Ints dims, n.KnownInts(1));
  // Both ways: a 1 in the wanted shape keeps the input's size.
  const Shape in = n.shape();
  while (static_cast<int>(dims.size()) < in.rank()) dims.insert(dims.begin(), 1);
  for (int i = 0; i < in.rank(); ++i) {
    int64_t& dim = dims[dims.size() - in.rank() + i];
    if (dim == 1) dim = in[i];
  }
  return Tensors{BroadcastTo(n.in(0), Shape(dims))};
}

absl::StatusOr<Tensors> TranslateSlice(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const std::optional<Ints> starts, n.ListOrInput("starts", 1));
  BRAID_ASSIGN_OR_RETURN(const std::optional<Ints> ends, n.ListOrInput("ends", 2));
  BRAID_ASSIGN_OR_RETURN(std::optional<Ints> axes, n.ListOrInput("axes", 3));
  BRAID_ASSIGN_OR_RETURN(const std::optional<Ints> steps, n.ListOrInput("steps", 4));
  if (!starts || !ends) return Wrong("starts or ends are missing");
  if (!axes) {
    axes.emplace(starts->size());
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (ends->size() != starts->size() || axes->size() != starts->size() ||
      (steps && steps->size() != starts->size())) {
    return Wrong(absl::StrCat("there are ", starts->size(), " starts, ", ends->size(), " ends and ",
                              axes->size(), " axes"));
  }
  BRAID_ASSIGN_OR_RETURN(*axes, NormalAxes(*axes, n.rank()));
  std::vector<SliceRange> ranges;
  for (size_t i = 0; i < starts->size(); ++i) {
    ranges.push_back(
        {.begin = (*starts)[i], .end = (*ends)[i], .step = steps ? (*steps)[i] : int64_t{1}});
  }
  return Tensors{SliceAxes(n.in(0), *axes, ranges)};
}

absl::StatusOr<Tensors> TranslateSplit(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const std::optional<Ints> sizes, n.ListOrInput("split", 1));
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0));
  const int64_t parts = n.Int("num_outputs", n.num_outputs());
  const int64_t all = n.shape()[static_cast<int>(axis)];
  if (parts != n.num_outputs()) {
    return Wrong(absl::StrCat("num_outputs is ", parts, ", and it has ", n.num_outputs()));
  }
  if (sizes) return Split(n.in(0), *sizes, axis);
  // The last part is the smaller one.
  const int64_t each = (all + parts - 1) / parts;
  Ints even(parts, each);
  even.back() = all - each * (parts - 1);
  if (even.back() < 0) {
    return Wrong(absl::StrCat("axis ", axis, " has size ", all, " and is cut into ", parts));
  }
  return Split(n.in(0), even, axis);
}

absl::StatusOr<Tensors> TranslatePad(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const std::optional<Ints> pads, n.ListOrInput("pads", 1));
  PadOptions options = {.value = n.Float("value", 0)};
  const std::string mode = n.Text("mode", "constant");
  if (mode == "reflect") {
    options.mode = PadMode::kReflect;
  } else if (mode == "edge") {
    options.mode = PadMode::kEdge;
  } else if (mode == "wrap") {
    options.mode = PadMode::kWrap;
  } else if (mode != "constant") {
    return Wrong(absl::StrCat("its mode is '", mode, "'"));
  }
  Ints axes(n.rank());
  std::iota(axes.begin(), axes.end(), 0);
  if (n.HasInput(3)) {
    BRAID_ASSIGN_OR_RETURN(axes, n.KnownInts(3));
    BRAID_ASSIGN_OR_RETURN(axes, NormalAxes(axes, n.rank()));
  }
  if (!pads || pads->size() != 2 * axes.size()) {
    return Wrong("two pads for each axis are needed");
  }
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(options.value, n.KnownFloat(2));
  }
  Ints before(n.rank(), 0), after(n.rank(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    before[axes[i]] = (*pads)[i];
    after[axes[i]] = (*pads)[i + axes.size()];
  }
  return Tensors{Pad(n.in(0), before, after, options)};
}

// Each axis cut or filled up with zeros at both ends, to the size that input 1 says.
absl::StatusOr<Tensors> TranslateCenterCropPad(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Ints wanted, n.KnownInts(1));
  Ints axes(n.rank());
  std::iota(axes.begin(), axes.end(), 0);
  if (const std::optional<Ints> given = n.List("axes")) {
    BRAID_ASSIGN_OR_RETURN(axes, NormalAxes(*given, n.rank()));
  }
  if (wanted.size() != axes.size()) {
    return Wrong(absl::StrCat("there are ", wanted.size(), " sizes for ", axes.size(), " axes"));
  }
  Ints before(n.rank(), 0), after(n.rank(), 0);
  const Shape shape = n.shape();
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t size = shape[static_cast<int>(axes[i])];
    if (wanted[i] < 0) return Wrong(absl::StrCat("axis ", axes[i], " would have ", wanted[i]));
    const int64_t added = wanted[i] - size;
    before[axes[i]] = added / 2;
    after[axes[i]] = added - added / 2;
  }
  return Tensors{Pad(n.in(0), before, after)};
}

absl::StatusOr<Tensors> TranslateTile(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Ints repeats, n.KnownInts(1));
  if (static_cast<int>(repeats.size()) == n.rank()) return Tensors{Tile(n.in(0), repeats)};
  return Wrong(absl::StrCat("there are ", repeats.size(), " repeats, and ", n.rank(), " axes"));
}

absl::StatusOr<Tensors> TranslateTrilu(const NodeView& n) {
  int64_t diagonal = 0;
  if (n.HasInput(1)) {
    BRAID_ASSIGN_OR_RETURN(diagonal, n.KnownInt(1));
  }
  return Tensors{n.Flag("upper", true) ? Triu(n.in(0), diagonal) : Tril(n.in(0), diagonal)};
}

absl::StatusOr<DepthOrder> DepthOrderOf(const NodeView& n) {
  const std::string mode = n.Text("mode", "DCR");
  if (mode == "DCR") return DepthOrder::kDepthColumnRow;
  if (mode == "CRD") return DepthOrder::kColumnRowDepth;
  return Wrong(absl::StrCat("its mode is '", mode, "'"));
}

absl::StatusOr<Tensors> TranslateDepthToSpace(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const DepthOrder order, DepthOrderOf(n));
  return Tensors{DepthToSpace(n.in(0), n.Int("blocksize", 0), order)};
}

absl::StatusOr<Tensors> TranslateSpaceToDepth(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const DepthOrder order, DepthOrderOf(n));
  return Tensors{SpaceToDepth(n.in(0), n.Int("blocksize", 0), order)};
}

absl::StatusOr<Tensors> TranslateConcat(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0));
  return Tensors{Concat(n.inputs(), axis)};
}

}  // namespace

void AddLayout(Translators& all) {
  all.Add("Transpose", {}, TranslateTranspose);
  all.Add("Concat", {1, kAnyNumber}, TranslateConcat);
  all.Add("Reshape", {1, 2}, TranslateReshape);
  all.Add("Flatten", {}, TranslateFlatten);
  all.Add("Squeeze", {1, 2}, TranslateSqueeze);
  all.Add("Unsqueeze", {1, 2}, TranslateUnsqueeze);
  all.Add("Expand", {2, 2}, TranslateExpand);
  all.Add("Slice", {1, 5}, TranslateSlice);
  all.Add("Split", {1, 2}, TranslateSplit);
  all.Add("Pad", {1, 4}, TranslatePad);
  all.Add("CenterCropPad", {2, 2}, TranslateCenterCropPad);
  all.Add("Tile", {2, 2}, TranslateTile);
  all.Add("Trilu", {1, 2}, TranslateTrilu);
  all.Add("DepthToSpace", {}, TranslateDepthToSpace);
  all.Add("SpaceToDepth", {}, TranslateSpaceToDepth);
}

}  // namespace braid::onnx
