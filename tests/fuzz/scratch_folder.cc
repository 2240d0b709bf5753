#include "tests/fuzz/scratch_folder.h"

#include <glog/logging.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace braid::fuzz {

ScratchFolder::ScratchFolder()
    : path_((std::filesystem::temp_directory_path() / "braid_fuzz_XXXXXX").string()) {
  PCHECK(mkdtemp(path_.data()) != nullptr) << path_;
}

ScratchFolder::~ScratchFolder() { std::filesystem::remove_all(path_); }

std::string ScratchFolder::Write(std::string_view name, std::string_view contents) const {
  const std::string path = path_ + "/" + std::string(name);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  PCHECK(file.flush()) << path;
  return path;
}

}  // namespace braid::fuzz
