// Files that hold what a target is given, for readers that take a path.
#pragma once

#include <string>
#include <string_view>

#include "tests/fuzz/target.h"

namespace braid::fuzz {

// A folder that is gone with the object. In TMPDIR.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  // The path of the file.
  std::string Write(std::string_view name, std::string_view contents) const;
  std::string Write(std::string_view name, Bytes contents) const {
    return Write(name,
                 std::string_view(reinterpret_cast<const char*>(contents.data()), contents.size()));
  }

 private:
  std::string path_;
};

}  // namespace braid::fuzz
