// The list of collective algorithms, and what an algorithm's end of a member is made of. Between
// the hub and the algorithms; users of collectives see collective.h only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "comm/collective/collective.h"
#include "comm/collective/local_group.h"
#include "comm/transport.h"
#include "runtime/base/memory.h"
#include "runtime/base/reactor.h"

namespace braid {

struct CollectiveContext {
  CollectiveSpec spec;
  Reactor* reactor = nullptr;         // the member's
  AllocateMemory allocate;            // of the member's device
  std::shared_ptr<LocalGroup> group;  // shared by the members' ends of this node
  // The Link to another node, or an error that names what is missing.
  std::function<absl::StatusOr<Link*>(uint16_t node)> link_to;
};

struct CollectiveAlgorithmEntry {
  CollectiveAlgorithm algorithm;
  // Whether the algorithm can do this spec, which is valid otherwise.
  absl::Status (*check)(const CollectiveSpec& spec);
  int64_t (*memory_bytes)(const CollectiveSpec& spec);
  // Joins the group.
  absl::StatusOr<std::unique_ptr<Collective>> (*make)(const CollectiveContext& context);
};

// Null if there is none.
const CollectiveAlgorithmEntry* FindCollectiveAlgorithm(CollectiveAlgorithm algorithm);

}  // namespace braid
