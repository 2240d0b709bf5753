#include "comm/network/this_machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/descriptor.h"

namespace braid {

std::string ThisMachine() {
  std::string boot(64, '\0');
  const Descriptor file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const ssize_t bytes = file.is_open() ? read(file.number(), boot.data(), boot.size()) : 0;
  boot.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  while (boot.ends_with('\n')) boot.pop_back();
  std::error_code error;
  const std::string network = std::filesystem::read_symlink("/proc/self/ns/net", error).string();
  return absl::StrCat(boot.empty() ? "?" : boot, " ", network.empty() ? "?" : network);
}

}  // namespace braid
