// Collectives on random data, with references computed one member at a time in the declared order
// of additions, so that results are compared bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective/collective.h"
#include "tests/comm/comm_cluster.h"

namespace braid {

enum class ElementType { kFloat, kDouble, kInt32 };

// One collective over some pieces.
struct CollectiveCase {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  std::vector<uint16_t> layout;  // the node of every member
  std::vector<uint32_t> hosts;   // of every member; empty: all on one
  std::vector<int64_t> counts;   // as in the spec; all_to_all: [src * p + dst]
  ElementType type = ElementType::kFloat;
  bool in_place = false;  // where the kind allows it
  int num_pieces = 3;
  bool is_endless = false;  // starts over after the last piece, until something fails
  int root = 0;
  int64_t chunk_bytes = 64;
  int64_t place_from = CollectiveSpec{}.place_from;
  int64_t lend_from = CollectiveSpec{}.lend_from;

  std::string Describe() const;
};

int64_t SizeOf(ElementType type);
ReduceFn SumOf(ElementType type);

// Counts for `members` blocks of about `n` elements, unequal if `uneven`, some of them empty.
std::vector<int64_t> MakeCounts(CollectiveKind kind, int members, int64_t n, bool uneven);

CollectiveSpec MakeSpec(const CollectiveCase& c, uint32_t id, int rank);

// The members of one collective in a cluster, each with a reactor of its own that lasts as long as
// the run.
class CollectiveRun {
 public:
  // Creates the ends; Connect the cluster afterwards.
  CollectiveRun(CommCluster& cluster, const CollectiveCase& c, uint32_t id,
                const std::vector<Reactor*>& reactors);
  ~CollectiveRun();

  Collective& member(int rank) { return *ends_[rank]; }

  // Starts all members, each piece after piece; `done` of the last.
  void Start();
  // The first error of a member, OK if all pieces of all members were done.
  absl::Status Wait();
  // Every done came exactly once per Start.
  bool AllAnswered() const;
  // Compares with the reference.
  void Check() const;
  // All outputs.
  std::vector<std::byte> Result() const;

 private:
  struct PieceBuffers {
    std::vector<std::byte> original;  // what the input was
    Memory input;                     // empty if in place
    Memory output;
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
  };

  void StartPiece(int rank, int64_t piece);
  std::vector<std::byte> Reference(int rank, int piece) const;

  CommCluster& cluster_;
  const CollectiveCase case_;
  const std::vector<Reactor*> reactors_;
  std::vector<std::unique_ptr<Collective>> ends_;
  std::vector<std::vector<PieceBuffers>> buffers_;  // [rank][piece]
  std::unique_ptr<Event> all_done_;
  mutable Mutex mutex_;
  int missing_ = 0;  // members
  int started_ = 0;
  int answered_ = 0;
  absl::Status status_;
};

}  // namespace braid
