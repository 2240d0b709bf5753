// What a group of devices can do together, and how: plans say it, and who carries it out reads it.
#pragma once

#include <cstdint>
#include <string_view>

namespace braid {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
};

enum class CollectiveAlgorithm : uint8_t {
  kDirect,  // all members in one process: they read each other's memory
  kRing,    // any layout: chunks from neighbour to neighbour (all_to_all: between all pairs)
};

// "all_reduce"; "unknown" for a number that is no kind.
std::string_view CollectiveKindName(CollectiveKind kind);

}  // namespace braid
