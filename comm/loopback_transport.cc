#include "comm/loopback_transport.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>

#include "absl/strings/str_format.h"
#include "comm/first_packets.h"
#include "comm/landing_regions.h"
#include "glog/logging.h"

namespace braid {
namespace {

// Packets for which there is room from the start; if more are on their way, queues grow, once.

// One frame on its way, with the payload that goes before it if it is a Write.
struct Packet {
  uint64_t sequence = 0;
  size_t frame_bytes = 0;
  std::array<std::byte, kMaxFrameBytes> frame;
  std::span<const std::byte> payload;
  MemoryKey key;
  uint64_t offset = 0;
  Link::DoneCallback done;  // empty: a Send
};

// Both ends of one link. A side is what belongs to one node: its inbox holds what the other sent.
//
// Closing: both sides are flushed, each on its own reactor (which answers the writes still in its
// inbox); when both are, no callback can come any more and both owners are told.
class LinkPair : public std::enable_shared_from_this<LinkPair> {
 public:
  LinkPair(const uint16_t (&nodes)[2], Reactor* const (&reactors)[2]) {
    for (int i : {0, 1}) {
      sides_[i].node = nodes[i];
      sides_[i].pair = this;
      sides_[i].number = i;
      sides_[i].reactor = reactors[i];
      sides_[i].inbox.reserve(kFirstPackets);
      sides_[i].drained.reserve(kFirstPackets);
    }
  }

  uint16_t node(int side) const { return sides_[side].node; }

  bool is_open() {
    MutexLock lock(mutex_);
    return !closed_;
  }

  LandingRegions& regions(int side) { return sides_[side].regions; }

  // To the side's peer. `packet.sequence` is filled in here.
  void Push(int side, Packet packet) {
    Side& self = sides_[side];
    Side& peer = sides_[1 - side];
    Reactor* wake = nullptr;
    {
      MutexLock lock(mutex_);
      if (!closed_) {
        packet.sequence = self.next_sequence++;
        self.counters.frames_sent++;
        self.counters.bytes_sent += packet.payload.size();
        peer.inbox.push_back(std::move(packet));
        ScheduleDrain(1 - side);
        return;
      }
      wake = self.reactor;
    }
    // Answered later, since never inside the call; but before the owner learns of the closing if
    // that is still to come.
    if (packet.done && wake) {
      wake->Post([self = shared_from_this(), done = std::move(packet.done), side] {
        done(self->reason(side));
      });
    }
  }

  void SetHandler(int side, Link::FrameHandler handler) {
    MutexLock lock(mutex_);
    CHECK(!sides_[side].handler) << "a link's handler is set once";
    sides_[side].handler = std::make_shared<const Link::FrameHandler>(std::move(handler));
    if (!sides_[side].inbox.empty()) ScheduleDrain(side);
  }

  void OnClosed(int side, std::function<void(absl::Status)> closed) {
    MutexLock lock(mutex_);
    CHECK(!sides_[side].closed_handler) << "a link's closed callback is set once";
    sides_[side].closed_handler = std::move(closed);
    if (sides_[0].is_flushed && sides_[1].is_flushed) ScheduleNotice(side);
  }

  void Close(int side, const absl::Status& reason) {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    CHECK(!reason.ok()) << "a link closes for a reason";
    sides_[side].reason = reason;
    sides_[1 - side].reason = absl::Status(
        absl::StatusCode::kUnavailable,
        absl::StrFormat("link node %d <-> node %d was closed by node %d: %s", sides_[1 - side].node,
                        sides_[side].node, sides_[side].node, std::string(reason.message())));
    ScheduleDrain(0);
    ScheduleDrain(1);
  }

  // The Link object of this side goes away, on its reactor's thread.
  void Detach(int side) {
    Close(side, absl::CancelledError(absl::StrFormat("node %d gave up the link to node %d",
                                                     node(side), node(1 - side))));
    Drain(side);
    MutexLock lock(mutex_);
    sides_[side].reactor = nullptr;
    sides_[side].closed_handler = nullptr;
    sides_[side].handler = nullptr;
  }

