// What the functions of functional.h check before they append an op.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/logical_graph.h"

namespace braid {

bool AllValid(const std::vector<Tensor>& tensors);
// Of an operand that may be left out: whether it was given and is invalid.
bool IsUnusable(const Tensor& optional);
// The result of a function one of whose operands is invalid: an error, unless one made it so.
Tensor Invalid(const std::vector<Tensor>& tensors, SourceLocation where);
// An error found before Append, in Append's form; an invalid Tensor.
Tensor Fail(Tensor x, std::string_view what, SourceLocation where);

// An axis that may be negative, in [0, rank), or nullopt after Fail. `rank` counts the positions.
std::optional<int64_t> Normalize(Tensor x, int64_t axis, int rank, std::string_view op,
                                 SourceLocation where);
// Axes of x, ascending, each once; all of them if `axes` is empty. nullopt after Fail.
std::optional<std::vector<int64_t>> NormalizeAll(Tensor x, const std::vector<int64_t>& axes,
                                                 std::string_view op, SourceLocation where);
// Axes of x in their order. nullopt after Fail, also if one is there twice.
std::optional<std::vector<int64_t>> NormalizeEach(Tensor x, const std::vector<int64_t>& axes,
                                                  std::string_view op, SourceLocation where);

}  // namespace braid
