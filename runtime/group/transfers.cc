#include "runtime/group/transfers.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/control.pb.h"
#include "runtime/group/write_parts.h"

namespace braid::dist {
namespace {

// Between two ranks of a group; both ends keep to it.
constexpr size_t kMostReceives = 1 << 16;
// Of one rank, in its answer to a roll call.
constexpr int kMostTold = 1024;

void Tell(const GroupCall& call, int64_t number, uint64_t signature, control::RollAnswer& answer) {
  if (answer.transfers_size() == kMostTold) return answer.set_is_cut(true);
  control::GroupTransfer& told = *answer.add_transfers();
  told.set_peer(static_cast<uint32_t>(call.peer));
  told.set_is_send(call.kind == CallKind::kSend);
  told.set_tag(static_cast<uint32_t>(call.tag));
  told.set_number(number);
  told.set_signature(signature);
  told.set_text(Describe(call));
  told.set_is_blocking(call.is_blocking);
  if (call.is_blocking) answer.set_blocked_in(Describe(call));
}

}  // namespace

Transfers::~Transfers() {
  for (const auto& [rank, pair] : pairs_) {
    CHECK(pair.sends.empty() && pair.receives.empty())
        << options_.identity.name << " is destroyed before its transfers are closed";
  }
}

void Transfers::Start(GroupCall call, std::function<void(absl::Status)> done) {
  if (!closed_.ok()) return done(closed_);
  const int rank = call.peer;
  Pair& pair = pairs_[rank];
  const bool is_send = call.kind == CallKind::kSend;
  if (!is_send && pair.receives.size() >= kMostReceives) {
    return done(absl::ResourceExhaustedError(
        absl::StrFormat("%s: %d receives from rank %d are under way, which is the most; wait for "
                        "some of them",
                        Describe(call), pair.receives.size(), rank)));
  }
  const Nanoseconds now = options_.reactor->Now();
  std::list<Transfer>& list = is_send ? pair.sends : pair.receives;
  list.push_back({.call = std::move(call), .done = std::move(done), .began = now, .since = now});
  if (!is_send) list.back().number = pair.receives_made++;
  if (rank == options_.identity.my_rank) return MatchOwn();
  options_.with_link(rank,
                     [this, rank, is_send] { is_send ? MatchSends(rank) : OfferReceives(rank); });
}

void Transfers::OfferReceives(int rank) {
  Link* const link = options_.link_to(rank);
  std::list<Transfer>& receives = pairs_[rank].receives;
  // Those that are not offered are the last.
  Position next = receives.end();
  while (next != receives.begin() && !std::prev(next)->is_offered) --next;
  for (; next != receives.end(); ++next) {
    Transfer& receive = *next;
    if (receive.bytes() > 0) {
      absl::StatusOr<MemoryKey> key = link->Expose(std::span(
          static_cast<std::byte*>(receive.call.output), static_cast<size_t>(receive.bytes())));
      if (!key.ok()) return options_.fail(key.status());
      receive.key = *key;
    }
    receive.is_offered = true;
    link->Send(EncodedTransferFrame({.type = TransferFrame::Type::kOffer,
                                     .group = options_.identity.id,
                                     .from = static_cast<uint16_t>(options_.identity.my_rank),
                                     .to = static_cast<uint16_t>(rank),
                                     .number = receive.number,
                                     .tag = static_cast<uint32_t>(receive.call.tag),
                                     .key = receive.key,
                                     .signature = SignatureOf(receive.call)})
                   .bytes());
  }
}

void Transfers::MatchSends(int rank) {
  Pair& pair = pairs_[rank];
  for (auto next = pair.sends.begin(); next != pair.sends.end() && !pair.offers.empty();) {
    const Position send = next++;  // which may be done in here
    if (send->number >= 0) continue;
    const auto tag = static_cast<uint32_t>(send->call.tag);
    const auto offer = std::ranges::find(pair.offers, tag, &Offer::tag);
    if (offer == pair.offers.end()) continue;
    send->number = offer->number;
    send->key = offer->key;
    const uint64_t signature = offer->signature;
    pair.offers.erase(offer);
    if (signature == SignatureOf(send->call)) {
      Write(rank, send);
      continue;
    }
    send->is_refused = true;
    options_.on_unexpected(absl::StrFormat(
        "rank %d receives something else than what is sent by %s", rank, Describe(send->call)));
  }
}

void Transfers::MatchOwn() {
  Pair& pair = pairs_[options_.identity.my_rank];
  for (auto next = pair.sends.begin(); next != pair.sends.end();) {
    const Position send = next++;
    const auto receive = std::ranges::find_if(pair.receives, [&](const Transfer& transfer) {
      return transfer.call.tag == send->call.tag;
    });
    if (receive == pair.receives.end()) continue;
    if (SignatureOf(send->call) != SignatureOf(receive->call)) {
      return options_.fail(absl::InvalidArgumentError(absl::StrFormat(
          "%s: rank %d is in %s to itself, and in %s; what is sent must be what is received",
          options_.identity.name, options_.identity.my_rank, Describe(send->call),
          Describe(receive->call))));
    }
    if (send->bytes() > 0) {
      std::memmove(receive->call.output, send->call.input, static_cast<size_t>(send->bytes()));
    }
    Finish(pair.sends, send, absl::OkStatus());
    Finish(pair.receives, receive, absl::OkStatus());
  }
}

void Transfers::Write(int rank, Position send) {
  Link* const link = options_.link_to(rank);
  const int64_t bytes = send->bytes();
  TransferFrame frame{.type = TransferFrame::Type::kPart,
                      .group = options_.identity.id,
                      .from = static_cast<uint16_t>(options_.identity.my_rank),
                      .to = static_cast<uint16_t>(rank),
                      .number = send->number};
  if (bytes == 0) link->Send(EncodedTransferFrame(frame).bytes());
  if (send->moved < bytes) send->since = options_.reactor->Now();
  // The send waits for each answer, and this object for the send.
  WriteParts(
      {.link = link,
       .reactor = options_.reactor,
       .data = static_cast<const std::byte*>(send->call.input),
       .bytes = bytes,
       .key = send->key},
      {.moved = send->moved, .writing = send->writing},
      [&frame](int64_t offset, int64_t part) {
        frame.offset = offset;
        frame.bytes = part;
        return EncodedTransferFrame(frame);
      },
      [this, rank, send](const absl::Status& status) { OnWritten(rank, send, status); });
  if (send->moved == bytes && send->writing == 0) {
    Finish(pairs_[rank].sends, send, absl::OkStatus());
  }
}

void Transfers::OnWritten(int rank, Position send, const absl::Status& status) {
  --send->writing;
  send->since = options_.reactor->Now();
  if (!closed_.ok()) {
    if (send->writing == 0) Finish(pairs_[rank].sends, send, closed_);
    return FinishClose();
  }
  if (!status.ok()) return options_.fail(status);
  Write(rank, send);
}

void Transfers::Finish(std::list<Transfer>& list, Position which, const absl::Status& status) {
  const std::function<void(absl::Status)> done = std::move(which->done);
  list.erase(which);
  done(status);
}

absl::Status Transfers::HandleFrame(const TransferFrame& frame) {
  return frame.type == TransferFrame::Type::kOffer ? TakeOffer(frame) : TakePart(frame);
}

absl::Status Transfers::TakeOffer(const TransferFrame& frame) {
  Pair& pair = pairs_[frame.from];
  if (frame.number != pair.offers_seen || pair.offers.size() >= kMostReceives) {
    return absl::InvalidArgumentError(
        absl::StrFormat("receive %d, and %d that wait; expected was receive %d, and %d at most",
                        frame.number, pair.offers.size(), pair.offers_seen, kMostReceives));
  }
  ++pair.offers_seen;
  pair.offers.push_back(
      {.number = frame.number, .tag = frame.tag, .key = frame.key, .signature = frame.signature});
  MatchSends(frame.from);
  return absl::OkStatus();
}

absl::Status Transfers::TakePart(const TransferFrame& frame) {
  Pair& pair = pairs_[frame.from];
  const auto receive = std::ranges::find(pair.receives, frame.number, &Transfer::number);
  if (receive == pair.receives.end() || !receive->is_offered) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a part of receive %d, which is none of %d under way", frame.number, pair.receives.size()));
  }
  const int64_t left = receive->bytes() - receive->moved;
  if (frame.offset != receive->moved || frame.bytes > left ||
      (frame.bytes <= 0 && receive->bytes() > 0)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes at %d of receive %d; expected were up to %d at %d", frame.bytes,
                        frame.offset, frame.number, left, receive->moved));
  }
  receive->moved += frame.bytes;
  receive->since = options_.reactor->Now();
  if (receive->moved < receive->bytes()) return absl::OkStatus();
  if (receive->bytes() > 0) options_.link_to(frame.from)->Withdraw(receive->key);
  Finish(pair.receives, receive, absl::OkStatus());
  return absl::OkStatus();
}