  LinkCounters counters(int side) {
    MutexLock lock(mutex_);
    return sides_[side].counters;
  }

 private:
  struct Side {
    LinkPair* pair = nullptr;
    int number = 0;
    uint16_t node = 0;
    Reactor* reactor = nullptr;                         // null: detached
    std::shared_ptr<const Link::FrameHandler> handler;  // shared with a delivery under way
    std::function<void(absl::Status)> closed_handler;
    std::vector<Packet> inbox;
    bool is_scheduled = false;
    bool is_flushed = false;
    absl::Status reason;
    uint64_t next_sequence = 0;
    LinkCounters counters;
    // The reactor's thread only.
    uint64_t expected_sequence = 0;
    bool is_draining = false;
    std::vector<Packet> drained;  // of the inbox; empty while nothing is

    LandingRegions regions;
  };

  absl::Status reason(int side) {
    MutexLock lock(mutex_);
    return sides_[side].reason;
  }

  // Under mutex_: one event a batch, not one a packet.
  void ScheduleDrain(int side) {
    Side& self = sides_[side];
    if (self.is_scheduled || !self.reactor || (!self.handler && !closed_)) return;
    self.is_scheduled = true;
    // One pointer, which keeps the pair: what is posted has room for that.
    self.reactor->Post([side = std::shared_ptr<Side>(shared_from_this(), &self)] {
      side->pair->Drain(side->number);
    });
  }

  void ScheduleNotice(int side) {
    Side& self = sides_[side];
    if (!self.reactor || !self.closed_handler) return;
    self.reactor->Post([self = shared_from_this(), side] {
      std::function<void(absl::Status)> closed;
      absl::Status reason;
      {
        MutexLock lock(self->mutex_);
        closed = std::move(self->sides_[side].closed_handler);
        reason = self->sides_[side].reason;
      }
      if (closed) closed(reason);
    });
  }

  void Drain(int side) {
    Side& self = sides_[side];
    // A handler that destroys its Link comes back here: the outer call does the rest.
    if (std::exchange(self.is_draining, true)) return;
    std::vector<Packet>& batch = self.drained;
    for (bool is_open = true; is_open;) {
      std::shared_ptr<const Link::FrameHandler> handler;
      {
        MutexLock lock(mutex_);
        self.is_scheduled = false;
        batch.clear();
        batch.swap(self.inbox);
        handler = self.handler;
        is_open = !closed_;
      }
      if (is_open && batch.empty()) break;
      for (Packet& packet : batch) {
        if (is_open) {
          is_open = Deliver(side, packet, *handler);
        } else if (packet.done) {
          packet.done(reason(1 - side));
        }
      }
      if (is_open) break;  // what came meanwhile has its own event
      MutexLock lock(mutex_);
      is_open = !self.inbox.empty();  // once more: nothing is added any more
      if (!is_open) Flushed(side);
    }
    batch.clear();
    self.is_draining = false;
  }

  // Under mutex_.
  void Flushed(int side) {
    if (std::exchange(sides_[side].is_flushed, true) || !sides_[1 - side].is_flushed) return;
    ScheduleNotice(0);
    ScheduleNotice(1);
  }

  // False if the link is closed now.
  bool Deliver(int side, Packet& packet, const Link::FrameHandler& handler) {
    Side& self = sides_[side];
    CHECK_EQ(packet.sequence, self.expected_sequence) << "the loopback lost or swapped a frame";
    ++self.expected_sequence;
    if (packet.done) {
      if (absl::Status status = Land(self, packet); !status.ok()) {
        Close(side, status);
        packet.done(reason(1 - side));
        return false;
      }
      packet.done(absl::OkStatus());
    }
    {
      MutexLock lock(mutex_);
      if (closed_) return false;
      self.counters.frames_received++;
      self.counters.bytes_received += packet.payload.size();
    }
    handler(std::span<const std::byte>(packet.frame.data(), packet.frame_bytes));
    MutexLock lock(mutex_);
    return !closed_;
  }

