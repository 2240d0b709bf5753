#include "tests/cuda/collective_parts.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "runtime/base/half.h"

namespace braid::cuda {
namespace {

template <class T>
T Combined(int32_t reduction, T a, T b) {
  if (reduction == 0) return static_cast<T>(a + b);
  return reduction == 1 ? std::max(a, b) : std::min(a, b);
}

template <class T, class Wide = T>
void ReduceParts(const std::vector<CollectivePart>& parts, int64_t first, int64_t n,
                 std::byte* to) {
  std::vector<T> result(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const auto at = [&](const CollectivePart& part) {
      return static_cast<Wide>(static_cast<const T*>(part.call.input)[first + i]);
    };
    Wide all = at(parts[0]);
    for (size_t r = 1; r < parts.size(); ++r) {
      all = Combined(parts[0].call.reduction, all, at(parts[r]));
    }
    result[static_cast<size_t>(i)] = static_cast<T>(all);
  }
  if (n > 0) std::memcpy(to, result.data(), result.size() * sizeof(T));
}

}  // namespace

void ReduceParts(const std::vector<CollectivePart>& parts, int64_t first, int64_t n,
                 std::byte* to) {
  switch (parts[0].call.dtype) {
    case DType::kF32:
      return ReduceParts<float>(parts, first, n, to);
    case DType::kF64:
      return ReduceParts<double>(parts, first, n, to);
    case DType::kBF16:
      return ReduceParts<BFloat16, float>(parts, first, n, to);
    case DType::kF16:
      return ReduceParts<Float16, float>(parts, first, n, to);
    case DType::kI32:
      return ReduceParts<int32_t>(parts, first, n, to);
    case DType::kI64:
      return ReduceParts<int64_t>(parts, first, n, to);
    case DType::kU8:
      return ReduceParts<uint8_t>(parts, first, n, to);
    case DType::kI8:
      return ReduceParts<int8_t>(parts, first, n, to);
    case DType::kU16:
      return ReduceParts<uint16_t>(parts, first, n, to);
    default:
      std::abort();  // no test reduces it
  }
}

void CarryOut(const std::vector<CollectivePart>& parts) {
  const auto sum = [](const std::vector<int64_t>& counts, size_t before) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<int64_t>(before),
                           int64_t{0});
  };
  std::vector<std::vector<std::byte>> outputs;
  for (size_t to = 0; to < parts.size(); ++to) {
    const NcclCall& call = parts[to].call;
    const std::vector<int64_t>& counts = parts[to].counts;
    std::vector<std::byte>& output = outputs.emplace_back();
    const auto append = [&](const CollectivePart& from, int64_t first, int64_t n) {
      const auto* const input = static_cast<const std::byte*>(from.call.input);
      output.insert(output.end(), input + first * call.element_bytes,
                    input + (first + n) * call.element_bytes);
    };
    switch (call.kind) {
      case CollectiveKind::kAllReduce:
        output.resize(static_cast<size_t>(counts[0] * call.element_bytes));
        ReduceParts(parts, 0, counts[0], output.data());
        break;
      case CollectiveKind::kReduceScatter:
        output.resize(static_cast<size_t>(counts[to] * call.element_bytes));
        ReduceParts(parts, sum(counts, to), counts[to], output.data());
        break;
      case CollectiveKind::kAllGather:
        for (size_t from = 0; from < parts.size(); ++from) append(parts[from], 0, counts[from]);
        break;
      case CollectiveKind::kAllToAll:
        for (const CollectivePart& from : parts)
          append(from, sum(from.counts, to), from.counts[to]);
        break;
      case CollectiveKind::kBroadcast:
        append(parts[call.root], 0, counts[0]);
        break;
    }
  }
  for (size_t to = 0; to < parts.size(); ++to) {
    if (!outputs[to].empty())
      std::memcpy(parts[to].call.output, outputs[to].data(), outputs[to].size());
  }
}

}  // namespace braid::cuda
