#include "graph/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>
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

Placement::Placement() {
  static const auto* const empty = new std::shared_ptr<const Rep>(
      std::make_shared<const Rep>(Rep{std::make_shared<const DeviceList>(), {}}));
  rep_ = *empty;
}

Placement::Placement(std::string device_type, std::vector<DeviceId> devices) {
  std::vector<int> by_device(devices.size());
  std::iota(by_device.begin(), by_device.end(), 0);
  std::stable_sort(by_device.begin(), by_device.end(),
                   [&](int a, int b) { return devices[a] < devices[b]; });
  std::vector<int64_t> hierarchy{static_cast<int64_t>(devices.size())};
  *this = Placement(std::make_shared<const DeviceList>(DeviceList{
                        std::move(device_type), std::move(devices), std::move(by_device)}),
                    std::move(hierarchy));
}

Placement::Placement(std::shared_ptr<const DeviceList> list, std::vector<int64_t> hierarchy)
    : rep_(std::make_shared<const Rep>(Rep{std::move(list), std::move(hierarchy)})) {}

absl::StatusOr<Placement> Placement::Make(std::string device_type, std::vector<DeviceId> devices,
                                          std::vector<int64_t> hierarchy) {
  BRAID_RETURN_IF_ERROR(CheckHierarchy(hierarchy, devices.size()));
  const Placement flat(std::move(device_type), std::move(devices));
  const std::vector<int>& ranks = flat.rep_->list->by_device;
  const auto twice = std::adjacent_find(
      ranks.begin(), ranks.end(), [&](int a, int b) { return flat.device(a) == flat.device(b); });
  if (twice != ranks.end()) {
    const DeviceId& device = flat.device(*twice);
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device.node, ".", device.device, " is listed twice"));
  }
  return Placement(flat.rep_->list, std::move(hierarchy));
}

absl::StatusOr<Placement> Placement::WithHierarchy(std::vector<int64_t> hierarchy) const {
  if (!problem().empty()) return absl::InvalidArgumentError(problem());
  BRAID_RETURN_IF_ERROR(CheckHierarchy(hierarchy, devices().size()));
  return Placement(rep_->list, std::move(hierarchy));
}

Placement Placement::node(int node) const {
  std::vector<DeviceId> devices;
  for (int rank : RanksOn(node)) devices.push_back(device(rank));
  if (devices.empty() && !problem().empty()) return *this;
  return Placement(device_type(), std::move(devices));
}

Placement Placement::Slice(int first, int count) const {
  if (first >= 0 && count >= 0 && first <= size() && count <= size() - first) {
    return Placement(device_type(), {devices().begin() + first, devices().begin() + first + count});
  }
  Placement none;
  none.rep_ = std::make_shared<const Rep>(
      Rep{none.rep_->list,
          {0},
          absl::StrCat("a slice has ", count, " devices from rank ", first, " on, of ", size())});
  return none;
}

absl::Status Placement::CheckIsIn(const Placement& all) const {
  if (size() == 0) {
    return absl::InvalidArgumentError(problem().empty() ? "it has no devices" : problem());
  }
  for (const DeviceId& device : devices()) {
    if (all.rank_of(device) >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("there is no device ", device.node, ".", device.device));
  }
  return absl::OkStatus();
}

bool Placement::HasDevicesOf(const Placement& other) const {
  return rep_->list == other.rep_->list || devices() == other.devices();
}

bool Placement::DevicesLess::operator()(const Placement& a, const Placement& b) const {
  if (a.rep_->list == b.rep_->list) return false;
  const auto order = a.devices() <=> b.devices();
  return order != 0 ? order < 0 : a.device_type() < b.device_type();
}

std::vector<int>::const_iterator Placement::LowerBound(const DeviceId& device) const {
  const std::vector<int>& ranks = rep_->list->by_device;
  return std::lower_bound(ranks.begin(), ranks.end(), device,
                          [this](int rank, const DeviceId& id) { return this->device(rank) < id; });
}

int Placement::rank_of(const DeviceId& device) const {
  const auto found = LowerBound(device);
  return found != rep_->list->by_device.end() && this->device(*found) == device ? *found : -1;
}

