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
  GroupedOperand size;
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
    for (const GroupedOperand& input : calls_[call].inputs) {
      if (input.scratch.has_value()) last_reader_[*input.scratch] = call;
    }
  }
  first_pointer_.push_back(pointer);
  staying_.resize(pointer, 0);
}

const GroupedOperand& CallGroups::operand(size_t call, size_t index) const {
  const GroupedCall& c = calls_[call];
  return index < c.inputs.size() ? c.inputs[index] : c.outputs[index - c.inputs.size()];
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
    FindStaying(begin, end, pointers);
  }
}

// Scratch that the group writes and nobody reads after it. Memory of the group overlaps element by
// element or not at all, so nothing but other values of the same address lies there: what stood in
// the first part before has been read when the second part begins, and what is to remain must not
// be written over by values that stay.
void CallGroups::FindStaying(size_t begin, size_t end, void* const* pointers) {
  for (size_t i = first_pointer_[begin]; i < first_pointer_[end]; ++i) staying_[i] = 0;
  if (end == begin + 1) return;
  const auto is_gone = [&](const GroupedOperand& output) {
    if (!output.scratch.has_value() || output.elements != size(begin)) return false;
    const auto last = last_reader_.find(*output.scratch);
    return last == last_reader_.end() || last->second < end;
  };
  const auto for_each_output = [&](auto do_it) {
    for (size_t call = begin; call < end; ++call) {
      const size_t first = first_pointer_[call] + calls_[call].inputs.size();
      for (size_t i = first; i < first_pointer_[call + 1]; ++i) {
        do_it(call, operand(call, i - first_pointer_[call]), i);
      }
    }
  };
  for_each_output([&](size_t call, const GroupedOperand& output, size_t at) {
    bool may_stay = is_gone(output);
    for_each_output([&](size_t, const GroupedOperand& other, size_t other_at) {
      if (pointers[other_at] == pointers[at] && !is_gone(other)) may_stay = false;
    });
    if (!may_stay) return;
    staying_[at] = output.bytes / output.elements;
    for (size_t reader = call + 1; reader < end; ++reader) {
      for (size_t i = 0; i < calls_[reader].inputs.size(); ++i) {
        if (calls_[reader].inputs[i].scratch == output.scratch) {
          staying_[first_pointer_[reader] + i] = staying_[at];
        }
      }
    }
  });
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
  const auto place = [&](size_t of, size_t index) {
    return Bytes{static_cast<const std::byte*>(pointers[first_pointer_[of] + index]),
                 operand(of, index)};
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
