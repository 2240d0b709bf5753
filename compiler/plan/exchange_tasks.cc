#include "compiler/plan/exchange_tasks.h"

#include <algorithm>
#include <utility>

namespace braid::compiler {

int64_t ExchangeTasks::BytesOf(const Region& region) const {
  return region.size.num_elements() *
         static_cast<int64_t>(SizeOf(exchange_->movement()->destination.type.dtype));
}

const ExchangeTasks::Outgoing& ExchangeTasks::OutgoingOf(int source_rank) {
  const auto found = outgoing_.find(source_rank);
  if (found != outgoing_.end()) return found->second;
  Outgoing outgoing;
  const int node = source_->device(source_rank).node;
  std::map<int, std::vector<size_t>> to_node;  // transfers, by destination node
  const Exchange::Lanes lanes = exchange_->exchange_lanes();
  for (Move& move : moves_.From(source_rank)) {
    if (move.region.empty()) continue;
    if (lanes != Exchange::Lanes::kNone) {
      Transfer& transfer = outgoing.transfers.emplace_back();
      transfer.source_rank = source_rank;
      transfer.owner = move.destination_rank;
      transfer.region = std::move(move.region);
      transfer.is_direct = lanes == Exchange::Lanes::kPull && move.is_whole;
      if (lanes == Exchange::Lanes::kPull && !move.is_whole) {
        transfer.readers.push_back(transfer.owner);
      }
      continue;
    }
    const int destination_node = destination().device(move.destination_rank).node;
    if (destination_node == node) {
      outgoing.local_readers.push_back(move.destination_rank);
      continue;
    }
    std::vector<size_t>& there = to_node[destination_node];
    const auto shared = std::find_if(there.begin(), there.end(), [&](size_t i) {
      return outgoing.transfers[i].region == move.region;
    });
    if (shared != there.end()) {
      outgoing.transfers[*shared].readers.push_back(move.destination_rank);
      continue;
    }
    there.push_back(outgoing.transfers.size());
    Transfer& transfer = outgoing.transfers.emplace_back();
    transfer.source_rank = source_rank;
    transfer.owner = move.destination_rank;
    transfer.region = std::move(move.region);
    transfer.is_direct = move.is_whole;
    if (!transfer.is_direct) transfer.readers.push_back(transfer.owner);
  }
  std::sort(outgoing.local_readers.begin(), outgoing.local_readers.end());
  return outgoing_.emplace(source_rank, std::move(outgoing)).first->second;
}

const std::vector<ExchangeTasks::Transfer>& ExchangeTasks::TransfersFrom(int source_rank) {
  return OutgoingOf(source_rank).transfers;
}

const std::vector<int>& ExchangeTasks::LocalReadersOf(int source_rank) {
  return OutgoingOf(source_rank).local_readers;
}

void ExchangeTasks::Assemble(int node) {
  struct Landing {
    Region region;
    int owner;
    bool is_direct;
  };
  std::map<int, std::vector<Landing>> from;  // by source rank
  for (int rank : destination().RanksOn(node)) {
    std::vector<Piece>& pieces = pieces_[rank];
    for (Move& move : moves_.To(rank)) {
      if (move.region.empty()) continue;
      Piece piece;
      if (exchange_->exchange_lanes() != Exchange::Lanes::kNone) {
        piece.owner = rank;
        piece.is_direct = exchange_->exchange_lanes() == Exchange::Lanes::kPull && move.is_whole;
      } else if (source_->device(move.source_rank).node != node) {
        std::vector<Landing>& landings = from[move.source_rank];
        auto landing = std::find_if(landings.begin(), landings.end(), [&](const Landing& other) {
          return other.region == move.region;
        });
        if (landing == landings.end()) {
          landing = landings.insert(landings.end(), {move.region, rank, move.is_whole});
        }
        piece.owner = landing->owner;
        piece.is_direct = landing->is_direct;
      }
      piece.move = std::move(move);
      pieces.push_back(std::move(piece));
    }
  }
}

const std::vector<ExchangeTasks::Piece>& ExchangeTasks::PiecesOf(int destination_rank) {
  const auto found = pieces_.find(destination_rank);
  if (found != pieces_.end()) return found->second;
  Assemble(destination().device(destination_rank).node);
  return pieces_.at(destination_rank);
}

bool ExchangeTasks::IsDirect(int destination_rank) {
  const std::vector<Piece>& pieces = PiecesOf(destination_rank);
  return pieces.size() == 1 && pieces[0].owner == destination_rank && pieces[0].is_direct;
}

}  // namespace braid::compiler
