// GPT-2 written out in loops over f64, from the files' own names: what the gpt example's logits are
// compared with. Radford et al., 2019; it shares nothing with the library's operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace braid {

struct Gpt2Shape {
  int64_t vocabulary = 23, layers = 2, width = 12, heads = 3, context = 16;
};

// Random weights in a safetensors file as published ones are: `prefix` in front of names, masks
// beside. Not those of a new model: biases and gains differ from 0 and 1.
absl::Status WriteGpt2Weights(const std::string& path, const Gpt2Shape& shape,
                              const std::string& prefix);

// [tokens, vocabulary]: the logits of the token after each.
absl::StatusOr<std::vector<double>> Gpt2Logits(const std::string& path, const std::string& prefix,
                                               const Gpt2Shape& shape,
                                               const std::vector<int32_t>& tokens);

}  // namespace braid
