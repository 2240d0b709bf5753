#include "api/onnx/tensor_proto.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/onnx/onnx.pb.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/coded_elements.h"
#include "runtime/files/file.h"

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

std::filesystem::path FolderOf(const std::filesystem::path& file) {
  const std::filesystem::path parent = file.parent_path();
  return parent.empty() ? "." : parent;
}

// With no symbolic links in it, as far as it exists.
std::filesystem::path CanonicalOf(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(path, error);
  return error ? path : canonical;
}

// Whether a path that is relative to some folder names a file below it.
bool GoesDown(const std::filesystem::path& path) {
  return !path.empty() && !path.is_absolute() &&
         std::find(path.begin(), path.end(), "..") == path.end();
}

// Whether a file is below the folder when all symbolic links are followed.
bool LeadsInto(const std::filesystem::path& folder, const std::filesystem::path& file) {
  return GoesDown(CanonicalOf(file).lexically_relative(CanonicalOf(folder)));
}

// A model must not reach what is outside its folder. Where it is a symbolic link itself, as in the
// caches of model hubs, its data may be beside the file that it leads to.
bool MayRead(const std::string& model, const std::filesystem::path& location) {
  const std::filesystem::path folder = FolderOf(model), path = folder / location;
  return GoesDown(location) &&
         (LeadsInto(folder, path) || LeadsInto(FolderOf(CanonicalOf(model)), path));
}

// Where the data of a tensor is that has it in a file beside the model's.
struct Outside {
  std::string path;
  FileRange range;
};
absl::StatusOr<Outside> FindOutside(const TensorProto& tensor, const std::string& model,
                                    int64_t size) {
  std::string location;
  int64_t offset = 0, length = size;
  for (const StringStringEntryProto& entry : tensor.external_data()) {
    bool is_number = true;
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") is_number = absl::SimpleAtoi(entry.value(), &offset);
    if (entry.key() == "length") is_number = absl::SimpleAtoi(entry.value(), &length);
    if (!is_number || offset < 0 || length != size) {
      return absl::DataLossError(absl::StrCat("tensor '", tensor.name(), "' needs ", size,
                                              " bytes of another file, where ", entry.key(),
                                              " is '", entry.value(), "'"));
    }
  }
  if (model.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("tensor '", tensor.name(), "' has its data in another file"));
  }
  if (GoesDown(location) && !MayRead(model, location)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name(), "' has its data in '", location,
                     "', a symbolic link that leads out of the model's folder, to '",
                     CanonicalOf(FolderOf(model) / location).string(), "'; copy the data there"));
  }
  if (!GoesDown(location)) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name(), "' has its data in '",
                                                   location,
                                                   "', which is no file of the model's folder"));
  }
  const std::string path = (FolderOf(model) / location).string();
  std::error_code error;
  const uint64_t available = std::filesystem::file_size(path, error);
  if (error || static_cast<uint64_t>(offset) > available ||
      static_cast<uint64_t>(size) > available - static_cast<uint64_t>(offset)) {
    return absl::DataLossError(absl::StrCat(
        "tensor '", tensor.name(), "' needs ", size, " bytes from ", offset, " on of '", path,
        "', which ", error ? error.message() : absl::StrCat("has ", available)));
  }
  return Outside{path, {.offset = offset, .size = size}};
}

struct ElementName {
  std::string_view name;
  std::optional<DType> dtype;  // none: Braid does not have it
};

