#include "runtime/actions/call_groups.h"

#include <numeric>
#include <utility>

namespace braid {
namespace {

// Operands below this stay in the second-level cache anyway.
constexpr int64_t kLeastElements = 32 * 1024;
// Of a part: some operands of so many elements fit into the second-level cache.
constexpr int64_t kPartElements = 8 * 1024;

struct Bytes {
  const std::byte* begin;
  OperandSize size;
};

bool Overlap(const Bytes& a, const Bytes& b) {
  return a.begin < b.begin + b.size.bytes && b.begin < a.begin + a.size.bytes;
}

// Whether parts of both are the same bytes, in a group of so many elements.
bool IsSame(const Bytes& a, const Bytes& b, int64_t elements) {
  return a.begin == b.begin && a.size.bytes == b.size.bytes && a.size.elements == elements &&
         b.size.elements == elements;
}

}  // namespace

CallGroups::CallGroups(std::vector<GroupedCall> calls)
    : calls_(std::move(calls)), ends_(calls_.size()), parts_(calls_.size(), 0) {
  size_t pointer = 0;
  for (size_t call = 0; call < calls_.size(); ++call) {
    first_pointer_.push_back(pointer);
    pointer += calls_[call].inputs.size() + calls_[call].outputs.size();
    ends_[call] = call + 1;
  }
}

void CallGroups::Place(void* const* pointers) {
  for (size_t begin = 0; begin < calls_.size(); begin = ends_[begin]) {
    size_t end = begin + 1;
    parts_[begin] = size(begin);
    while (size(begin) >= kLeastElements && end < calls_.size() && size(end) == size(begin)) {
      const int64_t part = PartOf(begin, end + 1);
      if (part == 0 || !MayFollow(begin, end, pointers)) break;
      parts_[begin] = part;
      ++end;
    }
    ends_[begin] = end;
  }
}

int64_t CallGroups::PartOf(size_t begin, size_t end) const {
  int64_t step = kPointwiseVectors;
  for (size_t call = begin; call < end; ++call) {
    step = std::lcm(step, calls_[call].kernel->pointwise_step());
    if (step > kPartElements) return 0;
  }
  return kPartElements / step * step;
}

// Whether the call may run beside those from `begin` on that stand before it.
bool CallGroups::MayFollow(size_t begin, size_t call, void* const* pointers) const {
  const auto place = [&](size_t of, size_t operand) {
    const GroupedCall& c = calls_[of];
    const bool is_input = operand < c.inputs.size();
    const OperandSize& size = is_input ? c.inputs[operand] : c.outputs[operand - c.inputs.size()];
    return Bytes{static_cast<const std::byte*>(pointers[first_pointer_[of] + operand]), size};
  };
  const size_t inputs = calls_[call].inputs.size(), all = inputs + calls_[call].outputs.size();
  for (size_t before = begin; before < call; ++before) {
    const size_t inputs_before = calls_[before].inputs.size();
    const size_t all_before = inputs_before + calls_[before].outputs.size();
    for (size_t i = 0; i < all_before; ++i) {
      for (size_t j = 0; j < all; ++j) {
        if (i < inputs_before && j < inputs) continue;  // both only read
        const auto a = place(before, i), b = place(call, j);
        if (Overlap(a, b) && !IsSame(a, b, size(begin))) return false;
      }
    }
  }
  return true;
}

}  // namespace braid
