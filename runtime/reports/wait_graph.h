// Who waits for whom in the whole cluster, followed to the root: what everything waits for in the
// end. Pure: from the nodes' reports to words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/reactor.h"

namespace braid {

namespace control {
class NodeReport;
}  // namespace control

// A job in which no act has begun or ended for as long does not advance, as far as people care.
constexpr Nanoseconds kStanding = kSecond;

// What is known of the cluster at one time.
struct ClusterState {
  std::vector<control::NodeReport> reports;
  // Nodes that did not answer, and how long nothing has come from them; negative: not known.
  std::map<uint16_t, Nanoseconds> silent;
  // False: `reports` is one node's part, the others were not asked.
  bool is_whole = true;
  std::function<std::string(int node)> name_of;  // "node 1 (10.0.0.2)"

  ClusterState();
  ~ClusterState();
  ClusterState(ClusterState&&);
};

struct WaitRoots {
  std::string root;    // "node 1, device 0: relu 'h' (train.cc:12) has been inside its ..."
  size_t waiting = 0;  // actors that wait
  size_t waiting_for_root = 0;      // in the end
  std::vector<std::string> chain;   // a line each: the shortest that leads there
  std::vector<std::string> others;  // further roots, with what they hold up
};
// `root` is empty if nothing waits.
WaitRoots FindRoots(const ClusterState& cluster);

// "node 1, device 0", with the thread's name unless it is the device's first.
std::string ThreadName(const ClusterState& cluster, int node, uint32_t thread);

}  // namespace braid
