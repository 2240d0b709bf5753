#include "graph/sbp.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "graph/text_reader.h"
#include "runtime/base/status.h"

namespace braid {

std::string Sbp::ToString() const {
  switch (kind) {
    case Kind::kSplit:
      return absl::StrCat("S(", axis, ")");
    case Kind::kBroadcast:
      return "B";
    case Kind::kPartialSum:
      return "P";
    case Kind::kPartialMax:
      return "P(max)";
    case Kind::kPartialMin:
      return "P(min)";
    case Kind::kMirrored:
      return "M";
  }
  LOG(FATAL) << "kind " << static_cast<int>(kind);
}

absl::StatusOr<Sbp> Sbp::Parse(std::string_view text) {
  TextReader reader(text);
  BRAID_ASSIGN_OR_RETURN(Sbp sbp, Read(reader));
  BRAID_RETURN_IF_ERROR(reader.ExpectEnd());
  return sbp;
}

absl::StatusOr<Sbp> Sbp::Read(TextReader& reader) {
  if (reader.Consume("B")) return sbp::B;
  if (reader.Consume("M")) return sbp::M;
  if (reader.Consume("P")) {
    if (reader.Consume("(max)")) return sbp::Pmax;
    if (reader.Consume("(min)")) return sbp::Pmin;
    return sbp::P;
  }
  if (!reader.Consume("S")) return reader.Error("S(axis), B, P, P(max), P(min) or M");
  BRAID_RETURN_IF_ERROR(reader.Expect("("));
  BRAID_ASSIGN_OR_RETURN(int64_t axis, reader.Int());
  constexpr int64_t kMaxAxis = 255;
  if (axis < 0 || axis > kMaxAxis) {
    return absl::InvalidArgumentError(absl::StrCat("S(", axis, "): the axis must be in [0, 255]"));
  }
  BRAID_RETURN_IF_ERROR(reader.Expect(")"));
  return sbp::S(static_cast<int>(axis));
}

bool NdSbp::has_partial() const {
  return std::any_of(dims_.begin(), dims_.end(), [](const Sbp& sbp) { return sbp.is_partial(); });
}

bool NdSbp::has_mirrored() const {
  return std::any_of(dims_.begin(), dims_.end(), [](const Sbp& sbp) { return sbp.is_mirrored(); });
}

bool NdSbp::all_broadcast() const {
  return std::all_of(dims_.begin(), dims_.end(), [](const Sbp& sbp) { return sbp.is_broadcast(); });
}

std::string NdSbp::ToString() const {
  if (rank() == 1) return dims_[0].ToString();
  auto append = [](std::string* out, const Sbp& sbp) { out->append(sbp.ToString()); };
  return absl::StrCat("[", absl::StrJoin(dims_, ", ", append), "]");
}

absl::StatusOr<NdSbp> NdSbp::Parse(std::string_view text) {
  TextReader reader(text);
  BRAID_ASSIGN_OR_RETURN(NdSbp sbp, Read(reader));
  BRAID_RETURN_IF_ERROR(reader.ExpectEnd());
  return sbp;
}

absl::StatusOr<NdSbp> NdSbp::Read(TextReader& reader) {
  std::vector<Sbp> dims;
  if (!reader.Consume("[")) {
    BRAID_ASSIGN_OR_RETURN(dims.emplace_back(), Sbp::Read(reader));
    return NdSbp(std::move(dims));
  }
  while (!reader.Consume("]")) {
    if (!dims.empty()) BRAID_RETURN_IF_ERROR(reader.Expect(","));
    BRAID_ASSIGN_OR_RETURN(dims.emplace_back(), Sbp::Read(reader));
  }
  return NdSbp(std::move(dims));
}

Region Region::Whole(const Shape& shape) { return {std::vector<int64_t>(shape.rank(), 0), shape}; }

std::string Region::ToString() const {
  std::string text = "[";
  for (int axis = 0; axis < size.rank(); ++axis) {
    absl::StrAppend(&text, axis == 0 ? "" : ", ", offset[axis], ":", offset[axis] + size[axis]);
  }
  return text + "]";
}

Region Intersect(const Region& a, const Region& b) {
  CHECK_EQ(a.size.rank(), b.size.rank());
  Region result = a;
  for (int axis = 0; axis < a.size.rank(); ++axis) {
    int64_t begin = std::max(a.offset[axis], b.offset[axis]);
    int64_t end = std::min(a.offset[axis] + a.size[axis], b.offset[axis] + b.size[axis]);
    result.offset[axis] = begin;
    result.size[axis] = std::max<int64_t>(0, end - begin);
  }
  return result;
}

bool IsOneRun(const Region& box, const Region& region) {
  if (box.empty()) return true;
  int axis = box.size.rank() - 1;
  while (axis > 0 && box.size[axis] == region.size[axis]) --axis;
  // Of the axes that vary more slowly than the first one that is cut, one index each.
  return std::all_of(box.size.dims().begin(), box.size.dims().begin() + std::max(axis, 0),
                     [](int64_t size) { return size == 1; });
}

Interval SplitEvenly(int64_t n, int64_t parts, int64_t index) {
  CHECK(n >= 0 && parts > 0 && index >= 0 && index < parts)
      << "part " << index << " of " << parts << " of " << n << " elements";
  int64_t size = n / parts;
  int64_t longer = n % parts;  // the number of parts with one element more
  return {index * size + std::min(index, longer), size + (index < longer ? 1 : 0)};
}

Region RegionOf(const Shape& shape, const NdSbp& sbp, std::span<const int64_t> hierarchy,
                std::span<const int64_t> coordinate) {
  CHECK_EQ(static_cast<size_t>(sbp.rank()), hierarchy.size()) << sbp.ToString();
  CHECK_EQ(hierarchy.size(), coordinate.size());
  Region region = Region::Whole(shape);
  for (int dim = 0; dim < sbp.rank(); ++dim) {
    if (!sbp[dim].is_split()) continue;
    int axis = sbp[dim].axis;
    CHECK_LT(axis, shape.rank()) << sbp.ToString() << " of " << shape.ToString();
    Interval part = SplitEvenly(region.size[axis], hierarchy[dim], coordinate[dim]);
    region.offset[axis] += part.offset;
    region.size[axis] = part.size;
  }
  return region;
}

}  // namespace braid
