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
  kDirect,       // all members in one process: they meet, and read each other's memory
  kRing,         // any members: chunks from neighbour to neighbour (all_to_all: between all pairs)
  kDirectByOne,  // as kDirect, but the member that arrives last does the work of all
  kExchange,     // an all_reduce of two processes: both send all they have, and both reduce it
  kDevice,       // all members in one process: they meet, and then their devices do it
  // Members on several hosts, as many on each: those of a host exchange, and between hosts there is
  // a ring for each of them (no all_to_all).
  kHierarchical,
  // In so many steps as members can be doubled, for little data: an all_gather; an all_reduce or a
  // reduce_scatter, of which each gets what all have, and sums it up itself; a broadcast (no
  // all_to_all).
  kDoubling,
  // An all_reduce or a reduce_scatter in which every member sends to every other: what a ring
  // sends, in two steps or one.
  kPairwise,
};

// How a collective is carried out.
struct CollectiveMethod {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  int64_t chunk_bytes = int64_t{256} << 10;  // sent at a time; unused where !SendsChunks

  friend bool operator==(const CollectiveMethod&, const CollectiveMethod&) = default;
};

// How many chunks may be under way from a member to the next one. A ring works off so many chunks
// of every block before it begins with later ones.
constexpr uint32_t kRingSlots = 4;
// And to each of many others at once.
constexpr uint32_t kPairSlots = 2;

// All of them.
inline constexpr CollectiveAlgorithm kCollectiveAlgorithms[] = {
    CollectiveAlgorithm::kDirect,      CollectiveAlgorithm::kRing,
    CollectiveAlgorithm::kDirectByOne, CollectiveAlgorithm::kExchange,
    CollectiveAlgorithm::kDevice,      CollectiveAlgorithm::kHierarchical,
    CollectiveAlgorithm::kDoubling,    CollectiveAlgorithm::kPairwise};

// Those of process groups; the others are of one process.
inline constexpr CollectiveAlgorithm kGroupAlgorithms[] = {
    CollectiveAlgorithm::kDirect,   CollectiveAlgorithm::kExchange,
    CollectiveAlgorithm::kRing,     CollectiveAlgorithm::kHierarchical,
    CollectiveAlgorithm::kDoubling, CollectiveAlgorithm::kPairwise};

// "all_reduce"; "unknown" for a number that is no kind.
std::string_view CollectiveKindName(CollectiveKind kind);
// Whether its members send each other chunks; else they meet in one process.
bool SendsChunks(CollectiveAlgorithm algorithm);
// "ring"; "unknown" for a number that is no algorithm.
std::string_view CollectiveAlgorithmName(CollectiveAlgorithm algorithm);

}  // namespace braid
