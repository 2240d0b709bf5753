#include "graph/placement.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "graph/text_reader.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

std::string HierarchyToString(const std::vector<int64_t>& hierarchy) {
  return absl::StrCat("[", absl::StrJoin(hierarchy, ", "), "]");
}

absl::Status CheckHierarchy(const std::vector<int64_t>& hierarchy, size_t num_devices) {
  bool fits = !hierarchy.empty();
  int64_t product = 1;
  for (int64_t dim : hierarchy) {
    fits = fits && dim >= 0 && !__builtin_mul_overflow(product, dim, &product);
  }
  if (!fits || product != static_cast<int64_t>(num_devices)) {
    return absl::InvalidArgumentError(absl::StrCat("the hierarchy ", HierarchyToString(hierarchy),
                                                   " does not hold ", num_devices,
                                                   " devices: its product must be their number"));
  }
  return absl::OkStatus();
}

}  // namespace

Placement::Placement(std::string device_type, std::vector<DeviceId> devices)
    : device_type_(std::move(device_type)),
      devices_(std::move(devices)),
      hierarchy_{static_cast<int64_t>(devices_.size())} {}

absl::StatusOr<Placement> Placement::Make(std::string device_type, std::vector<DeviceId> devices,
                                          std::vector<int64_t> hierarchy) {
  RETURN_IF_ERROR(CheckHierarchy(hierarchy, devices.size()));
  std::set<DeviceId> seen;
  for (const DeviceId& device : devices) {
    if (!seen.insert(device).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", device.node, ".", device.device, " is listed twice"));
    }
  }
  Placement placement(std::move(device_type), std::move(devices));
  placement.hierarchy_ = std::move(hierarchy);
  return placement;
}

absl::StatusOr<Placement> Placement::WithHierarchy(std::vector<int64_t> hierarchy) const {
  RETURN_IF_ERROR(CheckHierarchy(hierarchy, devices_.size()));
  Placement placement = *this;
  placement.hierarchy_ = std::move(hierarchy);
  return placement;
}

Placement Placement::node(int node) const {
  std::vector<DeviceId> devices;
  std::copy_if(devices_.begin(), devices_.end(), std::back_inserter(devices),
               [node](const DeviceId& device) { return device.node == node; });
  return Placement(device_type_, std::move(devices));
}

Placement Placement::Slice(int first, int count) const {
  CHECK(first >= 0 && count >= 0 && first + count <= size())
      << "ranks " << first << " to " << first + count << " of " << ToString();
  return Placement(device_type_, {devices_.begin() + first, devices_.begin() + first + count});
}

int Placement::rank_of(const DeviceId& device) const {
  auto found = std::find(devices_.begin(), devices_.end(), device);
  return found == devices_.end() ? -1 : static_cast<int>(found - devices_.begin());
}

std::vector<int64_t> Placement::CoordinateOf(int rank) const {
  CHECK(rank >= 0 && rank < size()) << "rank " << rank << " of " << ToString();
  std::vector<int64_t> coordinate(hierarchy_.size());
  int64_t rest = rank;
  for (size_t dim = hierarchy_.size(); dim-- > 0;) {
    coordinate[dim] = rest % hierarchy_[dim];
    rest /= hierarchy_[dim];
  }
  return coordinate;
}

int Placement::RankOf(std::span<const int64_t> coordinate) const {
  CHECK_EQ(coordinate.size(), hierarchy_.size());
  int64_t rank = 0;
  for (size_t dim = 0; dim < hierarchy_.size(); ++dim) {
    CHECK(coordinate[dim] >= 0 && coordinate[dim] < hierarchy_[dim])
        << "coordinate " << coordinate[dim] << " in dimension " << dim << " of " << ToString();
    rank = rank * hierarchy_[dim] + coordinate[dim];
  }
  return static_cast<int>(rank);
}

int Placement::num_nodes() const {
  std::set<int> nodes;
  for (const DeviceId& device : devices_) nodes.insert(device.node);
  return static_cast<int>(nodes.size());
}

std::string Placement::ToString() const {
  auto append = [](std::string* out, const DeviceId& device) {
    absl::StrAppend(out, device.node, ".", device.device);
  };
  return absl::StrCat(device_type_, HierarchyToString(hierarchy_), "{",
                      absl::StrJoin(devices_, " ", append), "}");
}

absl::StatusOr<Placement> Placement::Parse(std::string_view text) {
  TextReader reader(text);
  ASSIGN_OR_RETURN(Placement placement, Read(reader));
  RETURN_IF_ERROR(reader.ExpectEnd());
  return placement;
}

absl::StatusOr<Placement> Placement::Read(TextReader& reader) {
  ASSIGN_OR_RETURN(std::string device_type, reader.Word());
  std::vector<int64_t> hierarchy;
  RETURN_IF_ERROR(reader.Expect("["));
  while (!reader.Consume("]")) {
    if (!hierarchy.empty()) RETURN_IF_ERROR(reader.Expect(","));
    ASSIGN_OR_RETURN(hierarchy.emplace_back(), reader.Int());
  }
  std::vector<DeviceId> devices;
  RETURN_IF_ERROR(reader.Expect("{"));
  while (!reader.Consume("}")) {
    ASSIGN_OR_RETURN(int64_t node, reader.Int());
    RETURN_IF_ERROR(reader.Expect("."));
    ASSIGN_OR_RETURN(int64_t device, reader.Int());
    devices.push_back({static_cast<int>(node), static_cast<int>(device)});
  }
  return Make(std::move(device_type), std::move(devices), std::move(hierarchy));
}

Region RegionOf(const Shape& shape, const NdSbp& sbp, const Placement& placement, int rank) {
  return RegionOf(shape, sbp, placement.hierarchy(), placement.CoordinateOf(rank));
}

}  // namespace braid
