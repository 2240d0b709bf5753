// How the variables of a program are found in plain files of weights, those of other frameworks for
// instance: see Session::LoadWeights and SaveWeights.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace braid {

// The tensor of a file that a variable is, or is a part of: a projection of attention may be stored
// in one tensor with two others.
struct WeightSource {
  std::string name;
  int64_t axis = 0;   // of the tensor in the file, which is cut into
  int64_t parts = 1;  // so many equal parts, of which the variable is
  int64_t part = 0;   // this one
  // The variable has the part's last two axes swapped: Linear's weight is [in, out], that of others
  // [out, in].
  bool transpose = false;
  bool outside_prefix = false;  // SaveWeights puts no prefix in front of the name
};

// All elements of a tensor in a file of this machine, one after another as they lie in memory, from
// byte `offset` on.
struct FilePart {
  std::string path;
  int64_t offset = 0;
};

// Where a variable is in a file; none: it is not in files of this kind and keeps its value.
using WeightRule = std::function<std::optional<WeightSource>(const std::string& variable)>;

struct WeightsOptions {
  WeightRule rule = {};  // none: every variable is the tensor of its own name
  // In front of all names in the file. It is taken off where it is and may be missing.
  std::string prefix = {};
  // Tensors of the file, without the prefix, that no variable needs. Others that no variable takes
  // are errors: a part of the model would be missing.
  std::function<bool(const std::string& tensor)> ignore = {};
};

}  // namespace braid