  absl::Status Land(Side& self, const Packet& packet) {
    const LandingWrite write{
        .token = packet.key.token, .offset = packet.offset, .bytes = packet.payload.size()};
    if (const absl::Status status = self.regions.Check(write, self.node); !status.ok()) {
      return WrongFrameOf(sides_[1 - self.number].node, status);
    }
    self.regions.WithRegion(write.token, [&](std::span<std::byte> region) {
      if (region.empty() || packet.payload.empty()) return;
      std::memcpy(region.data() + packet.offset, packet.payload.data(), packet.payload.size());
    });
    return absl::OkStatus();
  }

  Mutex mutex_;  // all but what says otherwise
  bool closed_ = false;
  Side sides_[2];
};

class LoopbackLink final : public Link {
 public:
  LoopbackLink(std::shared_ptr<LinkPair> channel, int side)
      : channel_(std::move(channel)), side_(side) {}
  ~LoopbackLink() override { channel_->Detach(side_); }

  uint16_t peer() const override { return channel_->node(1 - side_); }
  std::string Describe() const override {
    return absl::StrFormat("node %d <-> node %d: loopback", channel_->node(side_), peer());
  }
  absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory) override {
    return channel_->regions(side_).Expose(memory);
  }
  void Withdraw(const MemoryKey& key) override { channel_->regions(side_).Withdraw(key); }

  void Send(std::span<const std::byte> frame) override { channel_->Push(side_, Pack(frame)); }

  bool Write(std::span<const std::byte> payload, const MemoryKey& key, uint64_t offset,
             std::span<const std::byte> frame, DoneCallback done) override {
    CHECK(done) << "a Write needs a done callback";
    Packet packet = Pack(frame);
    packet.payload = payload;
    packet.key = key;
    packet.offset = offset;
    packet.done = std::move(done);
    channel_->Push(side_, std::move(packet));
    return false;
  }

  std::optional<MemoryKey> Lend(std::span<const std::byte> memory) override {
    return channel_->regions(side_).Lend(memory);
  }
  bool ReadLent(uint64_t token, uint64_t bytes, LentReader read) override {
    return channel_->is_open() && channel_->regions(1 - side_).ReadLent(token, bytes, read);
  }
  std::optional<MemoryKey> LendForWriting(std::span<std::byte> memory) override {
    return channel_->regions(side_).LendForWriting(memory);
  }
  bool WriteLent(uint64_t token, uint64_t offset, std::span<const std::byte> payload) override {
    return channel_->is_open() && channel_->regions(1 - side_).WriteLent(token, offset, payload);
  }
  bool can_read_lent() const override { return true; }

  void SetHandler(FrameHandler handler) override {
    channel_->SetHandler(side_, std::move(handler));
  }
  void OnClosed(std::function<void(absl::Status)> closed) override {
    channel_->OnClosed(side_, std::move(closed));
  }
  void Close(absl::Status reason) override { channel_->Close(side_, reason); }
  LinkCounters counters() const override { return channel_->counters(side_); }

 private:
  static Packet Pack(std::span<const std::byte> frame) {
    CHECK(!frame.empty() && frame.size() <= kMaxFrameBytes)
        << "a frame has 1 to " << kMaxFrameBytes << " bytes, not " << frame.size();
    Packet packet;
    packet.frame_bytes = frame.size();
    std::memcpy(packet.frame.data(), frame.data(), frame.size());
    return packet;
  }

  const std::shared_ptr<LinkPair> channel_;
  const int side_;
};

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(uint16_t node, LoopbackNetwork* network) : node_(node), network_(*network) {}
  ~LoopbackTransport() override { network_.Forget(node_); }

  std::string_view name() const override { return kLoopback; }
  bool lends() const override { return true; }
  absl::StatusOr<std::string> Open() override { return network_.address(); }
  absl::Status Reaches(std::string_view peer_address) const override {
    if (peer_address == network_.address()) return absl::OkStatus();
    return absl::UnavailableError("it is in another process");
  }
  void Connect(LinkRequest request, ConnectCallback done) override {
    network_.Connect(node_, std::move(request), std::move(done));
  }