// By TensorProto.DataType.
constexpr ElementName kElementNames[] = {{"undefined", {}},
                                         {"float", DType::kF32},
                                         {"uint8", DType::kU8},
                                         {"int8", DType::kI8},
                                         {"uint16", DType::kU16},
                                         {"int16", DType::kI16},
                                         {"int32", DType::kI32},
                                         {"int64", DType::kI64},
                                         {"string", {}},
                                         {"bool", DType::kBool},
                                         {"float16", DType::kF16},
                                         {"double", DType::kF64},
                                         {"uint32", DType::kU32},
                                         {"uint64", DType::kU64},
                                         {"complex64", {}},
                                         {"complex128", {}},
                                         {"bfloat16", DType::kBF16},
                                         {"float8e4m3fn", DType::kF8E4M3Fn},
                                         {"float8e4m3fnuz", DType::kF8E4M3Fnuz},
                                         {"float8e5m2", DType::kF8E5M2},
                                         {"float8e5m2fnuz", DType::kF8E5M2Fnuz},
                                         {"uint4", DType::kU4},
                                         {"int4", DType::kI4},
                                         {"float4e2m1", DType::kF4E2M1},
                                         {"float8e8m0", DType::kF8E8M0},
                                         {"uint2", DType::kU2},
                                         {"int2", DType::kI2}};

// In a file; numbers of fewer than 8 bits share bytes, the first in the lowest bits.
int64_t FileBits(DType dtype) {
  switch (dtype) {
    case DType::kF4E2M1:
    case DType::kI4:
    case DType::kU4:
      return 4;
    case DType::kI2:
    case DType::kU2:
      return 2;
    default:
      return 8 * static_cast<int64_t>(SizeOf(dtype));
  }
}

// Of a tensor in a file.
int64_t FileBytes(const TensorType& type) {
  return (type.shape.num_elements() * FileBits(type.dtype) + 7) / 8;
}

// The bytes of a file as elements stand in memory.
void Unpack(DType dtype, const void* from, size_t bytes, Array& array) {
  std::byte* out = array.mutable_bytes();
  const int64_t bits = FileBits(dtype);
  if (bits < 8) {
    const auto* packed = static_cast<const uint8_t*>(from);
    for (int64_t i = 0; i < array.num_elements(); ++i) {
      const int64_t at = i * bits;
      const auto code = static_cast<uint8_t>((packed[at / 8] >> (at % 8)) & ((1 << bits) - 1));
      out[i] = static_cast<std::byte>(IsWholeNumber(dtype) ? EncodeWhole(dtype, code) : code);
    }
    return;
  }
  if (bytes > 0) std::memcpy(out, from, bytes);
  if (dtype != DType::kBool) return;
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(out[i] != std::byte{0});
}

// Whether a file has them as Arrays do.
bool StandAsInMemory(const TensorType& type, const FileRange& range) {
  const auto bytes = type.shape.num_elements() * static_cast<int64_t>(SizeOf(type.dtype));
  return type.dtype != DType::kBool && range.size == bytes;
}

absl::StatusOr<Array> ReadRange(const TensorType& type, const std::string& path,
                                const FileRange& range) {
  BRAID_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  Array array(type.dtype, type.shape);
  std::byte* const to = array.mutable_bytes();
  if (StandAsInMemory(type, range)) {
    BRAID_RETURN_IF_ERROR(file.ReadAt(range.offset, to, array.num_bytes()));
    return array;
  }
  std::string bytes(static_cast<size_t>(range.size), '\0');
  BRAID_RETURN_IF_ERROR(file.ReadAt(range.offset, bytes.data(), bytes.size()));
  Unpack(type.dtype, bytes.data(), bytes.size(), array);
  return array;
}

// Numbers that ReadRange reads, as long as the file is what it is now.
absl::StatusOr<KnownNumbers> NumbersIn(const TensorType& type, const std::string& path,
                                       const FileRange& range) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  const auto time = std::filesystem::last_write_time(absolute, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot find '", path, "': ", error.message()));
  }
  const std::string file = absolute.string();
  const auto check = [file, time] {
    std::error_code ignored;  // that it is gone says who opens it
    const auto now = std::filesystem::last_write_time(file, ignored);
    if (ignored || now == time) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat(
        "'", file,
        "' has changed since the model was loaded, whose weights it holds; load it again"));
  };
  std::optional<FilePart> place;
  if (StandAsInMemory(type, range)) place = FilePart{.path = file, .offset = range.offset};
  return KnownNumbers(
      type, [type, range, file] { return ReadRange(type, file, range); }, std::move(place), check);
}

