// Small ids for Placements: a pass over thousands of ops compares ints, not lists of devices.
#pragma once

#include <map>
#include <vector>

#include "graph/placement.h"

namespace braid::compiler {

class PlacementTable {
 public:
  int Id(const Placement& placement) {
    auto [it, is_new] = ids_.try_emplace(placement, static_cast<int>(placements_.size()));
    if (is_new) placements_.push_back(placement);
    return it->second;
  }
  const Placement& operator[](int id) const { return placements_[id]; }
  int size() const { return static_cast<int>(placements_.size()); }

 private:
  std::map<Placement, int> ids_;
  std::vector<Placement> placements_;
};

}  // namespace braid::compiler
