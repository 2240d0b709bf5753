// Split / Broadcast / Partial / Mirrored: how one logical tensor is laid over the devices of a
// Placement, and the part of it that each device holds. The algebra is Yuan et al., "OneFlow:
// Redesign the Distributed Deep Learning Framework from Scratch", 2021.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/shape.h"

namespace braid {

class TextReader;

// On one dimension of a placement.
struct Sbp {
  // Mirrored: each device has a value of its own (LogicalGraph's Mirroring says of which tensors).
  enum class Kind : uint8_t {
    kSplit,
    kBroadcast,
    kPartialSum,
    kPartialMax,
    kPartialMin,
    kMirrored
  };
  Kind kind = Kind::kBroadcast;
  int axis = 0;  // kSplit only; 0 otherwise

  bool is_split() const { return kind == Kind::kSplit; }
  bool is_broadcast() const { return kind == Kind::kBroadcast; }
  bool is_mirrored() const { return kind == Kind::kMirrored; }
  bool is_partial() const { return !is_split() && !is_broadcast() && !is_mirrored(); }
  std::string ToString() const;  // "S(0)", "B", "P", "P(max)", "P(min)", "M"
  static absl::StatusOr<Sbp> Parse(std::string_view text);
  static absl::StatusOr<Sbp> Read(TextReader& reader);
  friend auto operator<=>(const Sbp&, const Sbp&) = default;
};

namespace sbp {
constexpr Sbp S(int axis) { return {Sbp::Kind::kSplit, axis}; }
inline constexpr Sbp B = {Sbp::Kind::kBroadcast, 0};
inline constexpr Sbp P = {Sbp::Kind::kPartialSum, 0};
inline constexpr Sbp Pmax = {Sbp::Kind::kPartialMax, 0};
inline constexpr Sbp Pmin = {Sbp::Kind::kPartialMin, 0};
inline constexpr Sbp M = {Sbp::Kind::kMirrored, 0};
}  // namespace sbp

// One Sbp per dimension of a placement's hierarchy, outermost first. Written "S(0)" when 1-d and
// "[S(0), B]" otherwise.
class NdSbp {
 public:
  NdSbp() = default;
  NdSbp(Sbp sbp) : dims_{sbp} {}  // NOLINT: a 1-d NdSbp is an Sbp
  NdSbp(std::initializer_list<Sbp> dims) : dims_(dims) {}
  explicit NdSbp(std::vector<Sbp> dims) : dims_(std::move(dims)) {}
  static NdSbp Uniform(int rank, Sbp sbp) { return NdSbp(std::vector<Sbp>(rank, sbp)); }

  int rank() const { return static_cast<int>(dims_.size()); }
  const Sbp& operator[](int dim) const { return dims_[dim]; }
  Sbp& operator[](int dim) { return dims_[dim]; }
  const std::vector<Sbp>& dims() const { return dims_; }
  bool has_partial() const;
  bool has_mirrored() const;
  bool all_broadcast() const;
  std::string ToString() const;
  static absl::StatusOr<NdSbp> Parse(std::string_view text);
  static absl::StatusOr<NdSbp> Read(TextReader& reader);
  friend auto operator<=>(const NdSbp&, const NdSbp&) = default;

 private:
  std::vector<Sbp> dims_;
};

// A box inside a logical tensor: offset and size per axis.
struct Region {
  std::vector<int64_t> offset;
  Shape size;

  static Region Whole(const Shape& shape);
  bool empty() const { return size.num_elements() == 0; }
  std::string ToString() const;  // "[0:32, 0:784]"
  friend bool operator==(const Region&, const Region&) = default;
};

Region Intersect(const Region& a, const Region& b);  // size 0 on every axis where they miss
// Whether the elements of a box inside a region are adjacent in a dense row-major buffer of that.
bool IsOneRun(const Region& box, const Region& region);

// Part `index` of n elements cut in `parts`: the first n % parts parts get one element more.
struct Interval {
  int64_t offset;
  int64_t size;
};
Interval SplitEvenly(int64_t n, int64_t parts, int64_t index);

// The box of a tensor of `shape` that the device at `coordinate` of `hierarchy` holds. Splitting
// one axis in several dimensions splits the local part again, outermost dimension first. All others
// hold the whole axis.
Region RegionOf(const Shape& shape, const NdSbp& sbp, std::span<const int64_t> hierarchy,
                std::span<const int64_t> coordinate);

}  // namespace braid
