#include "graph/ops/window.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
constexpr int64_t kLargestWindow = int64_t{1} << 24;

absl::Status CheckList(const std::string& name, const std::vector<int64_t>& values, size_t axes,
                       int64_t least) {
  bool fits = values.size() == axes;
  for (int64_t value : values) fits = fits && value >= least && value <= kLargestWindow;
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is [", absl::StrJoin(values, ", "), "]; ",
                                                 axes, " numbers from ", least, " to ",
                                                 kLargestWindow, " are needed"));
}

}  // namespace

absl::StatusOr<std::vector<WindowAxis>> WindowsOf(const Attrs& attrs,
                                                  const std::vector<int64_t>& kernel) {
  const size_t axes = kernel.size();
  const std::vector<int64_t>& strides = attrs.Ints("strides");
  const std::vector<int64_t>& dilations = attrs.Ints("dilations");
  const std::vector<int64_t>& begin = attrs.Ints("pads_begin");
  const std::vector<int64_t>& end = attrs.Ints("pads_end");
  BRAID_RETURN_IF_ERROR(CheckList("kernel", kernel, axes, 1));
  BRAID_RETURN_IF_ERROR(CheckList("strides", strides, axes, 1));
  BRAID_RETURN_IF_ERROR(CheckList("dilations", dilations, axes, 1));
  BRAID_RETURN_IF_ERROR(CheckList("pads_begin", begin, axes, 0));
  BRAID_RETURN_IF_ERROR(CheckList("pads_end", end, axes, 0));
  std::vector<WindowAxis> windows;
  for (size_t i = 0; i < axes; ++i) {
    windows.push_back({kernel[i], strides[i], dilations[i], begin[i], end[i]});
  }
  return windows;
}

absl::StatusOr<int64_t> CountWindows(int64_t size, const WindowAxis& axis, bool ceil_mode) {
  const int64_t room = size + axis.pad_begin + axis.pad_end - axis.span();
  if (size < 0 || size > kLargest || room < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an axis of ", size, " elements with a padding of ", axis.pad_begin, " and ",
                     axis.pad_end, " has no room for a window of ", axis.span()));
  }
  int64_t count = room / axis.stride + 1;
  if (ceil_mode && room % axis.stride != 0 && count * axis.stride < size + axis.pad_begin) ++count;
  return count;
}

void SetWindows(Attrs& attrs, const std::vector<WindowAxis>& windows) {
  std::vector<int64_t> strides, dilations, begin, end;
  for (const WindowAxis& axis : windows) {
    strides.push_back(axis.stride);
    dilations.push_back(axis.dilation);
    begin.push_back(axis.pad_begin);
    end.push_back(axis.pad_end);
  }
  attrs.Set("strides", std::move(strides));
  attrs.Set("dilations", std::move(dilations));
  attrs.Set("pads_begin", std::move(begin));
  attrs.Set("pads_end", std::move(end));
}

std::vector<int64_t> SpaceOf(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

Shape WithSpace(int64_t n, int64_t c, const std::vector<int64_t>& space) {
  std::vector<int64_t> dims = {n, c};
  dims.insert(dims.end(), space.begin(), space.end());
  return Shape(std::move(dims));
}

absl::Status CheckElements(const Shape& shape) {
  int64_t elements = 1;
  for (int64_t dim : shape) {
    if (dim < 0 || dim > kLargest || (dim > 0 && elements > (int64_t{1} << 62) / dim)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the result would be ", shape.ToString(), ", too large"));
    }
    elements *= dim;
  }
  return absl::OkStatus();
}

}  // namespace braid
