// Ranks as processes of a program, as a launcher starts them on this machine.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/multiprocess/program_run.h"

namespace braid {

// By rank. `environment` is added to the variables that say who they are.
std::vector<std::unique_ptr<ProgramRun>> StartRanks(
    int ranks, const std::vector<std::string>& command,
    const std::map<std::string, std::optional<std::string>>& environment = {});

}  // namespace braid
