#include "tests/conformance/random_graph_layout.h"

#include <algorithm>
#include <string>

namespace braid::conformance {
namespace {

std::vector<DeviceId> DevicesOf(const std::vector<int>& cluster) {
  std::vector<DeviceId> devices;
  for (int node = 0; node < static_cast<int>(cluster.size()); ++node) {
    for (int device = 0; device < cluster[node]; ++device) devices.push_back({node, device});
  }
  return devices;
}

// Some of the devices, mostly in order, flat or under a hierarchy.
Placement DrawPlacement(Draws& draws, const std::string& kind, std::vector<DeviceId> devices) {
  for (size_t i = devices.size(); i > 1; --i) {
    std::swap(devices[i - 1], devices[draws.Below(static_cast<int>(i))]);
  }
  devices.resize(1 + draws.Below(static_cast<int>(devices.size())));
  if (draws.Chance(75)) std::sort(devices.begin(), devices.end());
  const int64_t count = static_cast<int64_t>(devices.size());
  const Placement flat(kind, std::move(devices));
  if (!draws.Chance(40)) return flat;
  std::vector<std::vector<int64_t>> hierarchies = {{1, count}, {count, 1}};
  if (count == 4) hierarchies = {{2, 2}, {2, 2}, {2, 2}, {1, 4}, {2, 1, 2}};
  return *flat.WithHierarchy(hierarchies[draws.Below(static_cast<int>(hierarchies.size()))]);
}

}  // namespace

std::vector<int> ClusterOf(uint64_t seed) {
  const std::vector<std::vector<int>> clusters = {{2},    {3},    {4},         {1, 1},
                                                  {2, 2}, {1, 2}, {1, 1, 1, 1}};
  return clusters[Draws(seed, "cluster").Below(static_cast<int>(clusters.size()))];
}

std::optional<uint64_t> DrawLayoutSeed(uint64_t seed) {
  if (Draws(seed, "layout seed").Chance(25)) return std::nullopt;
  return seed;
}

RandomLayout::RandomLayout(uint64_t seed, Job& job, bool is_spread)
    : draws_(seed, "layout"), job_(job), is_spread_(is_spread) {
  const std::vector<int> cluster = ClusterOf(seed);
  const int count = 1 + draws_.Below(4);
  for (int i = 0; i < count; ++i) {
    places_.push_back(DrawPlacement(draws_, job.devices().device_type(), DevicesOf(cluster)));
  }
  static constexpr int kPercents[] = {0, 25, 75};
  place_percent_ = kPercents[draws_.Below(3)];
  hint_percent_ = kPercents[draws_.Below(3)];
  const bool is_rectangular = std::equal(cluster.begin() + 1, cluster.end(), cluster.begin());
  if (place_percent_ == 0 && is_rectangular && draws_.Chance(40)) rank_ = 2;
}

int RandomLayout::RankHere() const {
  return here_ == kNowhere ? rank_ : static_cast<int>(places_[here_].hierarchy().size());
}

NdSbp RandomLayout::Draw(const Shape& shape, bool may_be_partial) {
  // One kind means the same on all dimensions.
  const int rank = draws_.Chance(20) ? 1 : RankHere();
  NdSbp layout = NdSbp::Uniform(rank, sbp::B);
  for (int dim = 0; dim < rank; ++dim) {
    const int kind = draws_.Below(4);
    if (kind < 2 && shape.rank() > 0) layout[dim] = sbp::S(draws_.Below(shape.rank()));
    if (kind == 2 && may_be_partial) layout[dim] = sbp::P;
  }
  return layout;
}

Tensor RandomLayout::Perhaps(Tensor x) {
  if (!x.valid() || !draws_.Chance(hint_percent_)) return x;
  const NdSbp layout = Draw(x.shape(), /*may_be_partial=*/x.dtype() == DType::kF64);
  return is_spread_ ? ToSbp(x, layout) : Identity(x);
}

std::optional<NdSbp> RandomLayout::VariableHint(const Shape& shape) {
  if (!draws_.Chance(hint_percent_)) return std::nullopt;
  const NdSbp layout = Draw(shape, /*may_be_partial=*/false);
  return is_spread_ ? std::optional<NdSbp>(layout) : std::nullopt;
}

}  // namespace braid::conformance
