// sort and top_k. An element becomes an unsigned key that has its order, joined with its index: no
// two are equal, so that every algorithm gives the stable order, and what the rest sees are
// integers.
#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Keys of floats: negative ones have all bits flipped, others the sign; zeros are equal, a NaN is
// above infinity.
template <class Bits, class Float>
Bits FloatKey(Float value) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  if (value != value) return ~Bits{0};
  const Bits bits = std::bit_cast<Bits>(value == 0 ? Float{0} : value);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
uint32_t KeyOf(float value) { return FloatKey<uint32_t>(value); }
uint64_t KeyOf(double value) { return FloatKey<uint64_t>(value); }
uint32_t KeyOf(BFloat16 value) { return KeyOf(static_cast<float>(value)); }
uint32_t KeyOf(Float16 value) { return KeyOf(static_cast<float>(value)); }
uint32_t KeyOf(int32_t value) { return static_cast<uint32_t>(value) ^ 0x80000000u; }
uint64_t KeyOf(int64_t value) { return static_cast<uint64_t>(value) ^ (uint64_t{1} << 63); }
uint32_t KeyOf(uint8_t value) { return value; }

// A key and an index: in one word, where both fit.
struct Wide {
  uint64_t key;
  uint32_t at;
  friend bool operator<(const Wide& a, const Wide& b) {
    return a.key != b.key ? a.key < b.key : a.at < b.at;
  }
};
uint64_t Entry(uint32_t key, uint32_t at) { return uint64_t{key} << 32 | at; }
Wide Entry(uint64_t key, uint32_t at) { return {key, at}; }
uint32_t IndexOf(uint64_t entry) { return static_cast<uint32_t>(entry); }
uint32_t IndexOf(const Wide& entry) { return entry.at; }

// From this many on, several passes over the keys' bytes beat comparing.
constexpr int64_t kLeastForBytes = 2048;

// By bytes, from the lowest of the key: a stable pass for each byte that is not the same in all.
void SortByBytes(std::vector<uint64_t>& entries, std::vector<uint64_t>& other) {
  for (int shift = 32; shift < 64; shift += 8) {
    size_t counts[256] = {};
    for (uint64_t entry : entries) ++counts[entry >> shift & 0xff];
    if (counts[entries[0] >> shift & 0xff] == entries.size()) continue;
    size_t at = 0;
    for (size_t& count : counts) at += std::exchange(count, at);
    for (uint64_t entry : entries) other[counts[entry >> shift & 0xff]++] = entry;
    entries.swap(other);
  }
}

struct Sorted {
  int axis = 0;
  int64_t k = 0;            // how many come out
  bool descending = false;  // the largest first
};

template <class T>
KernelOr MakeSortOf(const KernelSpec& spec, const Sorted& sorted) {
  using Key = decltype(KeyOf(T{}));
  using Entries = std::vector<decltype(Entry(Key{}, 0))>;
  const AxisView view = ViewAround(spec.inputs[0].shape(), sorted.axis);
  const bool is_whole = sorted.k == view.size;
  const bool is_by_bytes = sizeof(Key) == 4 && is_whole && view.size >= kLeastForBytes;
  // Whose order is reversed by flipping the bits; the indices' is not.
  const Key flip = sorted.descending ? ~Key{0} : Key{0};
  return MakeKernel([=, k = sorted.k, entries = Entries(view.size),
                     other = Entries(is_by_bytes ? view.size : 0)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    T* values = Output<T>(run, 0);
    auto* indices = Output<int32_t>(run, 1);
    for (int64_t outer = 0; outer < view.outer; ++outer) {
      for (int64_t inner = 0; inner < view.inner; ++inner) {
        const T* from = x + outer * view.size * view.inner + inner;
        for (int64_t i = 0; i < view.size; ++i) {
          entries[i] = Entry(KeyOf(from[i * view.inner]) ^ flip, static_cast<uint32_t>(i));
        }
        if (!is_whole) {
          std::nth_element(entries.begin(), entries.begin() + k, entries.end());
        }
        if constexpr (sizeof(Key) == 4) {
          if (is_by_bytes) SortByBytes(entries, other);
        }
        if (!is_by_bytes) std::sort(entries.begin(), entries.begin() + k);
        const int64_t to = outer * k * view.inner + inner;
        for (int64_t i = 0; i < k; ++i) {
          const uint32_t at = IndexOf(entries[i]);
          values[to + i * view.inner] = from[at * view.inner];
          indices[to + i * view.inner] = static_cast<int32_t>(at);
        }
      }
    }
  });
}

KernelOr MakeSorted(const KernelSpec& spec, const Sorted& sorted) {
  if (spec.outputs[0].dtype != spec.inputs[0].dtype || spec.outputs[1].dtype != DType::kI32) {
    return UnsupportedTypes(spec);
  }
  switch (spec.inputs[0].dtype) {
    case DType::kF32:
      return MakeSortOf<float>(spec, sorted);
    case DType::kF64:
      return MakeSortOf<double>(spec, sorted);
    case DType::kBF16:
      return MakeSortOf<BFloat16>(spec, sorted);
    case DType::kF16:
      return MakeSortOf<Float16>(spec, sorted);
    case DType::kI32:
      return MakeSortOf<int32_t>(spec, sorted);
    case DType::kI64:
      return MakeSortOf<int64_t>(spec, sorted);
    default:
      return MakeSortOf<uint8_t>(spec, sorted);
  }
}

KernelOr MakeSort(const KernelSpec& spec) {
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  return MakeSorted(spec, {.axis = axis,
                           .k = spec.inputs[0].shape()[axis],
                           .descending = Flag(spec.attrs, "descending")});
}

KernelOr MakeTopK(const KernelSpec& spec) {
  return MakeSorted(spec, {.axis = static_cast<int>(spec.attrs.Int("axis")),
                           .k = spec.attrs.Int("k"),
                           .descending = Flag(spec.attrs, "largest")});
}

}  // namespace

absl::Status RegisterSortKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("sort", MakeSort));
  return registry.Register("top_k", MakeTopK);
}

}  // namespace braid::cpu
