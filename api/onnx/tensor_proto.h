// Tensors of ONNX files as Arrays.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/array.h"

namespace braid::onnx {

class SparseTensorProto;
class TensorProto;

// Of TensorProto.DataType; UNIMPLEMENTED for what Braid does not have.
absl::StatusOr<DType> DTypeOf(int64_t onnx_type);

// DATA_LOSS if dims and data disagree. Data may be in another file of `folder`; with "",
// UNIMPLEMENTED.
absl::StatusOr<Array> ToArray(const TensorProto& tensor, const std::string& folder = "");
absl::StatusOr<Array> ToArray(const SparseTensorProto& tensor);

}  // namespace braid::onnx
