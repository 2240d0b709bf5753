// Cuts logical tensors into what the devices of a hierarchy hold, and joins what they hold.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/sbp.h"
#include "runtime/array.h"

namespace braid::conformance {

using Hierarchy = std::vector<int64_t>;

int NumRanks(const Hierarchy& hierarchy);
// Outermost dimension first; ranks count the innermost one fastest.
std::vector<int64_t> CoordinateOf(const Hierarchy& hierarchy, int rank);

// What each rank holds. Addends of a partial layout are drawn from `seed`, so that their sum (or
// largest, or smallest) is the value; those of copies are alike.
std::vector<Array> Shard(const Array& whole, const NdSbp& sbp, const Hierarchy& hierarchy,
                         uint64_t seed);

// The numbers of the logical tensor of `shape`. An error says where two copies differ.
absl::StatusOr<std::vector<double>> Join(const std::vector<Array>& parts, const Shape& shape,
                                         const NdSbp& sbp, const Hierarchy& hierarchy);

// The largest magnitude of a finite number, at least 1: what rounding errors are measured by.
double LargestOf(const std::vector<double>& numbers);

// "" if they agree: |actual - expected| <= tolerance * max(scale, LargestOf(expected)), infinities
// alike. A scale is for results that are small because large numbers cancel.
std::string Compare(const std::vector<double>& actual, const std::vector<double>& expected,
                    double tolerance, double scale = 1);

}  // namespace braid::conformance
