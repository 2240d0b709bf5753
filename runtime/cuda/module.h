// Opens the module for CUDA, and says in plain words what a machine lacks for it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/module_table.h"

namespace braid::cuda {

// What was compiled in earlier runs, by what it depends on; `read` gives "" for what is not there.
// Null: nothing is kept.
struct CodeCache {
  std::function<std::string(const std::string& key)> read = nullptr;
  std::function<void(const std::string& key, const std::string& code)> keep = nullptr;
};

struct CudaOptions {
  std::string
      module;  // the module's file; "": beside the program, in ../lib, where the loader looks
  std::string libraries;  // folders, separated by ':', where its libraries are looked for first
  bool rounds_to_tf32 = false;   // Queue::rounds_to_tf32
  bool sums_by_winograd = true;  // Queue::sums_by_winograd
  bool uses_graphs = true;       // what a chain of kernels queues is captured and launched at once
  bool uses_nccl = true;         // for collectives of cards of several nodes
  bool fuses_kernels = true;     // in a row, into one that is compiled when a job is loaded
  CodeCache cache = {};          // where what was compiled is kept
  int card = -1;                 // that has all of a node's devices; -1: one card a device
};

// The module, open for the rest of the process. NOT_FOUND says where it was looked for,
// FAILED_PRECONDITION that it is of another build.
absl::StatusOr<const ModuleTable*> OpenModule(const std::string& file);

// The cards of a node with this many devices, by device. FAILED_PRECONDITION if the machine has no
// driver, no card or not enough of them, or one that is too old; both values, and what works here.
absl::StatusOr<std::vector<int>> ChooseCards(const ModuleTable& module, int devices, int card);

// "cudaErrorIllegalAddress, an illegal memory access was encountered".
std::string ErrorWords(const ModuleTable& module, Error error);

}  // namespace braid::cuda
