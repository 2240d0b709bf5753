// Checkpoints: directories of logical tensors that any number of devices, under any layout, can
// load, each node reading only the ranges that it needs.
//
//   DIR/latest                                   one line: the name of the newest checkpoint
//   DIR/step-12/model-00001-of-00002.safetensors the tensors; none is cut over files
//   DIR/step-12/model.safetensors.index.json     tensor -> file, as common tools read it
//   DIR/step-12/state.json                       the step, and what else must be resumed
//   DIR/step-12/checksums.json                   CRC32C of every 4 MiB block of the files above
//
// It is written as DIR/step-12.tmp, synced, renamed, and then `latest` is replaced: a checkpoint
// appears whole or not at all, and at every moment `latest` names a whole one. Saving the same name
// again makes step-12.2 and removes step-12 once `latest` names the new one; DIR/step-12 then means
// DIR/step-12.2.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/files/block_checksums.h"
#include "runtime/files/checkpoint_format.h"
#include "runtime/files/file.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/tensor_box.h"

namespace braid {

struct CheckpointOptions {
  std::string directory;  // DIR; made if it is not there
  std::string name;       // "": step-N
  int keep = 0;           // the last so many step-N stay, those that are named stay, too; 0: all
  CheckpointState state;  // the step and named numbers, e.g. readers' positions
  std::vector<StoredTensor> tensors;       // all that will be written
  int64_t max_file_bytes = 5'000'000'000;  // a larger tensor gets a file of its own
  // Called before each step of Commit that changes the directory, with its name; a test looks at
  // what a crash there would leave.
  std::function<void(std::string_view step)> before_step;
};

// One at a time for a directory. Not thread-safe. Holds no tensor's bytes.
class CheckpointWriter {
 public:
  // Removes what a crashed writer left, and lays out the files. INVALID_ARGUMENT for a name that
  // means something else in a folder of checkpoints.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Begin(CheckpointOptions options);
  // Without a Commit that succeeded, removes what was written.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Lets nodes write into the files at once (checkpoint_part.h); the number of this save.
  absl::StatusOr<int64_t> Share();
  const std::string& temporary() const { return temporary_; }  // where the files are: DIR/NAME.tmp
  // Where a tensor's bytes begin; it is among those of the options.
  struct Position {
    std::string file;
    int64_t offset = 0;
  };
  Position PositionOf(std::string_view tensor) const;
  // Takes over what a node says it wrote, by the PartName.
  absl::Status AddPart(const std::string& name);

  // Bytes [offset, offset + bytes) of a tensor in C order; every byte once, in any order.
  absl::Status Write(std::string_view tensor, int64_t offset, const void* data, size_t bytes);

  // The path of the checkpoint, e.g. DIR/step-12. FAILED_PRECONDITION names a byte range that was
  // not written.
  absl::StatusOr<std::string> Commit();

 private:
  struct File {
    std::string name;
    OutputFile output;
    int64_t bytes;
    BlockChecksums checksums;
    std::vector<StoredTensor> tensors;
    std::vector<int64_t> offsets;  // of the tensors
  };
  struct Place {
    size_t file;
    size_t tensor;
  };
  explicit CheckpointWriter(CheckpointOptions options);
  absl::Status LayOut();
  absl::Status ReplaceLatest(const std::string& name) const;
  // Of those that were there before, what has a successor or is too old.
  absl::Status RemoveOld(const std::vector<std::string>& names) const;
  absl::Status WriteSideFile(const std::string& name, const std::string& contents);
  absl::Status CheckComplete(const File& file) const;
  void Observe(std::string_view step) const;

  CheckpointOptions options_;
  std::string temporary_;  // DIR/NAME.tmp
  std::vector<File> files_;
  std::map<std::string, Place, std::less<>> places_;
  CheckpointChecksums checksums_;
  bool is_shared_ = false;
  bool is_committed_ = false;
};

// Reads may come from several threads. Every block that is read is checked against its checksum;
// the last few are kept, since small tensors and narrow boxes fall into the same ones again and
// again. One reader serves all that read the same checkpoint.
class CheckpointReader {
 public:
  // `path` is DIR (then its latest) or DIR/NAME.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(const std::string& path);

  const std::string& path() const { return path_; }  // DIR/NAME
  // A checksum of the checksums, so of all bytes: readers that have the same read the same.
  uint32_t identity() const { return identity_; }
  const CheckpointState& state() const { return state_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // by name

  // NOT_FOUND names the nearest tensors.
  absl::StatusOr<StoredTensor> Info(std::string_view tensor) const;
  // Bytes [offset, offset + bytes) of a tensor in C order.
  absl::Status ReadBytes(std::string_view tensor, int64_t offset, void* out, size_t bytes) const;
  // Its elements, contiguous.
  absl::Status ReadBox(std::string_view tensor, const TensorBox& box, void* out) const;
  // Whether ReadBox of this will find its blocks whole. Each block is read once, however many boxes
  // it has a part of.
  absl::Status Verify(std::string_view tensor, const TensorBox& box) const;

 private:
  struct File {
    SafetensorsReader reader;
    FileChecksums checksums;
  };
  struct BlockId {
    size_t file = 0;
    int64_t index = 0;
    friend auto operator<=>(const BlockId&, const BlockId&) = default;
  };
  // Read by the first who needs it, while the others wait.
  struct Block {
    explicit Block(BlockId block) : id(block) {}
    const BlockId id;
    Mutex mutex;
    bool is_read BRAID_GUARDED_BY(mutex) = false;
    absl::Status status BRAID_GUARDED_BY(mutex);
    std::vector<std::byte> bytes;  // constant once it is read
  };
  struct Location {
    size_t file;
    int64_t offset;  // of the tensor, in the file
    StoredTensor tensor;
  };
  CheckpointReader() = default;
  absl::Status OpenFiles(const CheckpointIndex& index, const CheckpointChecksums& checksums);
  absl::StatusOr<const Location*> Locate(std::string_view tensor) const;
  TensorInFile InFile(const Location& location) const {
    return {.path = path_, .tensor = location.tensor, .offset = location.offset};
  }
  absl::Status ReadChecked(size_t file, int64_t offset, void* out, size_t bytes) const;
  absl::StatusOr<std::shared_ptr<const Block>> LoadBlock(BlockId id) const;
  absl::Status ReadBlock(BlockId id, std::vector<std::byte>& bytes) const;

  std::string path_;
  uint32_t identity_ = 0;
  CheckpointState state_;
  std::vector<File> files_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, Location, std::less<>> locations_;
  mutable Mutex mutex_;
  // The last few, newest first; shared, because who copies from one may outlast its place here.
  mutable std::list<std::shared_ptr<Block>> blocks_ BRAID_GUARDED_BY(mutex_);
  mutable std::set<BlockId> verified_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
