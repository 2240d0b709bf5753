#include "api/onnx/tensor_proto.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/onnx/onnx.pb.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// Files are at most 2 GiB (protobuf), so no tensor in one is larger.
constexpr int64_t kMaxInitializerElements = int64_t{1} << 31;

// Of a TensorProto or a SparseTensorProto.
template <class Proto>
absl::StatusOr<Shape> ShapeOf(const Proto& tensor, const std::string& name) {
  int64_t elements = 1;
  for (int64_t dim : tensor.dims()) {
    if (dim < 0 || (dim > 0 && elements > kMaxInitializerElements / dim)) {
      return absl::DataLossError(absl::StrCat("tensor '", name, "' has the shape [",
                                              absl::StrJoin(tensor.dims(), ", "), "]"));
    }
    if (dim > 0) elements *= dim;
  }
  return Shape(std::vector<int64_t>(tensor.dims().begin(), tensor.dims().end()));
}

// The bytes of a tensor whose data is in a file beside the model's.
absl::StatusOr<std::string> ReadOutside(const TensorProto& tensor, const std::string& folder,
                                        size_t size) {
  std::string location;
  uint64_t offset = 0, length = size;
  for (const StringStringEntryProto& entry : tensor.external_data()) {
    bool is_number = true;
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") is_number = absl::SimpleAtoi(entry.value(), &offset);
    if (entry.key() == "length") is_number = absl::SimpleAtoi(entry.value(), &length);
    if (!is_number || length != size) {
      return absl::DataLossError(absl::StrCat("tensor '", tensor.name(), "' needs ", size,
                                              " bytes of another file, where ", entry.key(),
                                              " is '", entry.value(), "'"));
    }
  }
  if (folder.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("tensor '", tensor.name(), "' has its data in another file"));
  }
  // A model must not reach what is outside its folder.
  const std::filesystem::path relative(location);
  const bool goes_up = std::find(relative.begin(), relative.end(), "..") != relative.end();
  if (location.empty() || relative.is_absolute() || goes_up) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name(), "' has its data in '",
                                                   location,
                                                   "', which is no file of the model's folder"));
  }
  const std::string path = (std::filesystem::path(folder) / relative).string();
  std::error_code error;
  const uint64_t available = std::filesystem::file_size(path, error);
  if (error || offset > available || size > available - offset) {
    return absl::DataLossError(absl::StrCat(
        "tensor '", tensor.name(), "' needs ", size, " bytes from ", offset, " on of '", path,
        "', which ", error ? error.message() : absl::StrCat("has ", available)));
  }
  std::string bytes(size, '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  if (file.read(bytes.data(), static_cast<std::streamsize>(size))) return bytes;
  return absl::DataLossError(absl::StrCat("cannot read '", path, "'"));
}

}  // namespace

absl::StatusOr<DType> DTypeOf(int64_t onnx_type) {
  switch (onnx_type) {
    case 1:
      return DType::kF32;
    case 2:
      return DType::kU8;
    case 6:
      return DType::kI32;
    case 7:
      return DType::kI64;
    case 9:
      return DType::kBool;
    case 10:
      return DType::kF16;
    case 11:
      return DType::kF64;
    case 16:
      return DType::kBF16;
    default:
      break;
  }
  constexpr const char* kNames[] = {
      "undefined", "", "", "int8", "uint16", "int16",  "",          "",
      "string",    "", "", "",     "uint32", "uint64", "complex64", "complex128"};
  return absl::UnimplementedError(absl::StrCat(
      "element type ", onnx_type >= 0 && onnx_type < 16 ? kNames[onnx_type] : "of number ",
      onnx_type >= 0 && onnx_type < 16 ? "" : std::to_string(onnx_type)));
}

