// Which of a model's weights are trained where nobody says it.
#pragma once

#include <braid/onnx.h>

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "api/onnx/readers.h"
#include "runtime/array.h"

namespace braid::onnx {

// Why a weight is not trained.
enum class LeftAlone {
  kNot,           // it is trained
  kWholeNumbers,  // or bool
  kOneElement,    // a factor or an epsilon more often than a parameter
  kNotFinite,     // a mask, for instance
  kStatistics,    // of a batch normalization
  kConstant,   // an exponent, a bound, a mask, a scale of quantization: all nodes read it as such
  kPositions,  // of a table from which only positions are computed, as far as sin and cos
  kBytes,      // weights of quantized products
};

struct WeightRole {
  LeftAlone why = LeftAlone::kNot;
  // Whether it is a variable nevertheless, which can be set and loaded: otherwise it is a constant,
  // and what is computed of it alone is computed at once.
  bool is_variable() const {
    return why == LeftAlone::kNot || why == LeftAlone::kStatistics || why == LeftAlone::kBytes;
  }
};

// "has one element", for messages.
const char* TextOf(LeftAlone why);

// Of each of `weights`, by its numbers and by what the graph's nodes do with it. Those that are in
// files are read.
absl::StatusOr<std::map<std::string, WeightRole>> RolesOf(const Readers& readers,
                                                          const NumbersByName& weights);
LeftAlone RoleOf(const std::string& name, const Array& weight, const Readers& readers);
// By its numbers alone.
LeftAlone RoleOfNumbers(const Array& weight);

}  // namespace braid::onnx
