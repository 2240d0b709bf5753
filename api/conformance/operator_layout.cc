#include "api/conformance/operator_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/conformance/operator_case.h"

namespace braid::conformance {
namespace {

using Doubles = std::vector<double>;

// f(index in `inner`'s dense elements, index in `outer`'s) for all elements of `inner`, a box
// inside `outer`.
template <typename F>
void ForEachInside(const Region& inner, const Region& outer, F f) {
  const int rank = inner.size.rank();
  const int64_t n = inner.size.num_elements(), row = rank == 0 ? 1 : inner.size[rank - 1];
  for (int64_t first = 0; first < n; first += row) {
    int64_t rest = first, at = 0, stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t index = rest % inner.size[axis];
      rest /= inner.size[axis];
      at += (index + inner.offset[axis] - outer.offset[axis]) * stride;
      stride *= outer.size[axis];
    }
    for (int64_t i = 0; i < row; ++i) f(first + i, at + i);
  }
}

// The addend that `coordinate` of `parts` holds of each value.
Doubles Addend(const Doubles& values, Sbp::Kind kind, bool is_floating, int64_t parts,
               int64_t coordinate, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto draw = [&]() -> double {
    if (!is_floating) return static_cast<double>(generator() % 7);
    return std::uniform_real_distribution<double>(0, 1)(generator);
  };
  Doubles mine(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto last = static_cast<int64_t>(generator() % parts);  // takes what makes it right
    double rest = values[i];
    for (int64_t part = 0; part < parts; ++part) {
      const double drawn = draw();
      if (kind == Sbp::Kind::kPartialSum) {
        if (part == last) continue;
        const double addend = is_floating ? 2 * drawn - 1 : drawn - 3;
        rest -= addend;
        if (part == coordinate) mine[i] = addend;
        continue;
      }
      if (part != coordinate) continue;
      const double sign = kind == Sbp::Kind::kPartialMax ? -1 : 1;
      mine[i] = part == last ? values[i] : values[i] + sign * drawn;
      // Which is what an empty part holds.
      if (part != last && is_floating && i % 4 == 0) {
        mine[i] = sign * std::numeric_limits<double>::infinity();
      }
    }
    if (kind == Sbp::Kind::kPartialSum && coordinate == last) mine[i] = rest;
  }
  return mine;
}

// Joins the ranks that share the first coordinates.
class Joiner {
 public:
  Joiner(const std::vector<Array>& parts, const Shape& shape, const NdSbp& sbp,
         const Hierarchy& hierarchy)
      : parts_(parts), shape_(shape), sbp_(sbp), hierarchy_(hierarchy) {}

  absl::StatusOr<Doubles> Join(std::vector<int64_t> prefix) const {
    const size_t dim = prefix.size();
    if (dim == hierarchy_.size()) {
      int64_t rank = 0;
      for (size_t d = 0; d < dim; ++d) rank = rank * hierarchy_[d] + prefix[d];
      return Numbers(parts_[rank]);
    }
    const Region region = RegionAt(prefix);
    Doubles joined(region.size.num_elements(), std::numeric_limits<double>::quiet_NaN());
    for (int64_t i = 0; i < hierarchy_[dim]; ++i) {
      std::vector<int64_t> inner = prefix;
      inner.push_back(i);
      absl::StatusOr<Doubles> part = Join(inner);
      if (!part.ok()) return part.status();
      const Sbp& sbp = sbp_[static_cast<int>(dim)];
      if (sbp.is_split()) {
        ForEachInside(RegionAt(inner), region,
                      [&](int64_t from, int64_t to) { joined[to] = (*part)[from]; });
      } else if (i == 0) {
        joined = *std::move(part);
      } else {
        for (size_t k = 0; k < joined.size(); ++k) {
          const double mine = joined[k], other = (*part)[k];
          switch (sbp.kind) {
            case Sbp::Kind::kPartialSum:
              joined[k] = mine + other;
              break;
            case Sbp::Kind::kPartialMax:
              joined[k] = std::max(mine, other);
              break;
            case Sbp::Kind::kPartialMin:
              joined[k] = std::min(mine, other);
              break;
            default:
              if (mine != other && !(std::isnan(mine) && std::isnan(other))) {
                return absl::InternalError(absl::StrCat("copies 0 and ", i, " differ at element ",
                                                        k, ": ", mine, " and ", other));
              }
          }
        }
      }
    }
    return joined;
  }