absl::StatusOr<Array> ToArray(const TensorProto& tensor, const std::string& folder) {
  BRAID_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(tensor.data_type()));
  BRAID_ASSIGN_OR_RETURN(Shape shape, ShapeOf(tensor, tensor.name()));
  const auto bytes_needed = static_cast<size_t>(shape.num_elements()) * SizeOf(dtype);
  std::string outside;  // the data, if it is in another file
  if (tensor.data_location() == TensorProto::EXTERNAL) {
    BRAID_ASSIGN_OR_RETURN(outside, ReadOutside(tensor, folder, bytes_needed));
  }
  // Checked before memory is taken for what a damaged file claims.
  const auto copy = [&](const void* from, size_t bytes) -> absl::StatusOr<Array> {
    if (bytes != bytes_needed) {
      return absl::DataLossError(absl::StrCat("tensor '", tensor.name(), "' is ",
                                              std::string(braid::ToString(dtype)), shape.ToString(),
                                              " and has ", bytes, " bytes of data"));
    }
    Array array(dtype, std::move(shape));
    if (bytes > 0) std::memcpy(array.mutable_bytes(), from, bytes);
    if (dtype != DType::kBool) return array;
    for (size_t i = 0; i < bytes; ++i) {
      std::byte& element = array.mutable_bytes()[i];
      element = static_cast<std::byte>(element != std::byte{0});
    }
    return array;
  };
  if (tensor.data_location() == TensorProto::EXTERNAL) return copy(outside.data(), outside.size());
  if (tensor.has_raw_data()) return copy(tensor.raw_data().data(), tensor.raw_data().size());
  switch (dtype) {
    case DType::kF32:
      return copy(tensor.float_data().data(), tensor.float_data_size() * sizeof(float));
    case DType::kF64:
      return copy(tensor.double_data().data(), tensor.double_data_size() * sizeof(double));
    case DType::kI64:
      return copy(tensor.int64_data().data(), tensor.int64_data_size() * sizeof(int64_t));
    case DType::kI32:
      return copy(tensor.int32_data().data(), tensor.int32_data_size() * sizeof(int32_t));
    default:
      break;
  }
  // Narrow types stand in the lower bits of int32_data.
  const size_t size = SizeOf(dtype);
  std::string bytes;
  for (int32_t word : tensor.int32_data()) {
    for (size_t i = 0; i < size; ++i) {
      bytes.push_back(static_cast<char>(static_cast<uint32_t>(word) >> (8 * i)));
    }
  }
  return copy(bytes.data(), bytes.size());
}

absl::StatusOr<Array> ToArray(const SparseTensorProto& tensor) {
  BRAID_ASSIGN_OR_RETURN(const Array values, ToArray(tensor.values()));
  BRAID_ASSIGN_OR_RETURN(const Array indices, ToArray(tensor.indices()));
  BRAID_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(tensor, tensor.values().name()));
  const int64_t count = values.num_elements(), all = shape.num_elements();
  // What is zero stands in no file: this alone keeps its memory in bounds.
  constexpr int64_t kMaxDense = int64_t{1} << 24;
  const bool is_flat = indices.shape().rank() == 1;
  const int64_t per_value = is_flat ? 1 : shape.rank();
  if (indices.dtype() != DType::kI64 || all > kMaxDense ||
      indices.num_elements() != count * per_value) {
    return absl::DataLossError(absl::StrCat("sparse tensor '", tensor.values().name(), "' ",
                                            shape.ToString(), " has ", count, " values at ",
                                            indices.shape().ToString()));
  }
  Array dense(values.dtype(), shape);
  const size_t size = SizeOf(values.dtype());
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    for (int64_t k = 0; k < per_value; ++k) {
      const int64_t index = indices.data<int64_t>()[i * per_value + k];
      const int64_t bound = is_flat ? all : shape[static_cast<int>(k)];
      if (index < 0 || index >= bound) {
        return absl::DataLossError(absl::StrCat("sparse tensor '", tensor.values().name(),
                                                "' has an index ", index, " of ", bound));
      }
      at = at * bound + index;
    }
    std::memcpy(dense.mutable_bytes() + at * size, values.bytes() + i * size, size);
  }
  return dense;
}

}  // namespace braid::onnx
