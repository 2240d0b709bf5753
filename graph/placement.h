// Where a tensor or an op lives: an ordered list of devices, seen as a (possibly n-d) hierarchy.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
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

// A value; copies share the list of devices. Devices are in rank order; the hierarchy's product is
// their number, e.g. [2, 4]: two nodes of four. The text form is "cpu[2, 2]{0.0 0.1 1.0 1.1}"
// (node.device); parsed back by Parse.
class Placement {
 public:
  Placement();
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
  // Ranks [first, first + count), flat. If they are not all there: no devices, and a problem().
  Placement Slice(int first, int count) const;
  // Why there are no devices, if that is a mistake; job.On reports it. Not part of the value.
  const std::string& problem() const { return rep_->problem; }

  // What stands against its use where there are the devices of `all`: that it has none, or others.
  absl::Status CheckIsIn(const Placement& all) const;

  const std::string& device_type() const { return rep_->list->device_type; }
  int size() const { return static_cast<int>(devices().size()); }
  const std::vector<DeviceId>& devices() const { return rep_->list->devices; }
  const DeviceId& device(int rank) const { return devices()[rank]; }
  const std::vector<int64_t>& hierarchy() const { return rep_->hierarchy; }
  // Whether both name the same devices in the same order, under whatever hierarchy.
  bool HasDevicesOf(const Placement& other) const;
  // For maps by devices, in the order of their lists.
  struct DevicesLess {
    bool operator()(const Placement& a, const Placement& b) const;
  };
  int rank_of(const DeviceId& device) const;  // -1 if it is not here
  std::vector<int> RanksOn(int node) const;   // ascending
  std::vector<int64_t> CoordinateOf(int rank) const;
  int RankOf(std::span<const int64_t> coordinate) const;
  int num_nodes() const;  // distinct nodes

  std::string ToString() const;
  static absl::StatusOr<Placement> Parse(std::string_view text);
  static absl::StatusOr<Placement> Read(TextReader& reader);
  // By device type, then devices, then hierarchy.
  friend std::strong_ordering operator<=>(const Placement& a, const Placement& b);
  friend bool operator==(const Placement& a, const Placement& b);

 private:
  struct DeviceList {
    std::string device_type;
    std::vector<DeviceId> devices;
    std::vector<int> by_device;  // ranks in the order of their devices
  };
  struct Rep {
    std::shared_ptr<const DeviceList> list;
    std::vector<int64_t> hierarchy;
    std::string problem = {};
  };
  Placement(std::shared_ptr<const DeviceList> list, std::vector<int64_t> hierarchy);
  // The first rank by device that is not before `device`.
  std::vector<int>::const_iterator LowerBound(const DeviceId& device) const;

  std::shared_ptr<const Rep> rep_;
};

// The box of a tensor that `rank` of the placement holds.
Region RegionOf(const Shape& shape, const NdSbp& sbp, const Placement& placement, int rank);

}  // namespace braid
