// The small files beside a checkpoint's tensors: the index that common tools read, the state of
// training, and the checksums. checkpoint.{h,cc} says how they are used.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace braid {

inline constexpr char kIndexFile[] = "model.safetensors.index.json";
inline constexpr char kStateFile[] = "state.json";
inline constexpr char kChecksumsFile[] = "checksums.json";
inline constexpr std::string_view kTemporarySuffix = ".tmp";  // of what is not whole
inline constexpr int64_t kMaxSideFileBytes = int64_t{1} << 30;

// Whether a checkpoint may be called so: letters, digits, '-', '_' and '.', beginning with one of
// the first two and not ending as revisions and temporary files do; not "latest" or "lock".
bool IsCheckpointName(std::string_view name);
// NAME of NAME and of its revisions NAME.2, NAME.3 and so on.
std::string_view BaseOf(std::string_view name);
// 1 for NAME itself, 2 for NAME.2.
int64_t RevisionOf(std::string_view name);
// N of step-N and its revisions.
std::optional<int64_t> StepOf(std::string_view name);

// {"metadata": {"total_size": bytes of all tensors}, "weight_map": {tensor: file}}
struct CheckpointIndex {
  int64_t total_size = 0;
  std::map<std::string, std::string> weight_map;
};

// {"format": 1, "step": 12, "values": {"train.reader": 768}}
struct CheckpointState {
  int64_t step = 0;
  std::map<std::string, int64_t> values;
};

// {"format": 1, "algorithm": "crc32c", "block_bytes": 4194304,
//  "files": {file: {"bytes": 5000000, "blocks": ["1f2e3d4c", ..]}}}
struct FileChecksums {
  int64_t bytes = 0;
  std::vector<uint32_t> blocks;
};
using CheckpointChecksums = std::map<std::string, FileChecksums>;

// The file of that name in a checkpoint's folder.
std::string PathIn(const std::string& folder, std::string_view name);

std::string FormatIndex(const CheckpointIndex& index);
std::string FormatState(const CheckpointState& state);
std::string FormatChecksums(const CheckpointChecksums& checksums);

// `path` is named in errors. File names are checked to be plain names, not paths.
absl::StatusOr<CheckpointIndex> ParseIndex(const std::string& path, std::string_view text);
absl::StatusOr<CheckpointState> ParseState(const std::string& path, std::string_view text);
absl::StatusOr<CheckpointChecksums> ParseChecksums(const std::string& path, std::string_view text);

}  // namespace braid
