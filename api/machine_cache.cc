// Measured machines, kept in the user's cache folder.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "api/file_cache.h"
#include "api/measure_machine.h"
#include "comm/cluster/build_fingerprint.h"
#include "glog/logging.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using compiler::Machine;

// "Intel(R) Xeon(R) ..., 16 threads"; nothing that is not known.
std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string name, line;
  int processors = 0;
  while (std::getline(file, line)) {
    if (!absl::StartsWith(line, "model name")) continue;
    ++processors;
    name = line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return absl::StrCat(name, ", ", processors, " processors");
}

std::optional<Machine> ReadCache(const MachineCache& cache) {
  std::ifstream file(cache.file);
  std::string line;
  if (!file || !std::getline(file, line) || line != "# " + cache.key) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  absl::StatusOr<Machine> machine = Machine::Parse(text.str(), cache.file);
  if (!machine.ok()) return std::nullopt;
  machine->origin = "measured";
  return *std::move(machine);
}

void WriteCache(const MachineCache& cache, const Machine& machine) {
  std::error_code error;
  fs::create_directories(fs::path(cache.file).parent_path(), error);
  const std::string unfinished = absl::StrCat(cache.file, ".", getpid());
  std::ofstream file(unfinished);
  file << "# " << cache.key << "\n" << machine.ToString();
  file.close();
  if (file) fs::rename(unfinished, cache.file, error);
  if (!file || error) {
    VLOG(1) << cache.file << " cannot be written";
    fs::remove(unfinished, error);
  }
}

}  // namespace

Machine CachedMachine(const MachineCache& cache, const std::function<Machine()>& measure) {
  if (cache.file.empty()) return measure();
  if (std::optional<Machine> kept = ReadCache(cache)) return *std::move(kept);
  Machine machine = measure();
  WriteCache(cache, machine);
  return machine;
}

Machine CachedMachine(const MeasureOptions& options) {
  const absl::StatusOr<std::string> build = BuildFingerprint();
  const std::string folder = CacheFolder();
  MachineCache cache;
  if (build.ok() && !folder.empty()) {
    std::error_code error;
    const std::string program = fs::read_symlink("/proc/self/exe", error).filename();
    cache.file = absl::StrCat(folder, "/machine-", program, ".txt");
    cache.key = absl::StrCat("build ", *build, "; ", ProcessorName(), "; ",
                             options.threads_per_device, " threads per device");
  }
  return CachedMachine(cache, [&options] { return MeasureMachine(options); });
}

}  // namespace braid
