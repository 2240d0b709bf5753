// Programs that stand beside the tool: what the tool itself, which has no runtime, does not do.
#pragma once

#include <string>
#include <vector>

namespace braid {

// Becomes `program`, which is in the tool's own folder. Returns only if it cannot start: the exit
// code, after an error that names it and, if there is no such file, says `remedy`.
int BecomeProgram(const std::string& command, const std::string& program,
                  std::vector<std::string> words, const std::string& remedy);

}  // namespace braid
