// Which kind of devices each node of a cluster has. A node's devices are of one kind; nodes may
// differ.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/placement.h"

namespace braid::compiler {

// What plans need to know of a kind of device.
struct DeviceKind {
  std::string name = "cpu";
  // Its kernels and the host work in the same memory, and what it is told it does at once. Of
  // others, what the host reads or writes is copied to and from host memory.
  bool is_host = true;
  // The devices of a node do collectives among themselves, in memory of their own, of which each
  // may copy what it needs from the others.
  bool does_collectives = false;
  // They may come to these in any order of their own: none waits in its stream for one that is to
  // come. Else there is one order for all.
  bool collects_in_any_order = false;
  // The devices of a node do collectives with those of other nodes of which this is true, too. For
  // the compiler alone: a plan does not say it, but which collectives they do.
  bool collects_between_nodes = false;
  // Narrow precision keeps what lies between products narrow there. For the compiler alone: a plan
  // does not say it.
  bool keeps_narrow = false;
  // Kernels of products add other tensors to them there. For the compiler alone, too.
  bool adds_to_products = false;

  friend bool operator==(const DeviceKind&, const DeviceKind&) = default;
};

// A value.
class NodeKinds {
 public:
  NodeKinds() = default;  // CPUs everywhere
  explicit NodeKinds(std::vector<DeviceKind> of_nodes) : of_nodes_(std::move(of_nodes)) {
    if (std::all_of(of_nodes_.begin(), of_nodes_.end(),
                    [](const DeviceKind& kind) { return kind == DeviceKind(); })) {
      of_nodes_.clear();
    }
  }

  DeviceKind of(int node) const {
    return node >= 0 && node < static_cast<int>(of_nodes_.size()) ? of_nodes_[node] : DeviceKind();
  }
  // Whether all devices of the placement work in host memory.
  bool AreHost(const Placement& placement) const { return Are(placement, &DeviceKind::is_host); }
  // Whether all devices of the placement do collectives with others of their nodes.
  bool DoCollectives(const Placement& placement) const {
    return Are(placement, &DeviceKind::does_collectives);
  }
  bool CollectInAnyOrder(const Placement& placement) const {
    return Are(placement, &DeviceKind::collects_in_any_order);
  }
  bool CollectBetweenNodes(const Placement& placement) const {
    return Are(placement, &DeviceKind::collects_between_nodes);
  }
  bool KeepNarrow(const Placement& placement) const {
    return Are(placement, &DeviceKind::keeps_narrow);
  }
  bool AddToProducts(const Placement& placement) const {
    return Are(placement, &DeviceKind::adds_to_products);
  }
  // By node; empty: CPUs everywhere.
  const std::vector<DeviceKind>& of_nodes() const { return of_nodes_; }

 private:
  // Of all devices of the placement.
  bool Are(const Placement& placement, bool DeviceKind::*what) const {
    if (of_nodes_.empty()) return DeviceKind().*what;
    return std::all_of(placement.devices().begin(), placement.devices().end(),
                       [&](const DeviceId& device) { return of(device.node).*what; });
  }

  std::vector<DeviceKind> of_nodes_;
};

}  // namespace braid::compiler