 private:
  Region RegionAt(const std::vector<int64_t>& prefix) const {
    const NdSbp sbp(std::vector<Sbp>(sbp_.dims().begin(), sbp_.dims().begin() + prefix.size()));
    return RegionOf(shape_, sbp, std::span(hierarchy_).first(prefix.size()), prefix);
  }

  const std::vector<Array>& parts_;
  const Shape& shape_;
  const NdSbp& sbp_;
  const Hierarchy& hierarchy_;
};

}  // namespace

int NumRanks(const Hierarchy& hierarchy) {
  int64_t ranks = 1;
  for (int64_t size : hierarchy) ranks *= size;
  return static_cast<int>(ranks);
}

std::vector<int64_t> CoordinateOf(const Hierarchy& hierarchy, int rank) {
  std::vector<int64_t> coordinate(hierarchy.size());
  for (size_t dim = hierarchy.size(); dim-- > 0;) {
    coordinate[dim] = rank % hierarchy[dim];
    rank /= static_cast<int>(hierarchy[dim]);
  }
  return coordinate;
}

std::vector<Array> Shard(const Array& whole, const NdSbp& sbp, const Hierarchy& hierarchy,
                         uint64_t seed) {
  const Doubles values = Numbers(whole);
  std::vector<Array> parts;
  for (int rank = 0; rank < NumRanks(hierarchy); ++rank) {
    const std::vector<int64_t> coordinate = CoordinateOf(hierarchy, rank);
    Doubles mine = values;
    uint64_t key = seed;
    for (int dim = 0; dim < sbp.rank(); ++dim) {
      key = key * 1000003 + 17;
      if (!sbp[dim].is_partial()) continue;
      mine = Addend(mine, sbp[dim].kind, IsFloating(whole.dtype()), hierarchy[dim], coordinate[dim],
                    key);
      key += coordinate[dim];  // the addends of different addends are different ones
    }
    // What a byte cannot hold, it need not: its smallest value is as good.
    if (SizeOf(whole.dtype()) == 1 && whole.dtype() != DType::kI8) {
      for (double& value : mine) value = std::max(value, 0.0);
    }
    const Region region = RegionOf(whole.shape(), sbp, hierarchy, coordinate);
    Doubles local(region.size.num_elements());
    ForEachInside(region, Region::Whole(whole.shape()),
                  [&](int64_t to, int64_t from) { local[to] = mine[from]; });
    parts.push_back(FromNumbers(whole.dtype(), region.size, local));
  }
  return parts;
}

absl::StatusOr<std::vector<double>> Join(const std::vector<Array>& parts, const Shape& shape,
                                         const NdSbp& sbp, const Hierarchy& hierarchy) {
  return Joiner(parts, shape, sbp, hierarchy).Join({});
}

double LargestOf(const std::vector<double>& numbers) {
  double largest = 1;
  for (double number : numbers) {
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  }
  return largest;
}

std::string Compare(const std::vector<double>& actual, const std::vector<double>& expected,
                    double tolerance, double scale) {
  if (actual.size() != expected.size()) {
    return absl::StrCat(actual.size(), " elements instead of ", expected.size());
  }
  const double largest = std::max(scale, LargestOf(expected));
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool agrees = std::isfinite(expected[i])
                            ? std::abs(actual[i] - expected[i]) <= tolerance * largest
                            : actual[i] == expected[i];
    if (!agrees) {
      return absl::StrCat("element ", i, " of ", expected.size(), " is ", actual[i], ", should be ",
                          expected[i]);
    }
  }
  return "";
}

}  // namespace braid::conformance
