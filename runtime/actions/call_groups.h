// Which kernels of a compute task run part by part together, so that what one makes the next finds
// in the cache: consecutive pointwise kernels of one size. What nobody else reads of what they make
// never leaves the cache: every part of it lies where the first one does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/kernels/kernel.h"

namespace braid {

// An operand of a call.
struct GroupedOperand {
  int64_t bytes = 0;
  int64_t elements = 0;
  // Which scratch of the task it is: a value that only the task's calls read, and that is gone when
  // the act ends. Not given: others may read it.
  std::optional<uint32_t> scratch = std::nullopt;
};

// What of a call matters here. The kernel is borrowed.
struct GroupedCall {
  Kernel* kernel = nullptr;
  std::vector<GroupedOperand> inputs, outputs;
};

class CallGroups {
 public:
  explicit CallGroups(std::vector<GroupedCall> calls);

  // To be called when addresses have changed: `pointers` are those of all calls, each one's inputs
  // and then its outputs. Calls whose memory overlaps in any other way than element by element do
  // not run together, for the one would overwrite what the other has not read. Allocates nothing.
  void Place(void* const* pointers);

  // The calls [call, end(call)) run together; the first call is 0, the next one after a group its
  // end.
  size_t end(size_t call) const { return ends_[call]; }
  // Of a group of more than one: elements, and how many of them at a time.
  int64_t size(size_t call) const { return calls_[call].kernel->pointwise_size(); }
  int64_t part(size_t call) const { return parts_[call]; }
  // Bytes of an element of what pointer `pointer` points to, if every part of it is to lie where
  // the first one does; otherwise 0.
  int64_t staying(size_t pointer) const { return staying_[pointer]; }
  // The first pointer of the call, or the number of pointers after the last one.
  size_t first_pointer(size_t call) const { return first_pointer_[call]; }

 private:
  const GroupedOperand& operand(size_t call, size_t index) const;  // outputs after inputs
  // A multiple of the steps of the calls [begin, end), or 0 if there is none that is small enough.
  int64_t PartOf(size_t begin, size_t end) const;
  bool MayFollow(size_t begin, size_t call, void* const* pointers) const;
  void FindStaying(size_t begin, size_t end, void* const* pointers);

  const std::vector<GroupedCall> calls_;
  std::vector<size_t> first_pointer_;       // of each call, and their number
  std::map<uint32_t, size_t> last_reader_;  // a call, by scratch
  std::vector<size_t> ends_;
  std::vector<int64_t> parts_;
  std::vector<int64_t> staying_;  // of each pointer
};

}  // namespace braid
