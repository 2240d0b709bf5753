#include "tests/dist/rank_processes.h"

#include "absl/strings/str_format.h"

namespace braid {

std::vector<std::unique_ptr<ProgramRun>> StartRanks(
    int ranks, const std::vector<std::string>& command,
    const std::map<std::string, std::optional<std::string>>& environment) {
  const std::string port = absl::StrFormat("%d", FreePort());
  std::vector<std::unique_ptr<ProgramRun>> runs;
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramRun::Options options{.environment = environment};
    options.environment["RANK"] = absl::StrFormat("%d", rank);
    options.environment["WORLD_SIZE"] = absl::StrFormat("%d", ranks);
    options.environment["MASTER_ADDR"] = "127.0.0.1";
    options.environment["MASTER_PORT"] = port;
    runs.push_back(std::make_unique<ProgramRun>(command, std::move(options)));
  }
  return runs;
}

}  // namespace braid
