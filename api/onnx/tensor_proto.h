// Tensors of ONNX files as Arrays.
#pragma once

#include <braid/onnx.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/array.h"

namespace braid::onnx {

class SparseTensorProto;
class TensorProto;

// Text, of TensorProto.DataType.
inline constexpr int64_t kStringType = 8;
// Of TensorProto.DataType; UNIMPLEMENTED for what Braid does not have.
absl::StatusOr<DType> DTypeOf(int64_t onnx_type);

// DATA_LOSS if dims and data disagree. Data may be in another file of the folder of `model`, which
// is a path; with "", UNIMPLEMENTED.
absl::StatusOr<Array> ToArray(const TensorProto& tensor, const std::string& model = "");
absl::StatusOr<Array> ToArray(const SparseTensorProto& tensor, const std::string& model = "");

// Bytes of a file.
struct FileRange {
  int64_t offset = 0, size = 0;
};
// Weights of fewer bytes are read with the model.
inline constexpr int64_t kLeastLeftInFile = 1 << 16;
// As ToArray, but what is large and in a file stays there: in another one of the folder of `model`,
// or in `left_out` of `model` itself, the tensor's raw_data.
absl::StatusOr<KnownNumbers> ToNumbers(const TensorProto& tensor, const std::string& model,
                                       std::optional<FileRange> left_out);

}  // namespace braid::onnx
