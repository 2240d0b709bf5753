#include "api/tool/beside.h"

#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <system_error>

namespace braid {

int BecomeProgram(const std::string& command, const std::string& program,
                  std::vector<std::string> words, const std::string& remedy) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string path = (own.parent_path() / program).string();
  std::vector<char*> argv = {path.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  const int failure = errno;
  std::cerr << "error: braid " << command << ": cannot start " << path << ": " << strerror(failure);
  if (failure == ENOENT) std::cerr << "; " << remedy;
  std::cerr << "\n";
  return 1;
}

}  // namespace braid
