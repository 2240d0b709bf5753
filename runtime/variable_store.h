// The bytes of variables on one node's devices. Jobs share them by name; they outlive every job.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attrs.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// Belongs to the node's control thread; actors only use the addresses.
class VariableStore {
 public:
  // `kernels` (borrowed) fill new variables: random_uniform, random_normal, constant.
  VariableStore(const KernelRegistry* kernels, uint64_t seed) : kernels_(kernels), seed_(seed) {}

  // The shard of `name` on `device`. A new one is initialised from the variable op's attributes
  // {init, value, low, high, mean, stddev}: every element from (seed, name, logical index), so that
  // the layout does not matter. FAILED_PRECONDITION if it is there with another layout.
  absl::StatusOr<std::byte*> Obtain(int device, const std::string& name, const OperandSpec& layout,
                                    const Attrs& init);
  // nullptr if it was never obtained.
  std::byte* Find(int device, const std::string& name) const;
  uint64_t bytes(int device) const;

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  struct Entry {
    OperandSpec layout;
    std::unique_ptr<std::byte[], Free> bytes;
  };
  absl::Status Fill(const std::string& name, const OperandSpec& layout, const Attrs& init,
                    std::byte* bytes) const;

  const KernelRegistry* kernels_;
  uint64_t seed_;
  std::map<std::pair<int, std::string>, Entry> entries_;
};

}  // namespace braid
