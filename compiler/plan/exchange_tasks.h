// How an exchange becomes tasks: which boxes need a transfer to another node, where they land, and
// which destinations are assembled. Every node derives the same from the exchange alone.
#pragma once

#include <map>
#include <vector>

#include "compiler/plan/exchange_moves.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// A destination rank is either assembled by a copy task on its device, or, if one transfer brings
// all of it, written by that transfer directly. Ranks of one node that take the same box from the
// same source share one transfer, which lands at the lowest of them, its owner.
//
// Between an asynchronous server and its workers (Exchange::Lanes) every box has a transfer of its
// own, also inside a node, and what is pushed is not assembled.
class ExchangeTasks {
 public:
  ExchangeTasks(const TaskGroup* exchange, const Placement* source)
      : exchange_(exchange), source_(source), moves_(*exchange, *source) {}

  struct Transfer {
    int source_rank = 0;
    int owner = 0;  // the destination rank at which it lands
    Region region;
    bool is_direct = false;    // it lands in the owner's output itself
    std::vector<int> readers;  // destination ranks whose copy tasks read the landing slot
  };

  // Whether a task assembles the destination rank.
  bool IsAssembled(int destination_rank) {
    return exchange_->exchange_lanes() != Exchange::Lanes::kPush && !IsDirect(destination_rank);
  }

  // What a destination rank is assembled from, in the order of the sum. `owner` is -1 for a box
  // that is read from the source register on the same node, else the owner of the transfer.
  struct Piece {
    Move move;
    int owner = -1;
    bool is_direct = false;  // the transfer lands in its owner's output itself
  };
  const std::vector<Piece>& PiecesOf(int destination_rank);
  bool IsDirect(int destination_rank);
  // By owner, ascending.
  const std::vector<Transfer>& TransfersFrom(int source_rank);
  // Destination ranks whose copy tasks read the register of `source_rank` in place, ascending.
  const std::vector<int>& LocalReadersOf(int source_rank);

  int64_t BytesOf(const Region& region) const;

  // Numbers of tasks inside the group: copy tasks by destination rank, then transfers.
  int64_t CopyTask(int destination_rank) const { return destination_rank; }
  int64_t TransferTask(int source_rank, int owner) const {
    return int64_t{1} * destination().size() * (1 + source_rank) + owner;
  }
  int64_t num_tasks() const { return int64_t{1} * destination().size() * (1 + source_->size()); }
  const Placement& destination() const { return exchange_->placement; }
  const Placement& source() const { return *source_; }

 private:
  struct Outgoing {
    std::vector<Transfer> transfers;
    std::vector<int> local_readers;
  };
  const Outgoing& OutgoingOf(int source_rank);
  // Makes the pieces of all destination ranks on a node: they share transfers.
  void Assemble(int node);

  const TaskGroup* exchange_;
  const Placement* source_;
  const ExchangeMoves moves_;
  std::map<int, std::vector<Piece>> pieces_;
  std::map<int, Outgoing> outgoing_;
};

}  // namespace braid::compiler
