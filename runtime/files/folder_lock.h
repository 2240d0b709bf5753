// A folder that one session at a time writes into.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/descriptor.h"

namespace braid {

// Held as long as it lives, and not longer than its process, however that ends. A file FOLDER/lock
// says who holds it.
class FolderLock {
 public:
  // Makes the folder if it is not there. FAILED_PRECONDITION names who has it: the process, its
  // host, its program and since when. Where a file system knows no locks it is not locked, which a
  // warning says.
  static absl::StatusOr<FolderLock> Take(const std::string& folder);
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  FolderLock(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  Descriptor file_;
};

}  // namespace braid
