#include <algorithm>
#include <array>

#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::span<const Target> Targets() {
  static const std::array targets = {
      TcpTarget(),        ShmTarget(),    RdmaTarget(), FramesTarget(), GroupsTarget(),
      ControlTarget(),    MasterTarget(), JoinTarget(), PlanTarget(),   NodesTarget(),
      CheckpointTarget(), DataTarget(),   OnnxTarget(), ObjectsTarget()};
  return targets;
}

const Target* FindTarget(std::string_view name) {
  const std::span<const Target> targets = Targets();
  const auto found = std::find_if(targets.begin(), targets.end(),
                                  [&](const Target& target) { return target.name == name; });
  return found == targets.end() ? nullptr : &*found;
}

}  // namespace braid::fuzz
