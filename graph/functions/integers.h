// Products of bytes in whole numbers, as quantized models have them.
#pragma once

#include <vector>

#include "graph/functional.h"
#include "graph/logical_graph.h"

namespace braid {

// u8 or i8, and what of these stands for 0, in the same type: [] or [1], or of the second operand
// of a product one for each output. Not there: 0.
struct ByteOperand {
  Tensor numbers, zero_point = {};
};

// x [n, c, space...] and w [o, c / groups, kernel...], both less their zero points: their
// convolution in i32, whose sums wrap around. What is padded is x's zero point.
Tensor ConvInteger(ByteOperand x, ByteOperand w, ConvOptions options = {},
                   SourceLocation where = Here());
// a [..., m, k] times b [k, n], or [n, k] if it is transposed, likewise: [..., m, n] in i32.
Tensor MatMulInteger(ByteOperand a, ByteOperand b, bool transpose_b = false,
                     SourceLocation where = Here());
// The operands as operators take them.
std::vector<Tensor> ByteInputs(const ByteOperand& a, const ByteOperand& b, SourceLocation where);

}  // namespace braid
