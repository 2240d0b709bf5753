// The distinct sets of devices that groups and registers of a graph live on. Passes compare the few
// sets instead of the many placements.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "graph/placement.h"

namespace braid::compiler {

class DeviceSets {
 public:
  // The number of the set of devices of `placement`, whatever their order and hierarchy.
  int Intern(const Placement& placement);

  int size() const { return static_cast<int>(sets_.size()); }
  const std::vector<DeviceId>& devices(int set) const { return sets_[set]; }
  // The number of the devices that are in both; -1 if there are none.
  int Intersection(int a, int b);
  // True if every device of `inner` is in `outer`.
  bool Contains(int outer, int inner) { return Intersection(outer, inner) == inner; }

 private:
  int InternSorted(std::vector<DeviceId> devices);

  std::vector<std::vector<DeviceId>> sets_;  // sorted
  std::map<std::vector<DeviceId>, int> number_;
  std::map<Placement, int> of_placement_;
  std::map<std::pair<int, int>, int> intersections_;
};

}  // namespace braid::compiler