std::vector<int> Placement::RanksOn(int node) const {
  constexpr int kNone = std::numeric_limits<int>::min();
  std::vector<int> ranks(LowerBound({.node = node, .device = kNone}),
                         LowerBound({.node = node + 1, .device = kNone}));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int64_t> Placement::CoordinateOf(int rank) const {
  CHECK(rank >= 0 && rank < size()) << "rank " << rank << " of " << ToString();
  std::vector<int64_t> coordinate(hierarchy().size());
  int64_t rest = rank;
  for (size_t dim = hierarchy().size(); dim-- > 0;) {
    coordinate[dim] = rest % hierarchy()[dim];
    rest /= hierarchy()[dim];
  }
  return coordinate;
}

int Placement::RankOf(std::span<const int64_t> coordinate) const {
  CHECK_EQ(coordinate.size(), hierarchy().size());
  int64_t rank = 0;
  for (size_t dim = 0; dim < hierarchy().size(); ++dim) {
    CHECK(coordinate[dim] >= 0 && coordinate[dim] < hierarchy()[dim])
        << "coordinate " << coordinate[dim] << " in dimension " << dim << " of " << ToString();
    rank = rank * hierarchy()[dim] + coordinate[dim];
  }
  return static_cast<int>(rank);
}

int Placement::num_nodes() const {
  int nodes = 0, last = 0;
  for (int rank : rep_->list->by_device) {
    if (nodes == 0 || device(rank).node != last) ++nodes;
    last = device(rank).node;
  }
  return nodes;
}

std::string Placement::ToString() const {
  auto append = [](std::string* out, const DeviceId& device) {
    absl::StrAppend(out, device.node, ".", device.device);
  };
  return absl::StrCat(device_type(), HierarchyToString(hierarchy()), "{",
                      absl::StrJoin(devices(), " ", append), "}");
}

absl::StatusOr<Placement> Placement::Parse(std::string_view text) {
  TextReader reader(text);
  BRAID_ASSIGN_OR_RETURN(Placement placement, Read(reader));
  BRAID_RETURN_IF_ERROR(reader.ExpectEnd());
  return placement;
}

absl::StatusOr<Placement> Placement::Read(TextReader& reader) {
  BRAID_ASSIGN_OR_RETURN(std::string device_type, reader.Word());
  std::vector<int64_t> hierarchy;
  BRAID_RETURN_IF_ERROR(reader.Expect("["));
  while (!reader.Consume("]")) {
    if (!hierarchy.empty()) BRAID_RETURN_IF_ERROR(reader.Expect(","));
    BRAID_ASSIGN_OR_RETURN(hierarchy.emplace_back(), reader.Int());
  }
  std::vector<DeviceId> devices;
  BRAID_RETURN_IF_ERROR(reader.Expect("{"));
  while (!reader.Consume("}")) {
    BRAID_ASSIGN_OR_RETURN(int64_t node, reader.Int());
    BRAID_RETURN_IF_ERROR(reader.Expect("."));
    BRAID_ASSIGN_OR_RETURN(int64_t device, reader.Int());
    devices.push_back({static_cast<int>(node), static_cast<int>(device)});
  }
  return Make(std::move(device_type), std::move(devices), std::move(hierarchy));
}

std::strong_ordering operator<=>(const Placement& a, const Placement& b) {
  if (a.rep_ == b.rep_) return std::strong_ordering::equal;
  if (a.rep_->list != b.rep_->list) {
    if (const auto order = a.device_type() <=> b.device_type(); order != 0) return order;
    if (const auto order = a.devices() <=> b.devices(); order != 0) return order;
  }
  return a.hierarchy() <=> b.hierarchy();
}

bool operator==(const Placement& a, const Placement& b) {
  return a.rep_ == b.rep_ || (a.device_type() == b.device_type() && a.HasDevicesOf(b) &&
                              a.hierarchy() == b.hierarchy());
}

Region RegionOf(const Shape& shape, const NdSbp& sbp, const Placement& placement, int rank) {
  return RegionOf(shape, sbp, placement.hierarchy(), placement.CoordinateOf(rank));
}

}  // namespace braid
