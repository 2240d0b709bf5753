// Where a tensor or an op lives: an ordered list of devices, seen as a (possibly n-d) hierarchy.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/sbp.h"
#include "graph/shape.h"

namespace braid {

class TextReader;

struct DeviceId {
  int node = 0;
  int device = 0;  // index on that node
  friend auto operator<=>(const DeviceId&, const DeviceId&) = default;
};

// A value. Devices are in rank order; the hierarchy's product is their number, e.g. [2, 4]: two
// nodes of four. The text form is "cpu[2, 2]{0.0 0.1 1.0 1.1}" (node.device); parsed back by Parse.
class Placement {
 public:
  Placement() = default;
  // A flat placement.
  Placement(std::string device_type, std::vector<DeviceId> devices);
  // INVALID_ARGUMENT for a hierarchy whose product is not the number of devices, and for a device
  // listed twice.
  static absl::StatusOr<Placement> Make(std::string device_type, std::vector<DeviceId> devices,
                                        std::vector<int64_t> hierarchy);

  // The same devices under another hierarchy; INVALID_ARGUMENT naming both counts if its product
  // is not the number of devices.
  absl::StatusOr<Placement> WithHierarchy(std::vector<int64_t> hierarchy) const;
  // The devices of one node (in order; may be empty), flat.
  Placement node(int node) const;
  // Ranks [first, first + count), flat.
  Placement Slice(int first, int count) const;

  const std::string& device_type() const { return device_type_; }
  int size() const { return static_cast<int>(devices_.size()); }
  const std::vector<DeviceId>& devices() const { return devices_; }
  const DeviceId& device(int rank) const { return devices_[rank]; }
  const std::vector<int64_t>& hierarchy() const { return hierarchy_; }
  int rank_of(const DeviceId& device) const;  // -1 if it is not here
  std::vector<int64_t> CoordinateOf(int rank) const;
  int RankOf(std::span<const int64_t> coordinate) const;
  int num_nodes() const;  // distinct nodes

  std::string ToString() const;
  static absl::StatusOr<Placement> Parse(std::string_view text);
  static absl::StatusOr<Placement> Read(TextReader& reader);
  friend auto operator<=>(const Placement&, const Placement&) = default;

 private:
  std::string device_type_;
  std::vector<DeviceId> devices_;
  std::vector<int64_t> hierarchy_;
};

// The box of a tensor that `rank` of the placement holds.
Region RegionOf(const Shape& shape, const NdSbp& sbp, const Placement& placement, int rank);

}  // namespace braid
