// Images from the windows that were taken out of them.
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

bool AreAtLeast(const Ints& numbers, int64_t least) {
  for (int64_t number : numbers) {
    if (number < least) return false;
  }
  return true;
}

// x [n, c * block..., windows...], the last axes as one each -> [n, c, image...]: elements of all
// windows are added where they were taken from. It is what a transposed convolution does whose
// kernels have one 1 each.
absl::StatusOr<Tensors> TranslateCol2Im(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Ints image, n.KnownInts(1));
  BRAID_ASSIGN_OR_RETURN(const Ints block, n.KnownInts(2));
  const size_t axes = image.size();
  const Ints strides = n.List("strides").value_or(Ints(axes, 1));
  const Ints dilations = n.List("dilations").value_or(Ints(axes, 1));
  const Ints pads = n.List("pads").value_or(Ints(2 * axes, 0));
  if (block.size() != axes || strides.size() != axes || dilations.size() != axes ||
      pads.size() != 2 * axes || !AreAtLeast(image, 1) || !AreAtLeast(block, 1) ||
      !AreAtLeast(strides, 1) || !AreAtLeast(dilations, 1) || !AreAtLeast(pads, 0)) {
    return Wrong(absl::StrCat("the image is ", Shape(image).ToString(), ", the blocks are ",
                              Shape(block).ToString(), "; the attributes do not fit"));
  }
  if (axes < 1 || axes > 3) return Lacking("other than 1 to 3 axes of space");
  Ints windows, left_over;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t room = image[i] + pads[i] + pads[axes + i] - dilations[i] * (block[i] - 1) - 1;
    if (room < 0) return Wrong(absl::StrCat("no window fits on axis ", i, " of the image"));
    windows.push_back(room / strides[i] + 1);
    left_over.push_back(room % strides[i]);
  }
  const Shape x = n.shape(0);
  const int64_t taps = Shape(block).num_elements(), count = Shape(windows).num_elements();
  if (x.rank() != 3 || x[1] % taps != 0 || x[2] != count) {
    return Wrong(absl::StrCat("x is ", x.ToString(), "; [n, a multiple of ", taps, ", ", count,
                              "] is needed"));
  }
  const int64_t channels = x[1] / taps;
  Ints in = {x[0] * channels, taps}, kernel = {taps, 1}, out = {x[0], channels};
  in.insert(in.end(), windows.begin(), windows.end());
  kernel.insert(kernel.end(), block.begin(), block.end());
  out.insert(out.end(), image.begin(), image.end());
  const Tensor picks = Eye(n.graph(), taps, taps, {.dtype = n.dtype()});
  const ConvTransposeOptions options = {.strides = strides,
                                        .dilations = dilations,
                                        .padding = {pads.begin(), pads.begin() + axes},
                                        .padding_end = {pads.begin() + axes, pads.end()},
                                        .output_padding = left_over};
  const Tensor y =
      ConvTranspose(Reshape(n.in(0), Shape(in)), Reshape(picks, Shape(kernel)), options);
  return Tensors{Reshape(y, Shape(out))};
}

// The inverse of MaxPool: every element goes where its index in the whole of the result says, the
// others are 0. A wanted shape that is larger has more zeros behind.
absl::StatusOr<Tensors> TranslateMaxUnpool(const NodeView& n) {
  const Shape x = n.shape(0);
  const size_t axes = x.rank() > 2 ? x.rank() - 2 : 0;
  const Ints kernel = n.List("kernel_shape").value_or(Ints());
  const Ints strides = n.List("strides").value_or(Ints(axes, 1));
  const Ints pads = n.List("pads").value_or(Ints(2 * axes, 0));
  if (axes == 0 || n.shape(1) != x || kernel.size() != axes || strides.size() != axes ||
      pads.size() != 2 * axes) {
    return Wrong(absl::StrCat("x is ", x.ToString(), ", the indices are ", n.shape(1).ToString(),
                              "; the attributes do not fit the axes of space"));
  }
  Ints dims = {x[0], x[1]};
  for (size_t i = 0; i < axes; ++i) {
    dims.push_back((x[static_cast<int>(2 + i)] - 1) * strides[i] + kernel[i] - pads[i] -
                   pads[axes + i]);
  }
  if (!AreAtLeast(dims, 0)) return Wrong(absl::StrCat("it makes ", Shape(dims).ToString()));
  Ints missing(dims.size(), 0);
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(const Ints wanted, n.KnownInts(2));
    if (wanted.size() != dims.size()) {
      return Wrong(
          absl::StrCat("output_shape is ", Shape(wanted).ToString(), ", x is ", x.ToString()));
    }
    for (size_t i = 0; i < dims.size(); ++i) missing[i] = wanted[i] - dims[i];
    if (!AreAtLeast(missing, 0)) {
      return Wrong(absl::StrCat("output_shape is ", Shape(wanted).ToString(), "; at least ",
                                Shape(dims).ToString(), " is needed"));
    }
  }
  const Shape whole(dims);
  const int64_t elements = x.num_elements();
  const Tensor zeros =
      Constant(n.graph(), 0, {.dtype = n.dtype(), .shape = {whole.num_elements()}});
  const Tensor y = Reshape(
      ScatterElements(zeros, Reshape(n.in(1), {elements}), Reshape(n.in(0), {elements})), whole);
  return Tensors{Pad(y, Ints(dims.size(), 0), missing)};
}

}  // namespace

void AddUnpool(Translators& all) {
  all.Add("Col2Im", {3, 3}, TranslateCol2Im);
  all.Add("MaxUnpool", {2, 3}, TranslateMaxUnpool);
}

}  // namespace braid::onnx
