// The sends and receives of one rank of a process group, beside the group's collectives. A receive
// offers its memory to the rank that sends, and this rank writes there once its own call has come
// and both say the same. So nothing is kept in between, whatever the size; who comes first waits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "comm/transport.h"
#include "runtime/base/reactor.h"
#include "runtime/group/group_call.h"
#include "runtime/group/group_frame.h"

namespace braid {

namespace control {
class RollAnswer;
}  // namespace control

namespace dist {

// Calls of two ranks with one tag are matched in the order in which both make them; calls with
// different tags do not wait for each other. Everything happens on the node's control thread.
class Transfers {
 public:
  struct Options {
    GroupIdentity identity;
    Reactor* reactor = nullptr;  // borrowed
    // Calls back once the link to a rank is there, maybe inside the call, until Close.
    std::function<void(int rank, std::function<void()> then)> with_link;
    std::function<Link*(int rank)> link_to;  // once it is there
    // What came does not fit to what this rank does.
    std::function<void(const std::string& evidence)> on_unexpected;
    // The session: Close follows.
    std::function<void(const absl::Status& cause)> fail;
  };
  explicit Transfers(Options options) : options_(std::move(options)) {}
  // After Close is done.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Of a send or a receive that passes CheckCall. `done` comes once, maybe inside this call.
  void Start(GroupCall call, std::function<void(absl::Status)> done);
  // From the rank that it says; an error, without whose frame it was, closes the link.
  absl::Status HandleFrame(const TransferFrame& frame);

  // The one of those under way that is most in need of a roll call.
  struct Waiting {
    const GroupCall* call = nullptr;
    Nanoseconds quiet = 0;    // since its last byte
    Nanoseconds overdue = 0;  // its timeout, once it has passed
    Nanoseconds left = 0;     // of the timeout that ends first; 0: none does
  };
  std::optional<Waiting> FindWaiting() const;
  // What the master is told of those under way.
  void Answer(control::RollAnswer& answer) const;

  // All get `reason`; `closed` once no memory is used any more, maybe inside this call.
  void Close(const absl::Status& reason, std::function<void()> closed);

 private:
  struct Transfer {
    GroupCall call;
    std::function<void(absl::Status)> done;
    int64_t number = -1;      // of the receive; of a send once it is matched
    MemoryKey key = {};       // of the receive's memory, once it is offered
    bool is_offered = false;  // receive
    bool is_refused = false;  // send: the receive says something else
    int64_t moved = 0;        // bytes
    int writing = 0;          // parts of a send that the link still reads
    Nanoseconds began = 0;
    Nanoseconds since = 0;  // its last byte

    bool is_send() const { return call.kind == CallKind::kSend; }
    int64_t bytes() const { return call.counts[0] * call.element_size; }
  };
  using Position = std::list<Transfer>::iterator;
  // A receive there that no send here has been matched with.
  struct Offer {
    int64_t number = 0;
    uint32_t tag = 0;
    MemoryKey key = {};
    uint64_t signature = 0;
  };
  // What is between this rank and another, or itself.
  struct Pair {
    std::list<Transfer> sends, receives;  // that are not done
    std::deque<Offer> offers;
    int64_t receives_made = 0;
    int64_t offers_seen = 0;
  };

  void OfferReceives(int rank);
  void MatchSends(int rank);
  void MatchOwn();
  // What is ready of a matched send. May end it.
  void Write(int rank, Position send);
  void OnWritten(int rank, Position send, const absl::Status& status);
  void Finish(std::list<Transfer>& list, Position which, const absl::Status& status);
  absl::Status TakeOffer(const TransferFrame& frame);
  absl::Status TakePart(const TransferFrame& frame);
  void FinishClose();
  uint64_t SignatureOf(const GroupCall& call) const {
    return TransferSignatureOf(call, options_.identity.id);
  }

  const Options options_;
  std::map<int, Pair> pairs_;  // by the other rank
  absl::Status closed_;
  std::function<void()> on_closed_;
};

}  // namespace dist
}  // namespace braid
