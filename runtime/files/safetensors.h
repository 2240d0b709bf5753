// Files of named tensors in the safetensors format
// (https://huggingface.co/docs/safetensors/index#format): 8 bytes of little-endian header length,
// a JSON header, then the tensors' bytes in C order. What checkpoints are made of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dtype.h"
#include "graph/shape.h"
#include "runtime/files/file.h"

namespace braid {

// A tensor as a file describes it.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;

  int64_t num_bytes() const { return shape.num_elements() * static_cast<int64_t>(SizeOf(dtype)); }
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

// Where everything lies in a file, before a byte of it is written.
struct SafetensorsLayout {
  std::string header;            // with its length prefix and padding to 8 bytes
  std::vector<int64_t> offsets;  // of each tensor, from the start of the file
  int64_t file_bytes = 0;
};

// Tensors lie in the given order, without padding between them (the format aligns the header only).
// Names must be unique, UTF-8 and not "__metadata__".
absl::StatusOr<SafetensorsLayout> LayOutSafetensors(
    const std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata);

// Writes a whole file at once and syncs it; for large ones see CheckpointWriter.
struct TensorBytes {
  StoredTensor tensor;
  const void* bytes = nullptr;
};
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorBytes>& tensors,
                              const std::map<std::string, std::string>& metadata);

// An open file whose header was checked: element types known, ranges consistent with shapes, inside
// the file, without overlaps or gaps. Reads may come from several threads.
class SafetensorsReader {
 public:
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const InputFile& file() const { return file_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // by offset
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr if there is no such tensor.
  const StoredTensor* Find(std::string_view name) const;
  // Where the tensor's bytes start in the file.
  absl::StatusOr<int64_t> OffsetOf(std::string_view name) const;
  // `bytes` bytes of the tensor from its byte `offset` on.
  absl::Status ReadBytes(std::string_view name, int64_t offset, void* out, size_t bytes) const;

 private:
  explicit SafetensorsReader(InputFile file) : file_(std::move(file)) {}
  InputFile file_;
  std::vector<StoredTensor> tensors_;
  std::vector<int64_t> offsets_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace braid
