#include "runtime/files/tensor_box.h"

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid {

absl::Status ForEachRun(const TensorInFile& in, const TensorBox& box, OnRun on_run) {
  const Shape& shape = in.tensor.shape;
  const int rank = shape.rank();
  bool fits =
      static_cast<int>(box.begin.size()) == rank && static_cast<int>(box.sizes.size()) == rank;
  for (int d = 0; fits && d < rank; ++d) {
    const size_t i = static_cast<size_t>(d);
    fits = box.begin[i] >= 0 && box.sizes[i] >= 0 && box.begin[i] <= shape[d] &&
           box.sizes[i] <= shape[d] - box.begin[i];
  }
  if (!fits) {
    return absl::OutOfRangeError(absl::StrFormat(
        "tensor '%s' of '%s' has shape %s; the box of size %s at %s was asked for", in.tensor.name,
        in.path, shape.ToString(), Shape(box.sizes).ToString(), Shape(box.begin).ToString()));
  }
  const int64_t element = static_cast<int64_t>(SizeOf(in.tensor.dtype));
  if (Shape(box.sizes).num_elements() == 0) return absl::OkStatus();
  // A run: the longest contiguous piece, one for each index of the axes before `inner`.
  int inner = rank;
  int64_t run = element;
  while (inner > 0) {
    --inner;
    run *= box.sizes[static_cast<size_t>(inner)];
    if (box.sizes[static_cast<size_t>(inner)] != shape[inner]) break;
  }
  std::vector<int64_t> strides(static_cast<size_t>(rank));
  int64_t stride = element;
  for (int d = rank - 1; d >= 0; --d) {
    strides[static_cast<size_t>(d)] = stride;
    stride *= shape[d];
  }
  int64_t position = in.offset;
  for (size_t d = 0; d < strides.size(); ++d) position += box.begin[d] * strides[d];
  std::vector<int64_t> index(static_cast<size_t>(inner), 0);
  while (true) {
    BRAID_RETURN_IF_ERROR(on_run(position, static_cast<size_t>(run)));
    int d = inner - 1;  // like an odometer, last axis first
    for (; d >= 0; --d) {
      const size_t i = static_cast<size_t>(d);
      position += strides[i];
      if (++index[i] < box.sizes[i]) break;
      position -= box.sizes[i] * strides[i];
      index[i] = 0;
    }
    if (d < 0) return absl::OkStatus();
  }
}

}  // namespace braid
