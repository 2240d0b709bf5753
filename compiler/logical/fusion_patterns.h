// Which chains of operators are written as one: the table of the pass `fuse`, which knows no
// operator by itself.
#pragma once

#include <string_view>
#include <vector>

namespace braid::compiler {

// An operator that takes what the one before it makes, and nobody else wants.
struct FusionStep {
  std::string_view op;
  // Of its two inputs the other one, of the type of its output, becomes the root's last input.
  bool takes_other = false;
};

// An operator of the root's gradient that can take the flow where it arrives at the last step's
// gradient instead of where it leaves it.
struct FlowTaker {
  std::string_view op;
  int flow = 0;                  // its input
  std::vector<int> more_inputs;  // of the root, which become its last inputs
};

// How gradients follow: where all that the gradient of the last step makes goes to such operators
// of the root's own, they do its work.
struct FusedGradient {
  std::string_view op;  // takes the chain's output, and what arrives
  int shared = 0;       // so many first inputs are the root's
  std::vector<FlowTaker> takers;
};

struct FusionPattern {
  std::string_view root;
  int inputs = 0;         // of a root that has taken nothing yet
  std::string_view flag;  // the attribute that says that it has
  std::vector<FusionStep> steps;
  // Empty op: gradients stay as they are. Else all takers get the flag, too.
  FusedGradient gradient = {};
};

// A norm by numbers that do not depend on its input 0, and a product that can do its work: each of
// the weights' rows makes one channel, and the addend has a number for each. The numbers are inputs
// of the norm.
struct FoldedNorm {
  std::string_view norm;
  size_t norm_inputs = 0;  // of one that has taken nothing
  int mean = 0, variance = 0, gamma = 0, beta = 0;
  std::string_view product;
  int weights = 0, addend = 0;  // its inputs; the addend, its last, may be missing
};
std::vector<FoldedNorm> FoldedNorms();

// No two have the same steps behind the same root.
std::vector<FusionPattern> FusionPatterns();

}  // namespace braid::compiler
