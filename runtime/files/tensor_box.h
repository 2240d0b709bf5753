// Boxes of tensors in files: which bytes of a file they are, piece by piece, without a list of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/files/safetensors.h"

namespace braid {

// The elements with index begin[d] <= i < begin[d] + sizes[d] along every axis d.
struct TensorBox {
  std::vector<int64_t> begin;
  std::vector<int64_t> sizes;
};

// A tensor whose elements stand one after another in a file, from byte `offset` on.
struct TensorInFile {
  const std::string& path;  // for errors
  const StoredTensor& tensor;
  int64_t offset;
};

// Position in the file and bytes of each contiguous piece of a box, in order. OUT_OF_RANGE if it is
// not inside the tensor; an error of `on_run` ends it.
using OnRun = absl::FunctionRef<absl::Status(int64_t position, size_t bytes)>;
absl::Status ForEachRun(const TensorInFile& in, const TensorBox& box, OnRun on_run);

}  // namespace braid
