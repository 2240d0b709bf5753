#include "compiler/exchange_tasks.h"

#include <algorithm>

namespace braid::compiler {

int64_t ExchangeTasks::BytesOf(const Region& region) const {
  return region.size.num_elements() *
         static_cast<int64_t>(SizeOf(exchange_->destination.type.dtype));
}

const ExchangeTasks::Outgoing& ExchangeTasks::OutgoingOf(int source_rank) {
  const auto found = outgoing_.find(source_rank);
  if (found != outgoing_.end()) return found->second;
  Outgoing outgoing;
  const int node = source_->device(source_rank).node;
  for (const Move& move : MovesFrom(*exchange_, *source_, source_rank)) {
    if (move.region.empty()) continue;
    const int destination_node = destination().device(move.destination_rank).node;
    if (destination_node == node) {
      outgoing.local_readers.push_back(move.destination_rank);
      continue;
    }
    Transfer* shared = nullptr;
    for (Transfer& transfer : outgoing.transfers) {
      if (transfer.region == move.region &&
          destination().device(transfer.owner).node == destination_node) {
        shared = &transfer;
      }
    }
    if (shared == nullptr) {
      shared = &outgoing.transfers.emplace_back();
      shared->source_rank = source_rank;
      shared->owner = move.destination_rank;
      shared->region = move.region;
      const std::vector<Move> all = MovesTo(*exchange_, *source_, move.destination_rank);
      shared->is_direct =
          all.size() == 1 && !move.add &&
          move.region == RegionOf(exchange_->destination, destination(), move.destination_rank);
      if (shared->is_direct) continue;
    }
    shared->readers.push_back(move.destination_rank);
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

const std::vector<ExchangeTasks::Piece>& ExchangeTasks::PiecesOf(int destination_rank) {
  const auto found = pieces_.find(destination_rank);
  if (found != pieces_.end()) return found->second;
  std::vector<Piece> pieces;
  const int node = destination().device(destination_rank).node;
  for (Move& move : MovesTo(*exchange_, *source_, destination_rank)) {
    if (move.region.empty()) continue;
    Piece piece;
    piece.move = std::move(move);
    if (source_->device(piece.move.source_rank).node != node) {
      for (const Transfer& transfer : TransfersFrom(piece.move.source_rank)) {
        if (transfer.region == piece.move.region &&
            destination().device(transfer.owner).node == node) {
          piece.owner = transfer.owner;
        }
      }
    }
    pieces.push_back(std::move(piece));
  }
  return pieces_.emplace(destination_rank, std::move(pieces)).first->second;
}

bool ExchangeTasks::IsDirect(int destination_rank) {
  const std::vector<Piece>& pieces = PiecesOf(destination_rank);
  return pieces.size() == 1 && pieces[0].owner == destination_rank && !pieces[0].move.add &&
         pieces[0].move.region == RegionOf(exchange_->destination, destination(), destination_rank);
}

}  // namespace braid::compiler