std::optional<Transfers::Waiting> Transfers::FindWaiting() const {
  const Nanoseconds now = options_.reactor->Now();
  std::optional<Waiting> most;
  Nanoseconds left = 0;
  const auto look = [&](const Transfer& transfer) {
    Waiting waiting{.call = &transfer.call, .quiet = now - transfer.since};
    if (const Nanoseconds timeout = transfer.call.timeout; timeout > 0) {
      const Nanoseconds rest = timeout - (now - transfer.began);
      if (rest <= 0) waiting.overdue = timeout;
      if (rest > 0 && (left == 0 || rest < left)) left = rest;
    }
    const auto need = [](const Waiting& of) { return std::pair(of.overdue > 0, of.quiet); };
    if (!most.has_value() || need(waiting) > need(*most)) most = waiting;
  };
  for (const auto& [rank, pair] : pairs_) {
    std::ranges::for_each(pair.sends, look);
    std::ranges::for_each(pair.receives, look);
  }
  if (most.has_value()) most->left = left;
  return most;
}

void Transfers::Answer(control::RollAnswer& answer) const {
  const auto tell = [&](const Transfer& transfer) {
    Tell(transfer.call, transfer.number, SignatureOf(transfer.call), answer);
  };
  for (const auto& [rank, pair] : pairs_) {
    std::ranges::for_each(pair.sends, tell);
    std::ranges::for_each(pair.receives, tell);
    for (const Offer& offer : pair.offers) {
      if (answer.offers_size() == kMostTold) return answer.set_is_cut(true);
      control::RollAnswer::Offer& told = *answer.add_offers();
      told.set_peer(static_cast<uint32_t>(rank));
      told.set_number(offer.number);
    }
  }
}

void Transfers::Close(const absl::Status& reason, std::function<void()> closed) {
  if (closed_.ok()) closed_ = reason;
  on_closed_ = std::move(closed);
  for (auto& [rank, pair] : pairs_) {
    for (auto next = pair.receives.begin(); next != pair.receives.end();) {
      const Position receive = next++;
      // Nothing is written there any more when this returns.
      if (receive->is_offered && receive->bytes() > 0) {
        options_.link_to(rank)->Withdraw(receive->key);
      }
      Finish(pair.receives, receive, closed_);
    }
    for (auto next = pair.sends.begin(); next != pair.sends.end();) {
      const Position send = next++;
      if (send->writing == 0) Finish(pair.sends, send, closed_);
    }
  }
  FinishClose();
}

void Transfers::FinishClose() {
  const bool is_over =
      std::ranges::all_of(pairs_, [](const auto& pair) { return pair.second.sends.empty(); });
  if (is_over && on_closed_) std::exchange(on_closed_, nullptr)();
}

}  // namespace braid::dist
