// One node's share in a checkpoint that all nodes of a session write together. The master lays out
// the files (CheckpointWriter); in a folder that they see, too, the other nodes write what their
// devices hold straight to its place, so that no tensor has to be whole anywhere.
//
//   DIR/NAME.tmp/part-of       a number: which save this is
//   DIR/NAME.tmp/part-3        what node 3 wrote: a line "FILE OFFSET BYTES CRC32C" for each
//                              stretch, none of which crosses a checksum's block; then "end"
//
// What is written is copied into the system's cache of the file, so that the variables may change;
// bringing it from there to the disk is a step of its own, for which nobody has to wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/files/block_checksums.h"
#include "runtime/files/file.h"

namespace braid {

inline constexpr char kPartPrefix[] = "part-";
inline constexpr char kPartOfFile[] = "part-of";

std::string PartName(int node);

// What was written of each file, by the file's name.
using Stretches = std::map<std::string, BlockChecksums>;
// `path` is named in errors.
absl::StatusOr<Stretches> ParseStretches(const std::string& path, const std::string& text);

// Writers may be on several threads.
class CheckpointPart : public std::enable_shared_from_this<CheckpointPart> {
 public:
  struct Options {
    std::string directory;  // DIR/NAME.tmp
    int64_t save = 0;       // what part-of says
    std::string name;       // PartName
    // Called by the last writer's End: all is written, and Finish is to be called, on any thread.
    std::function<void(std::shared_ptr<CheckpointPart>)> on_written = {};
  };
  // NOT_FOUND if this node does not see the folder, or sees another one there.
  static absl::StatusOr<std::shared_ptr<CheckpointPart>> Open(Options options);

  // One more writer: it must come to its End. NOT_FOUND if this node cannot write to the file.
  absl::Status Expect(const std::string& file);
  // Bytes that nobody else writes, of a file that was expected; `written` is the writer's own.
  absl::Status Write(const std::string& file, int64_t position, const void* data, size_t bytes,
                     BlockChecksums& written);
  // A writer's end.
  absl::Status End(const std::string& file, const BlockChecksums& written);
  // Brings all to the disk, which may take long, and lets the master read what it was.
  absl::Status Finish();

  int64_t save() const { return options_.save; }

 private:
  explicit CheckpointPart(Options options) : options_(std::move(options)) {}

  const Options options_;
  Mutex mutex_;
  int expected_ BRAID_GUARDED_BY(mutex_) = 0;
  std::map<std::string, OutputFile> files_ BRAID_GUARDED_BY(mutex_);  // entries stay where they are
  Stretches written_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
