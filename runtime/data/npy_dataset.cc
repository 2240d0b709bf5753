// .npy files as a dataset: each file a field, the first axis counts the samples. Rows are read from
// the files when they are due; nothing is kept in memory.
#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/array.h"
#include "runtime/base/status.h"
#include "runtime/data/kinds.h"
#include "runtime/files/file.h"
#include "runtime/files/npy.h"

namespace braid {
namespace {

struct Source {
  InputFile file;
  NpyHeader header;
};

class NpyDataset final : public Dataset {
 public:
  NpyDataset(std::vector<Source> sources, std::vector<DatasetField> fields, SampleRange range,
             uint64_t fingerprint)
      : sources_(std::move(sources)),
        fields_(std::move(fields)),
        range_(range),
        fingerprint_(fingerprint) {}

  int64_t num_samples() const override { return range_.count; }
  const std::vector<DatasetField>& fields() const override { return fields_; }
  uint64_t fingerprint() const override { return fingerprint_; }

  absl::Status Read(std::span<const int64_t> samples, int field, DType dtype,
                    void* out) const override {
    BRAID_RETURN_IF_ERROR(CheckRead(*this, samples, field));
    const Source& source = sources_[static_cast<size_t>(field)];
    const DType stored = source.header.dtype;
    const int64_t elements = fields_[static_cast<size_t>(field)].shape.num_elements();
    const int64_t row_bytes = elements * static_cast<int64_t>(SizeOf(stored));
    auto* next = static_cast<std::byte*>(out);
    std::array<std::byte, 16 << 10> stored_part;  // of what is converted on the way
    const int64_t part = static_cast<int64_t>(stored_part.size() / SizeOf(stored));
    for (size_t i = 0; i < samples.size();) {
      // Neighbours in the file are read at once.
      size_t run = 1;
      while (i + run < samples.size() &&
             samples[i + run] == samples[i] + static_cast<int64_t>(run)) {
        ++run;
      }
      const int64_t n = static_cast<int64_t>(run) * elements;
      const int64_t offset = source.header.data_offset + (range_.first + samples[i]) * row_bytes;
      const size_t bytes = run * static_cast<size_t>(row_bytes);
      if (stored == dtype && dtype != DType::kBool) {
        BRAID_RETURN_IF_ERROR(source.file.ReadAt(offset, next, bytes));
      } else {
        for (int64_t first = 0; first < n; first += part) {
          const int64_t count = std::min(part, n - first);
          BRAID_RETURN_IF_ERROR(
              source.file.ReadAt(offset + first * static_cast<int64_t>(SizeOf(stored)),
                                 stored_part.data(), static_cast<size_t>(count) * SizeOf(stored)));
          ConvertElements(stored, stored_part.data(), dtype,
                          next + static_cast<size_t>(first) * SizeOf(dtype), count);
        }
      }
      next += static_cast<size_t>(n) * SizeOf(dtype);
      i += run;
    }
    return absl::OkStatus();
  }

 private:
  std::vector<Source> sources_;
  std::vector<DatasetField> fields_;
  SampleRange range_;
  uint64_t fingerprint_;
};

// Of the file's size, and of up to 64 blocks of 64 KiB from its first byte to its last: of all that
// a file of 4 MiB has.
absl::StatusOr<uint64_t> FingerprintOf(const InputFile& file, uint64_t before) {
  constexpr int64_t kMostBlocks = 64, kBlockBytes = int64_t{64} << 10;
  const int64_t size = file.size(), bytes = std::min(size, kBlockBytes);
  uint64_t fingerprint = AddToFingerprint(before, std::as_bytes(std::span(&size, 1)));
  const int64_t blocks =
      std::clamp<int64_t>((size + kBlockBytes - 1) / kBlockBytes, 1, kMostBlocks);
  std::vector<std::byte> block(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = blocks < 2 ? 0 : i * (size - bytes) / (blocks - 1);
    BRAID_RETURN_IF_ERROR(file.ReadAt(begin, block.data(), block.size()));
    fingerprint = AddToFingerprint(fingerprint, block);
  }
  return fingerprint;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpy(const DatasetSpec& spec) {
  SpecReader params(spec);
  const int64_t num_fields = params.TakeInteger("fields", 0);
  std::vector<std::string> names, paths;
  // At most as many as the spec has parameters, whatever the number claims.
  for (int64_t i = 0; i < num_fields && i < static_cast<int64_t>(spec.params.size()); ++i) {
    names.push_back(params.TakeString(absl::StrCat("name", i)));
    paths.push_back(params.TakeString(absl::StrCat("path", i)));
  }
  SampleRange range = params.TakeRange();
  BRAID_RETURN_IF_ERROR(params.Finish());
  if (names.empty()) return absl::InvalidArgumentError("an npy dataset needs at least one file");

  std::vector<Source> sources;
  std::vector<DatasetField> fields;
  for (size_t i = 0; i < names.size(); ++i) {
    BRAID_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(paths[i]));
    BRAID_ASSIGN_OR_RETURN(NpyHeader header, ReadNpyHeader(file));
    if (header.shape.rank() == 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "'%s' holds a single number; its first axis must count the samples", paths[i]));
    }
    if (i > 0 && header.shape[0] != sources[0].header.shape[0]) {
      return absl::InvalidArgumentError(
          absl::StrFormat("'%s' holds %d samples but '%s' holds %d: they do not belong together",
                          paths[0], sources[0].header.shape[0], paths[i], header.shape[0]));
    }
    const std::vector<int64_t>& dims = header.shape.dims();
    fields.push_back(
        {names[i], header.dtype, Shape(std::vector<int64_t>(dims.begin() + 1, dims.end()))});
    sources.push_back({std::move(file), std::move(header)});
  }
  const int64_t total = sources[0].header.shape[0];
  if (range.count == -1) range.count = std::max<int64_t>(total - range.first, 0);
  if (range.count == 0 || range.first > total || range.count > total - range.first) {
    return absl::OutOfRangeError(
        absl::StrFormat("'%s' holds %d samples; samples from %d, %d of them, were asked for",
                        paths[0], total, range.first, range.count));
  }
  uint64_t fingerprint = 0;
  for (const Source& source : sources) {
    BRAID_ASSIGN_OR_RETURN(fingerprint, FingerprintOf(source.file, fingerprint));
  }
  return std::make_shared<const NpyDataset>(std::move(sources), std::move(fields), range,
                                            fingerprint);
}

}  // namespace braid