 private:
  const uint16_t node_;
  LoopbackNetwork& network_;
};

}  // namespace

// A node that waits for its peer's call.
struct LoopbackNetwork::Offer {
  uint16_t node;
  LinkRequest request;
  Transport::ConnectCallback done;
  // The request's reactor thread only.
  bool is_answered = false;
  std::optional<TimerId> timer;

  static void Answer(std::shared_ptr<Offer> offer, absl::StatusOr<std::unique_ptr<Link>> link) {
    offer->is_answered = true;
    if (offer->timer) offer->request.reactor->CancelTimer(*offer->timer);
    const Transport::ConnectCallback done = std::move(offer->done);
    done(std::move(link));
  }
};

LoopbackNetwork::LoopbackNetwork() = default;
LoopbackNetwork::~LoopbackNetwork() = default;

// The process and the object: equal only for nodes that really share the network.
std::string LoopbackNetwork::address() const {
  return absl::StrFormat("loopback:%d:%p", getpid(), this);
}

void LoopbackNetwork::Connect(uint16_t node, LinkRequest request, Transport::ConnectCallback done) {
  CHECK(request.reactor && done);
  CHECK_NE(node, request.peer) << "a node needs no link to itself";
  auto own = std::make_shared<Offer>();
  own->node = node;
  own->request = std::move(request);
  own->done = std::move(done);
  const uint16_t peer = own->request.peer;
  // Held until the other node's reactor knows: afterwards it may end.
  MutexLock lock(mutex_);
  const auto found = offers_.find({peer, node});
  if (found == offers_.end()) {
    const bool is_first = offers_.try_emplace({node, peer}, own).second;
    own->request.reactor->Post([this, own, is_first] {
      if (is_first) return Await(own);
      Offer::Answer(own, absl::AlreadyExistsError(
                             absl::StrFormat("node %d already waits for node %d on the loopback",
                                             own->node, own->request.peer)));
    });
    return;
  }
  const std::shared_ptr<Offer> other = std::move(found->second);
  offers_.erase(found);
  auto channel =
      std::make_shared<LinkPair>((const uint16_t[2]){node, peer},
                                 (Reactor* const[2]){own->request.reactor, other->request.reactor});
  int side = 0;
  for (const std::shared_ptr<Offer>& offer : {own, other}) {
    offer->request.reactor->Post([offer, channel, side] {
      Offer::Answer(offer, std::make_unique<LoopbackLink>(channel, side));
    });
    ++side;
  }
}

void LoopbackNetwork::Forget(uint16_t node) {
  std::vector<std::shared_ptr<Offer>> forgotten;  // whose callbacks do not die under the lock
  MutexLock lock(mutex_);
  for (auto it = offers_.begin(); it != offers_.end();) {
    if (it->first.first != node) {
      ++it;
      continue;
    }
    forgotten.push_back(std::move(it->second));
    it = offers_.erase(it);
  }
}

void LoopbackNetwork::Await(const std::shared_ptr<Offer>& offer) {
  if (offer->is_answered) return;
  offer->timer = offer->request.reactor->RunAfter(offer->request.timeout, [this, offer] {
    offer->timer.reset();
    Expire(offer);
  });
}

void LoopbackNetwork::Expire(const std::shared_ptr<Offer>& offer) {
  {
    MutexLock lock(mutex_);
    const auto found = offers_.find({offer->node, offer->request.peer});
    if (found == offers_.end() || found->second != offer) return;  // its answer is on the way
    offers_.erase(found);
  }
  Offer::Answer(offer, absl::DeadlineExceededError(absl::StrFormat(
                           "node %d did not connect to node %d within %.1f s", offer->request.peer,
                           offer->node, static_cast<double>(offer->request.timeout) / kSecond)));
}

std::unique_ptr<Transport> MakeLoopbackTransport(uint16_t node, LoopbackNetwork* network) {
  return std::make_unique<LoopbackTransport>(node, network);
}

}  // namespace braid
