// Tensors by name in plain files, as any framework writes them: safetensors, whole or in shards
// with an index, or NumPy's .npy. Nothing but names, types and numbers; see checkpoint.h for what
// Braid itself resumes from.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/array.h"
#include "runtime/files/safetensors.h"

namespace braid {

// The headers are read and checked when it is opened, numbers when they are asked for.
class WeightFiles {
 public:
  // `path` is FILE.safetensors, FILE.npy (a tensor named FILE), or a folder: the shards that its
  // model.safetensors.index.json lists, else all its .safetensors files, else its .npy files.
  static absl::StatusOr<WeightFiles> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::vector<StoredTensor> tensors() const;  // by name
  // The .npy files of a folder that has .safetensors: something else, the inputs of a test for one.
  const std::vector<std::string>& ignored() const { return ignored_; }
  // nullptr if there is no such tensor.
  const StoredTensor* Find(std::string_view name) const;
  absl::StatusOr<Array> Read(std::string_view name) const;

 private:
  struct Entry {
    StoredTensor tensor;
    std::string file;
    int shard = -1;  // -1: an .npy file
  };
  absl::Status AddFile(const std::string& file);
  absl::Status AddIndexed(const std::string& index);
  absl::Status Add(Entry entry);

  std::string path_;
  std::vector<std::string> ignored_;
  std::vector<SafetensorsReader> shards_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace braid
