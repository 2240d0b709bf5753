// What operator definitions share: checks of shapes and attributes, numpy broadcasting.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/input_checks.h"
#include "graph/op_def.h"

namespace braid {

using Types = absl::StatusOr<std::vector<TensorType>>;

// Errors of one input say its letter: 'a' for the first, 'b' for the second, ...
absl::Status CheckSameType(const OpContext& ctx, int a, int b);
absl::Status CheckShape(const OpContext& ctx, int input, const Shape& expected);
absl::Status CheckMinRank(const OpContext& ctx, int input, int rank);
// INVALID_ARGUMENT unless 0 <= axis < rank.
absl::Status CheckAxis(int64_t axis, int rank);

// Whether addends of this type can be added up: P of bools means nothing.
inline bool HasSums(DType dtype) { return dtype != DType::kBool; }

// "a is [2, 3], b is [4, 5]; why": the shapes of the first two inputs.
absl::Status Disagree(const OpContext& ctx, std::string_view why);
// "a is f32[2, 3], begin is [0]; why": the first input and an attribute.
absl::Status Disagree(const OpContext& ctx, std::string_view attr,
                      const std::vector<int64_t>& value, std::string_view why);
std::string ListText(const std::vector<int64_t>& values);  // "[2, 3]"

// What most operators' samples are of.
inline TensorType SampleMatrix(DType dtype = DType::kF32) { return {dtype, {5, 6}}; }

// False if absent, so that hand-written graphs may leave flags out.
bool Flag(const Attrs& attrs, std::string_view name);

// The numpy rule: aligned at the last axis, a dim of 1 stretches.
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);
// `shape` without its last `count` axes.
Shape Leading(const Shape& shape, int count);

// The reverse of broadcasting: sums x over the axes along which `shape` was stretched to x's shape.
// The shape is a copy: appending ops moves the shapes that the graph holds.
Tensor SumTo(Tensor x, Shape shape);

}  // namespace braid
