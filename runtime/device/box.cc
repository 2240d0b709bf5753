#include "runtime/device/box.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

namespace braid {

BoxRuns RunsOf(const Region& source, const Region& destination, const Region& box) {
  BoxRuns runs;
  const int rank = box.size.rank();
  if (box.empty()) return runs;
  // Trailing axes that the box covers whole in both buffers join into one run.
  int outer = rank;
  runs.run = 1;
  while (outer > 0) {
    const int axis = outer - 1;
    runs.run *= box.size[axis];
    --outer;
    if (box.size[axis] != source.size[axis] || box.size[axis] != destination.size[axis]) break;
  }
  std::vector<int64_t> source_stride(rank, 1), destination_stride(rank, 1);
  for (int axis = rank - 2; axis >= 0; --axis) {
    source_stride[axis] = source_stride[axis + 1] * source.size[axis + 1];
    destination_stride[axis] = destination_stride[axis + 1] * destination.size[axis + 1];
  }
  int64_t from = 0, to = 0, count = 1;
  for (int axis = 0; axis < rank; ++axis) {
    from += (box.offset[axis] - source.offset[axis]) * source_stride[axis];
    to += (box.offset[axis] - destination.offset[axis]) * destination_stride[axis];
    if (axis < outer) count *= box.size[axis];
  }
  runs.from.reserve(count);
  runs.to.reserve(count);
  for (int axis = 0; axis < outer; ++axis) {
    runs.axes.push_back({box.size[axis], source_stride[axis], destination_stride[axis]});
  }
  std::vector<int64_t> index(outer, 0);
  for (int64_t i = 0; i < count; ++i) {
    runs.from.push_back(from);
    runs.to.push_back(to);
    for (int axis = outer - 1; axis >= 0; --axis) {
      from += source_stride[axis];
      to += destination_stride[axis];
      if (++index[axis] < box.size[axis]) break;
      from -= index[axis] * source_stride[axis];
      to -= index[axis] * destination_stride[axis];
      index[axis] = 0;
    }
  }
  return runs;
}

void CopyRuns(const BoxRuns& runs, size_t element_size, const void* source, void* destination) {
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(destination);
  const size_t bytes = runs.run * element_size;
  for (size_t i = 0; i < runs.from.size(); ++i) {
    std::memcpy(to + runs.to[i] * element_size, from + runs.from[i] * element_size, bytes);
  }
}

void CombineRuns(const BoxRuns& runs, DType dtype, Sbp::Kind kind, const void* source,
                 void* destination) {
  const CombineFn combine = CombineFunction(dtype, kind);
  CHECK(combine != nullptr) << "no addition for " << ToString(dtype);
  const size_t element_size = SizeOf(dtype);
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(destination);
  for (size_t i = 0; i < runs.from.size(); ++i) {
    std::byte* const at = to + runs.to[i] * element_size;
    combine(at, at, from + runs.from[i] * element_size, runs.run);
  }
}

}  // namespace braid
