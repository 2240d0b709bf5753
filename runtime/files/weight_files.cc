#include "runtime/files/weight_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/files/checkpoint_format.h"
#include "runtime/files/npy.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSafetensors = ".safetensors", kNpy = ".npy";

}  // namespace

absl::StatusOr<WeightFiles> WeightFiles::Open(const std::string& path) {
  WeightFiles files;
  files.path_ = path;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    BRAID_RETURN_IF_ERROR(files.AddFile(path));
    return files;
  }
  const std::string index = path + "/" + kIndexFile;
  if (fs::exists(index, error)) {
    BRAID_RETURN_IF_ERROR(files.AddIndexed(index));
    return files;
  }
  std::vector<std::string> found, arrays;
  fs::directory_iterator each(path, error);
  for (; !error && each != fs::directory_iterator(); each.increment(error)) {
    const std::string name = each->path().string();
    if (name.ends_with(kSafetensors)) found.push_back(name);
    if (name.ends_with(kNpy)) arrays.push_back(name);
  }
  if (error) {
    return absl::UnavailableError(
        absl::StrFormat("cannot list the folder '%s': %s", path, error.message()));
  }
  if (found.empty()) {
    found = std::move(arrays);
  } else {
    std::sort(arrays.begin(), arrays.end());
    files.ignored_ = std::move(arrays);
  }
  if (found.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("the folder '%s' holds no .safetensors and no .npy file", path));
  }
  std::sort(found.begin(), found.end());
  for (const std::string& file : found) BRAID_RETURN_IF_ERROR(files.AddFile(file));
  return files;
}

absl::Status WeightFiles::AddIndexed(const std::string& index) {
  BRAID_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(index, kMaxSideFileBytes));
  BRAID_ASSIGN_OR_RETURN(const CheckpointIndex parsed, ParseIndex(index, text));
  std::set<std::string> shards;
  for (const auto& [tensor, file] : parsed.weight_map) shards.insert(file);
  for (const std::string& shard : shards) BRAID_RETURN_IF_ERROR(AddFile(path_ + "/" + shard));
  for (const auto& [tensor, file] : parsed.weight_map) {
    if (Find(tensor) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' says that tensor '%s' is in '%s', which does not hold it", index, tensor, file));
  }
  return absl::OkStatus();
}

absl::Status WeightFiles::AddFile(const std::string& file) {
  if (file.ends_with(kNpy)) {
    BRAID_ASSIGN_OR_RETURN(const InputFile input, InputFile::Open(file));
    BRAID_ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(input));
    return Add({{fs::path(file).stem().string(), header.dtype, header.shape}, file});
  }
  if (!file.ends_with(kSafetensors)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is neither a .safetensors nor an .npy file nor a folder of such", file));
  }
  BRAID_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(file));
  const int shard = static_cast<int>(shards_.size());
  for (const StoredTensor& tensor : reader.tensors()) {
    BRAID_RETURN_IF_ERROR(Add({tensor, file, shard}));
  }
  shards_.push_back(std::move(reader));
  return absl::OkStatus();
}

absl::Status WeightFiles::Add(Entry entry) {
  const auto [other, is_new] = entries_.try_emplace(entry.tensor.name, entry);
  if (is_new) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("tensor '%s' is in '%s' and in '%s'; leave one of the files away",
                      entry.tensor.name, other->second.file, entry.file));
}

std::vector<StoredTensor> WeightFiles::tensors() const {
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : entries_) tensors.push_back(entry.tensor);
  return tensors;
}

const StoredTensor* WeightFiles::Find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second.tensor;
}

absl::StatusOr<Array> WeightFiles::Read(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return absl::NotFoundError(absl::StrFormat("'%s' holds no tensor '%s'", path_, name));
  }
  const Entry& entry = found->second;
  if (entry.shard < 0) {
    BRAID_ASSIGN_OR_RETURN(Array array, Array::ReadNpy(entry.file));
    // Callers have planned with what the header said when the file was opened.
    if (array.dtype() == entry.tensor.dtype && array.shape() == entry.tensor.shape) return array;
    return absl::AbortedError(
        absl::StrFormat("'%s' has changed while it was read: it was %s%s and is %s%s", entry.file,
                        std::string(ToString(entry.tensor.dtype)), entry.tensor.shape.ToString(),
                        std::string(ToString(array.dtype())), array.shape().ToString()));
  }
  Array array(entry.tensor.dtype, entry.tensor.shape);
  BRAID_RETURN_IF_ERROR(
      shards_[entry.shard].ReadBytes(name, 0, array.mutable_bytes(), array.num_bytes()));
  return array;
}

}  // namespace braid
