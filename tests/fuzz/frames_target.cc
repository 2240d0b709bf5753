// The frames that peers send to each other over a link: of actors, of collectives, landing keys;
// and what takes them apart: the message bus with its actors, and the hub of collectives.
#include <glog/logging.h>

#include <memory>
#include <vector>

#include "actor/actor_thread.h"
#include "actor/message_bus.h"
#include "comm/collective/collective_frame.h"
#include "comm/collective/collective_hub.h"
#include "runtime/device/host_memory.h"
#include "runtime/remote_bus.h"
#include "tests/fuzz/input_reader.h"
#include "tests/fuzz/silent_link.h"

namespace braid::fuzz {
namespace {

constexpr uint16_t kNode = 0, kPeer = 1;

class SilentSender final : public RemoteSender {
 public:
  absl::Status Send(const Message&) override { return absl::OkStatus(); }
};

class NoAction final : public Action {
 public:
  void Start(const Act&, ActDone done) override { done(absl::OkStatus()); }
};

class AddNothing {
 public:
  static void Reduce(void*, const void*, const void*, int64_t) {}
};

// A node with one thread of actors: one reads what the peer sends, another sends to it.
class ActorNode {
 public:
  explicit ActorNode(Environment& environment)
      : environment_(environment),
        closed_(environment.MakeEvent()),
        reactor_(environment.StartReactor("actors")),
        bus_(kNode, &sender_),
        thread_({.thread = 0, .on_closed = [this] { closed_->Set(); }}, reactor_.get(), &bus_) {
    const ActorId reader{kNode, 0, 1}, writer{kNode, 0, 2}, peer{kPeer, 0, 3};
    Add({.id = reader, .name = "reader", .inputs = {{.reg = 7, .producer = peer, .slots = 2}}});
    Add({.id = writer, .name = "writer", .outputs = {{.reg = 8, .slots = 2, .consumers = {peer}}}});
    CHECK(bus_.Start().ok());
    thread_.Run(3);
  }
  ~ActorNode() {
    thread_.Abort(absl::CancelledError("over"));
    CHECK(environment_.Await(*closed_, kSecond).ok());
    reactor_.reset();
  }

  void Take(std::span<const std::byte> frame) {
    const auto message = MessageOfFrame(frame);
    if (message.ok()) bus_.Deliver(*message).IgnoreError();
  }

 private:
  void Add(ActorSpec spec) {
    CHECK(thread_.AddActor(std::move(spec), std::make_unique<NoAction>()).ok());
  }

  Environment& environment_;
  const std::unique_ptr<Event> closed_;
  std::unique_ptr<Reactor> reactor_;
  SilentSender sender_;
  MessageBus bus_;
  ActorThread thread_;
};

// A node with a member of three collectives; the other member is the peer's.
class CollectiveNode {
 public:
  explicit CollectiveNode(Environment& environment)
      : environment_(environment), reactor_(environment.StartReactor("collectives")), hub_(kNode) {
    hub_.AddLink(kPeer, &link_);
    for (uint32_t id = 0; id < 3; ++id) {
      CollectiveSpec spec;
      spec.id = id;
      spec.kind = id == 0   ? CollectiveKind::kAllReduce
                  : id == 1 ? CollectiveKind::kAllGather
                            : CollectiveKind::kAllToAll;
      spec.members = {{.node = kNode}, {.node = kPeer}};
      spec.element_size = 4;
      spec.counts.assign(NumCounts(spec.kind, 2), id == 0 ? 6 : 3);
      if (id == 2) spec.receives = spec.counts;
      spec.reduce = AddNothing::Reduce;
      spec.chunk_bytes = 8;
      if (id == 0) spec.algorithm = CollectiveAlgorithm::kExchange;
      auto end = hub_.Create(spec, *reactor_, AllocateHostMemory);
      CHECK(end.ok()) << end.status();
      ends_.push_back(*std::move(end));
    }
    hub_.Connect([](absl::Status) {});
    const std::unique_ptr<Event> started = environment_.MakeEvent();
    reactor_->Post([this, &started] {
      for (auto& end : ends_) end->Start(0, input_, output_, [](absl::Status) {});
      started->Set();
    });
    CHECK(environment_.Await(*started, kSecond).ok());
  }
  ~CollectiveNode() {
    hub_.Abort(absl::CancelledError("over"));
    const std::unique_ptr<Event> done = environment_.MakeEvent();
    reactor_->Post([this, &done] {
      for (auto& end : ends_) end->Abort(absl::CancelledError("over"));
      done->Set();
    });
    CHECK(environment_.Await(*done, kSecond).ok());
    const std::unique_ptr<Event> gone = environment_.MakeEvent();
    reactor_->Post([this, &gone] {
      ends_.clear();
      gone->Set();
    });
    CHECK(environment_.Await(*gone, kSecond).ok());
    reactor_.reset();
  }

  void Take(std::span<const std::byte> frame) { hub_.HandleFrame(kPeer, frame).IgnoreError(); }

 private:
  Environment& environment_;
  std::unique_ptr<Reactor> reactor_;
  SilentLink link_{kPeer, reactor_.get()};
  CollectiveHub hub_;
  std::vector<std::unique_ptr<Collective>> ends_;
  std::byte input_[256] = {}, output_[256] = {};
};

void Decode(std::span<const std::byte> frame) {
  if (const auto decoded = DecodeCollectiveFrame(frame); decoded.ok()) {
    const EncodedCollectiveFrame again(*decoded);
    CHECK(*DecodeCollectiveFrame(again.bytes()) == *decoded);
  }
  JobOfFrame(frame).IgnoreError();
  LandingKeyOfFrame(frame).IgnoreError();
}

void Run(Bytes input) {
  InputReader reader(input);
  const std::unique_ptr<Environment> environment = MakeSimulatedEnvironment(reader.Byte());
  ActorNode actors(*environment);
  CollectiveNode collectives(*environment);
  while (!reader.AtEnd()) {
    // As a link gives them: 1 to 64 bytes.
    const auto frame = AsBytes(reader.Take(1 + reader.Byte() % kMaxFrameBytes));
    if (frame.empty()) break;
    const std::vector<std::byte> exact(frame.begin(), frame.end());
    Decode(exact);
    actors.Take(exact);
    collectives.Take(exact);
  }
}

}  // namespace

Target FramesTarget() { return {.name = "frames", .run = Run}; }

}  // namespace braid::fuzz
