// A part of functional.h: reductions along axes, and scans.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/logical_graph.h"

namespace braid {

// ---- Reductions: floating, i32 and i64, but where more or less is said --------------------------

struct ReduceOptions {
  std::vector<int64_t> axes = {};  // empty: all
  bool keep_dims = false;          // reduced axes stay, with size 1
};
Tensor ReduceSum(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor ReduceMean(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());  // floating
// Also of u8 and bool. Elements that are equal to the extreme share its gradient.
Tensor ReduceMax(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor ReduceMin(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor ReduceProd(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor ReduceSumSquare(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor ReduceL1(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());  // of |x|
// Square root of the sum of squares of floating x. Its gradient at 0 is 0.
Tensor ReduceL2(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
// log(sum(exp(x))) of floating x, without overflow. A reduced axis may be split.
Tensor LogSumExp(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
struct VarianceOptions {
  std::vector<int64_t> axes = {};  // empty: all
  bool keep_dims = false;
  double correction = 1;  // the sum of squares is divided by the number of elements less this
};
// Of floating x, in two passes: the mean first.
Tensor Variance(Tensor x, VarianceOptions options = {}, SourceLocation where = Here());
Tensor StandardDeviation(Tensor x, VarianceOptions options = {}, SourceLocation where = Here());
// Of bools.
Tensor ReduceAny(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());
Tensor ReduceAll(Tensor x, ReduceOptions options = {}, SourceLocation where = Here());

Tensor Sum(Tensor x, SourceLocation where = Here());   // of all elements
Tensor Mean(Tensor x, SourceLocation where = Here());  // of all elements; bools count as 0 and 1

struct ArgOptions {
  bool last = false;  // of equals the last one, not the first
};
// i32 indices of the largest or smallest element along `axis`, which disappears. A NaN is both. Of
// any dtype but bool.
Tensor ArgMax(Tensor x, int64_t axis = -1, ArgOptions options = {}, SourceLocation where = Here());
Tensor ArgMin(Tensor x, int64_t axis = -1, ArgOptions options = {}, SourceLocation where = Here());

// ---- Scans: element i of `axis` becomes the sum or product of elements 0 .. i
// --------------------

struct ScanOptions {
  bool exclusive = false;  // ... of elements 0 .. i - 1
  bool reverse = false;    // from the end
};
Tensor CumSum(Tensor x, int64_t axis, ScanOptions options = {}, SourceLocation where = Here());
Tensor CumProd(Tensor x, int64_t axis, ScanOptions options = {}, SourceLocation where = Here());

}  // namespace braid
