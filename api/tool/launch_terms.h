// What the launchers of all machines must have been told alike, and how two of them differ.
#pragma once

#include <string>
#include <vector>

namespace braid {

struct LaunchTerms {
  int ranks_per_machine = 1;
  int max_restarts = 0;
  std::vector<std::string> program;
};

// A line a term. A program that is given by a path is told apart by what its file holds; one that
// is found in PATH belongs to the machine, and may differ.
std::string TextOfTerms(const LaunchTerms& terms);

// "was told otherwise: '--max_restarts=2' on machine 0, '--max_restarts=1' there; ...". `there` may
// hold any bytes.
std::string TermsDifference(const std::string& master, const std::string& there);

}  // namespace braid
