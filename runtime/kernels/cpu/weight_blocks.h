// The weights of convolutions in f32, from [o, i, taps] to the blocks of 8 or 16 outputs and inputs
// in which oneDNN multiplies them, and back. oneDNN's own reorders take six times as long: a step
// of training reorders all weights twice, and their gradients.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <optional>

namespace braid::cpu {

class WeightBlocks {
 public:
  // Nothing: `plain` is not dense, or `blocked` not one of these layouts of as many weights.
  static std::optional<WeightBlocks> Of(const dnnl::memory::desc& plain,
                                        const dnnl::memory::desc& blocked);

  // On so many threads.
  void Block(const float* plain, float* blocked, int threads) const;
  void Unblock(const float* blocked, float* plain, int threads) const;

 private:
  template <class F>
  void ForEachTile(int threads, F f) const;

  int64_t groups_ = 1, out_ = 0, in_ = 0, taps_ = 1;  // of a group
  int64_t block_ = 0;
  bool has_outputs_last_ = false;  // in a block, else inputs
};

}  // namespace braid::cpu
