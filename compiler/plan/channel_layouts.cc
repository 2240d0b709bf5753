#include "compiler/plan/channel_layouts.h"

#include <glog/logging.h>

#include <cstdint>
#include <utility>

#include "graph/ops/window.h"

namespace braid::compiler {
namespace {

using Ints = std::vector<int64_t>;

TensorType F32(Shape shape) { return {DType::kF32, std::move(shape)}; }

Attrs With(Attrs attrs, const char* name, AttrValue value) {
  attrs.Set(name, std::move(value));
  return attrs;
}

const WindowAxis kPlain, kPadded = {.stride = 2, .pad_begin = 1, .pad_end = 1};
const WindowAxis kUneven = {.stride = 1, .dilation = 2, .pad_begin = 2, .pad_end = 1};

// ---- convolution

OpSample Convolution(std::vector<Shape> inputs, WindowAxis window, int64_t groups) {
  OpSample sample;
  for (Shape& shape : inputs) sample.inputs.push_back(F32(std::move(shape)));
  SetWindows(sample.attrs, {window, window});
  sample.attrs.Set("groups", groups);
  return sample;
}

OpSample OfBytes(OpSample sample) {
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    sample.inputs[i].dtype = i % 2 == 0 ? DType::kU8 : DType::kI8;  // x, w, and their zero points
  }
  sample.int_high = 100;
  return sample;
}

// With the dims that the operator is told of what it computes.
OpSample Gradient(OpSample sample, const char* name, Ints dims) {
  sample.attrs.Set(name, std::move(dims));
  return sample;
}

OpSample ByWinograd(OpSample sample) {
  sample.attrs.Set(kWinograd, true);
  return sample;
}

std::vector<ChannelLayout> Convolutions() {
  return {
      {.op = "conv",
       .blocks = {{0}, {0}},
       .prefers_blocks = true,
       .weights = Weights::kSecondInput,
       .samples = {Convolution({{3, 32, 4, 3}, {32, 32, 1, 2}, {32}}, kPadded, 1),
                   Convolution({{2, 3, 5, 4}, {32, 3, 3, 2}}, kUneven, 1),
                   Convolution({{2, 32, 3, 2}, {32, 16, 2, 1}, {32}}, kPlain, 2),
                   ByWinograd(Convolution({{2, 16, 3, 4}, {32, 16, 3, 3}}, kPadded, 1))}},
      {.op = "conv_integer",
       .blocks = {{0}, {0}},
       .prefers_blocks = true,
       .is_on_cards = false,
       .samples = {OfBytes(Convolution({{3, 32, 4, 3}, {32, 32, 1, 2}, {1}, {32}}, kPadded, 1)),
                   OfBytes(Convolution({{2, 3, 5, 4}, {32, 3, 3, 2}}, kUneven, 1)),
                   OfBytes(Convolution({{2, 32, 3, 2}, {32, 16, 2, 1}, {1}}, kPlain, 2))}},
      {.op = "conv_input_grad",
       .blocks = {{0}, {0}},
       .prefers_blocks = true,
       .weights = Weights::kSecondInput,
       .samples = {Gradient(Convolution({{3, 32, 3, 2}, {32, 32, 1, 2}}, kPadded, 1), "space",
                            {4, 3}),
                   Gradient(Convolution({{2, 32, 4, 5}, {32, 3, 3, 2}}, kUneven, 1), "space",
                            {5, 4}),
                   ByWinograd(Gradient(Convolution({{2, 32, 2, 2}, {32, 16, 3, 3}}, kPadded, 1),
                                       "space", {3, 4}))}},
      {.op = "conv_weight_grad",
       .blocks = {{0, 1}, {}},
       .prefers_blocks = true,
       .weights = Weights::kOutput,
       .samples = {Gradient(Convolution({{3, 32, 4, 3}, {3, 32, 3, 2}}, kPadded, 1), "kernel",
                            {1, 2}),
                   Gradient(Convolution({{2, 3, 5, 4}, {2, 32, 4, 5}}, kUneven, 1), "kernel",
                            {3, 2}),
                   ByWinograd(Gradient(Convolution({{2, 16, 3, 4}, {2, 32, 2, 2}}, kPadded, 1),
                                       "kernel", {3, 3}))}},
  };
}

// ---- pooling

std::vector<ChannelLayout> Poolings() {
  const Shape x = {2, 32, 3, 4}, y = {2, 32, 2, 3};  // channels in two blocks
  Attrs attrs;
  SetWindows(attrs, {kPadded, kPadded});
  attrs.Set("kernel", Ints{3, 2});
  attrs.Set("ceil_mode", false);
  const Attrs mean = With(attrs, "divisor", std::string("padded"));
  const Attrs back = With(With(attrs, "divisor", std::string("elements")), "space", Ints{3, 4});
  return {
      {.op = "max_pool",
       .blocks = {{0}, {0}},
       .samples = {{.inputs = {F32(x)}, .attrs = With(attrs, "with_indices", false)}}},
      {.op = "max_pool_grad",
       .blocks = {{0, 1}, {0}},
       .samples = {{.inputs = {F32(x), F32(y)}, .attrs = attrs}}},
      {.op = "avg_pool", .blocks = {{0}, {0}}, .samples = {{.inputs = {F32(x)}, .attrs = mean}}},
      {.op = "avg_pool_grad",
       .blocks = {{0}, {0}},
       .samples = {{.inputs = {F32(y)}, .attrs = back}}},
  };
}

// ---- batch normalization

// Images whose channels are in two blocks; so few elements of a channel that their mean is above
// some of them, though their sum is drawn from where they are; and a batch of several groups.
Shape Many() { return {3, 32, 2, 3}; }
Shape TwoPixels() { return {2, 32, 1, 1}; }
Shape Four() { return {4, 32, 2, 1}; }

TensorType Numbers(const Shape& x) { return F32({x[1]}); }
// Of a batch in `groups`; 0: without the attribute.
TensorType Statistics(const Shape& x, int64_t groups) {
  return groups == 0 ? Numbers(x) : F32({groups, x[1]});
}

OpSample Positive(std::vector<TensorType> inputs, Attrs attrs, int64_t groups) {
  if (groups > 0) attrs.Set("groups", groups);
  return {.inputs = std::move(inputs), .attrs = std::move(attrs), .low = 0.1, .high = 1};
}

// With more inputs, and a rectifier.
OpSample Fused(OpSample sample, const std::vector<TensorType>& more) {
  sample.inputs.insert(sample.inputs.end(), more.begin(), more.end());
  sample.attrs.Set("relu", true);
  return sample;
}

OpSample Norm(const Shape& x, bool training, int64_t groups = 0) {
  const TensorType statistics = Statistics(x, groups), numbers = Numbers(x);
  return Positive({F32(x), statistics, statistics, numbers, numbers},
                  {{"epsilon", 1e-3}, {"training", training}}, groups);
}

OpSample NormSums(const Shape& x, bool training, int64_t groups = 0) {
  const TensorType statistics = Statistics(x, groups);
  return Positive({F32(x), statistics, statistics, F32(x)},
                  {{"epsilon", 1e-3}, {"training", training}}, groups);
}

OpSample NormInputGradient(const Shape& x, int64_t groups = 0) {
  const TensorType sums = Statistics(x, groups);
  return Positive({F32(x), sums, sums, Numbers(x), F32(x), sums, sums}, {{"epsilon", 1e-3}},
                  groups);
}

std::vector<ChannelLayout> BatchNorms() {
  const TensorType numbers = F32({32});  // of each case's channels
  std::vector<ChannelLayout> norms = {
      {.op = "channel_sum",
       .blocks = {{0}, {}},
       .samples = {{.inputs = {F32(Many())}, .attrs = {}},
                   {.inputs = {F32(Four())}, .attrs = {{"groups", int64_t{2}}}}}},
      {.op = "batch_moment",
       .blocks = {{0}, {}},
       .samples = {{.inputs = {F32(Many()), numbers}, .attrs = {}},
                   {.inputs = {F32(Four()), Statistics(Four(), 2)},
                    .attrs = {{"groups", int64_t{2}}}}}},
      {.op = "batch_norm",
       .blocks = {{0, 5}, {0}},
       .samples = {Norm(Many(), false), Norm(Many(), true), Fused(Norm(Many(), false), {}),
                   Fused(Norm(TwoPixels(), true), {F32(TwoPixels())}),
                   Fused(Norm(Four(), true, 4), {F32(Four())})}},
      {.op = "batch_norm_sums",
       .blocks = {{0, 3}, {}},
       .samples = {NormSums(Many(), true), Fused(NormSums(Many(), false), {numbers, numbers}),
                   Fused(NormSums(TwoPixels(), true), {numbers, numbers}),
                   Fused(NormSums(Four(), true, 2), {numbers, numbers})}},
      {.op = "batch_norm_dx",
       .blocks = {{0, 4}, {0}},
       .samples = {NormInputGradient(Many()), Fused(NormInputGradient(TwoPixels()), {numbers}),
                   Fused(NormInputGradient(Four(), 4), {numbers})}},
  };
  // Their loops are of blocks as wide as a vector.
  for (ChannelLayout& norm : norms) norm.takes_whole_blocks = false;
  return norms;
}

}  // namespace

std::vector<ChannelLayout> ChannelLayouts() {
  std::vector<ChannelLayout> all;
  for (auto family : {Convolutions, Poolings, BatchNorms}) {
    for (ChannelLayout& layout : family()) all.push_back(std::move(layout));
  }
  return all;
}

std::vector<ChannelMover> ChannelMovers() {
  return {{.op = "concat"}, {.op = "split", .sizes = "sizes"}};
}

std::vector<std::string> Reductions() {
  return {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_sum_square"};
}

bool HasCpuLayouts(std::string_view device_type) { return device_type == "cpu"; }

OpRegistry WithChannelLayouts(const OpRegistry& plain) {
  OpRegistry registry = plain;
  for (const ChannelLayout& layout : ChannelLayouts()) {
    const OpDef* def = plain.Find(layout.op);
    if (def == nullptr) continue;
    const absl::Status status = registry.Replace(TakingBlocks(*def, layout.blocks, layout.samples));
    CHECK(status.ok()) << status;
  }
  return registry;
}

}  // namespace braid::compiler