absl::StatusOr<TensorType> TypeOf(const TensorProto& tensor) {
  const absl::StatusOr<DType> known = DTypeOf(tensor.data_type());
  if (!known.ok()) return Prefixed(absl::StrCat("tensor '", tensor.name(), "'"), known.status());
  BRAID_ASSIGN_OR_RETURN(Shape shape, ShapeOf(tensor, tensor.name()));
  return TensorType{*known, std::move(shape)};
}

absl::Status CheckSize(const TensorProto& tensor, const TensorType& type, int64_t bytes) {
  if (bytes == FileBytes(type)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("tensor '", tensor.name(), "' is ", type.ToString(),
                                          " and has ", bytes, " bytes of data"));
}

// The lowest `size` bytes of each of the words.
template <class Words>
std::string NarrowWords(const Words& words, size_t size) {
  std::string bytes;
  for (const auto word : words) {
    for (size_t i = 0; i < size; ++i) {
      bytes.push_back(static_cast<char>(static_cast<uint64_t>(word) >> (8 * i)));
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<DType> DTypeOf(int64_t onnx_type) {
  if (onnx_type < 0 || onnx_type >= static_cast<int64_t>(std::size(kElementNames))) {
    return absl::UnimplementedError(absl::StrCat("element type of number ", onnx_type));
  }
  const ElementName& element = kElementNames[onnx_type];
  if (element.dtype) return *element.dtype;
  return absl::UnimplementedError(absl::StrCat("element type ", std::string(element.name)));
}

absl::StatusOr<Array> ToArray(const TensorProto& tensor, const std::string& model) {
  BRAID_ASSIGN_OR_RETURN(const TensorType type, TypeOf(tensor));
  const DType dtype = type.dtype;
  const int64_t bytes_needed = FileBytes(type);
  if (tensor.data_location() == TensorProto::EXTERNAL) {
    BRAID_ASSIGN_OR_RETURN(const Outside outside, FindOutside(tensor, model, bytes_needed));
    return ReadRange(type, outside.path, outside.range);
  }
  // Checked before memory is taken for what a damaged file claims.
  const auto copy = [&](const void* from, size_t bytes) -> absl::StatusOr<Array> {
    BRAID_RETURN_IF_ERROR(CheckSize(tensor, type, static_cast<int64_t>(bytes)));
    Array array(type.dtype, type.shape);
    Unpack(type.dtype, from, bytes, array);
    return array;
  };
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
  const size_t size = SizeOf(dtype);
  const bool is_wide = dtype == DType::kU32 || dtype == DType::kU64;
  const std::string bytes =
      is_wide ? NarrowWords(tensor.uint64_data(), size) : NarrowWords(tensor.int32_data(), size);
  return copy(bytes.data(), bytes.size());
}

absl::StatusOr<KnownNumbers> ToNumbers(const TensorProto& tensor, const std::string& model,
                                       std::optional<FileRange> left_out) {
  BRAID_ASSIGN_OR_RETURN(const TensorType type, TypeOf(tensor));
  const int64_t bytes = FileBytes(type);
  if (tensor.data_location() == TensorProto::EXTERNAL && bytes >= kLeastLeftInFile) {
    BRAID_ASSIGN_OR_RETURN(const Outside outside, FindOutside(tensor, model, bytes));
    return NumbersIn(type, outside.path, outside.range);
  }
  if (left_out.has_value()) {
    BRAID_RETURN_IF_ERROR(CheckSize(tensor, type, left_out->size));
    return NumbersIn(type, model, *left_out);
  }
  BRAID_ASSIGN_OR_RETURN(Array array, ToArray(tensor, model));
  return KnownNumbers(std::move(array));
}

absl::StatusOr<Array> ToArray(const SparseTensorProto& tensor, const std::string& model) {
  BRAID_ASSIGN_OR_RETURN(const Array values, ToArray(tensor.values(), model));
  BRAID_ASSIGN_OR_RETURN(const Array indices, ToArray(tensor.indices(), model));
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
