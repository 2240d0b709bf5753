// The header of NumPy's .npy files; Array and the npy datasets read what follows it.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "graph/dtype.h"
#include "graph/shape.h"
#include "runtime/files/file.h"

namespace braid {

struct NpyHeader {
  DType dtype = DType::kF32;
  Shape shape;
  int64_t data_offset = 0;  // bytes from the start of the file
};

// Also checks that the file holds all elements.
absl::StatusOr<NpyHeader> ReadNpyHeader(const InputFile& file);

// Everything before the data, padded so that the data starts at a multiple of 64 bytes.
absl::StatusOr<std::string> FormatNpyHeader(DType dtype, const Shape& shape);

}  // namespace braid
