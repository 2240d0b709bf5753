#include "compiler/physical/device_sets.h"

#include <algorithm>
#include <iterator>

namespace braid::compiler {

int DeviceSets::InternSorted(std::vector<DeviceId> devices) {
  const auto [found, is_new] = number_.try_emplace(devices, size());
  if (is_new) sets_.push_back(std::move(devices));
  return found->second;
}

int DeviceSets::Intern(const Placement& placement) {
  const auto found = of_placement_.find(placement);
  if (found != of_placement_.end()) return found->second;
  std::vector<DeviceId> devices = placement.devices();
  std::sort(devices.begin(), devices.end());
  return of_placement_[placement] = InternSorted(std::move(devices));
}

int DeviceSets::Intersection(int a, int b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  const auto [found, is_new] = intersections_.try_emplace({a, b}, -1);
  if (!is_new) return found->second;
  std::vector<DeviceId> common;
  std::set_intersection(sets_[a].begin(), sets_[a].end(), sets_[b].begin(), sets_[b].end(),
                        std::back_inserter(common));
  if (!common.empty()) found->second = InternSorted(std::move(common));
  return found->second;
}

}  // namespace braid::compiler
