// A Dataset is a sequence of samples that a node can read in any order; readers of a plan ask it
// for the samples they are due. A DatasetSpec says which one, as a value that travels in a plan; a
// node's DatasetCache (dataset_kinds.h) opens it and shares it among the node's devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dtype.h"
#include "graph/shape.h"
#include "runtime/data/dataset_spec.h"

namespace braid {

struct DatasetField {
  std::string name;  // "image"
  DType dtype;       // what it is delivered as unless the reader asks for another
  Shape shape;       // of one sample
};

// Immutable after opening; any thread may read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t num_samples() const = 0;
  virtual int64_t memory_bytes() const { return 0; }  // of the samples that it holds
  virtual const std::vector<DatasetField>& fields() const = 0;
  // Of what it was made from, so that nodes find out whether they have the same: checksums and
  // sizes, of large files of blocks all over them. 0: the spec says all.
  virtual uint64_t fingerprint() const = 0;
  // Writes field `field` of each of `samples`, in their order, densely to `out`, which has room for
  // samples.size() * fields()[field].shape.num_elements() elements of `dtype`. Numbers are
  // converted as by ConvertElements.
  virtual absl::Status Read(std::span<const int64_t> samples, int field, DType dtype,
                            void* out) const = 0;
};

// A fingerprint that goes on from `before` (0 at first) with these bytes.
uint64_t AddToFingerprint(uint64_t before, std::span<const std::byte> bytes);

// OUT_OF_RANGE if a sample or the field is not there.
absl::Status CheckRead(const Dataset& dataset, std::span<const int64_t> samples, int field);

}  // namespace braid
