// Operands in blocks of channels for the suites of operators that take them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "api/conformance/operator_case.h"
#include "compiler/plan/channel_blocks.h"
#include "runtime/array.h"

namespace braid::conformance {

// [n, c, space...] to [n, c / channels, space..., channels], `of` those of a block.
inline Array InBlocks(const Array& plain, int64_t of) {
  const int64_t channels = compiler::ChannelsInBlock(plain.shape()[1], of);
  const Shape shape = compiler::BlockedShape(plain.shape(), of);
  Array blocked(plain.dtype(), shape);
  const auto element = static_cast<int64_t>(SizeOf(plain.dtype()));
  const int64_t images = plain.shape()[0], blocks = shape[1];
  const int64_t elements = plain.shape().num_elements();
  const int64_t pixels = elements / (images * blocks * channels);
  const std::byte* from = plain.bytes();
  std::byte* to = blocked.mutable_bytes();
  for (int64_t at = 0; at < elements; ++at) {
    const int64_t pixel = at % pixels, lane = at / pixels % channels;
    const int64_t block = at / (pixels * channels);
    const int64_t target = (block * pixels + pixel) * channels + lane;
    std::memcpy(to + target * element, from + at * element, element);
  }
  return blocked;
}

// With another floating type.
inline OpSample WithFloating(OpSample sample, DType dtype) {
  for (TensorType& input : sample.inputs) {
    if (IsFloating(input.dtype)) input.dtype = dtype;
  }
  return sample;
}

inline OpCase CaseOf(const OpDef& def, const OpSample& sample) {
  OpCase c = {.def = &def,
              .label = def.name(),
              .attrs = sample.attrs,
              .inputs = sample.inputs,
              .low = sample.low,
              .high = sample.high};
  const auto outputs = def.InferTypes(c.context());
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  if (outputs.ok()) c.outputs = *outputs;
  return c;
}

}  // namespace braid::conformance
