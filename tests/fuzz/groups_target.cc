// The frames by which the ranks of a process group make their calls: at rank 0 of two, which is in
// a collective, a send and a receive, from rank 1, which sends whatever the input says. Each frame
// is a byte that says which of its fields are made right, its length and its bytes.
#include <glog/logging.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "comm/loopback_transport.h"
#include "comm/peers/peers.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/device/host_memory.h"
#include "runtime/group/group_call.h"
#include "runtime/group/group_end.h"
#include "runtime/group/group_frame.h"
#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

constexpr uint64_t kGroup = 1;
constexpr size_t kMostFrames = 32;
constexpr int64_t kElements = 12;

// A node's links, over the loopback.
class LinkedNode {
 public:
  LinkedNode(Environment& environment, LoopbackNetwork& network, uint16_t node)
      : environment_(environment),
        reactor_(environment.StartReactor("node " + std::to_string(node))),
        peers_(std::make_unique<Peers>(Peers::Options{.node = node, .reactor = reactor_.get()})) {
    On([&] {
      std::vector<std::unique_ptr<Transport>> transports;
      transports.push_back(MakeLoopbackTransport(node, &network));
      addresses_ = peers_->Open(std::move(transports));
      peers_->SetReceiver(Channel::kGroup,
                          [](uint16_t, std::span<const std::byte>) { return absl::OkStatus(); });
    });
  }
  ~LinkedNode() {
    On([&] {
      peers_->Close(absl::CancelledError("over"));
      peers_.reset();
    });
  }

  void On(const std::function<void()>& fn) {
    const std::unique_ptr<Event> is_done = environment_.MakeEvent();
    reactor_->Post([&] {
      fn();
      is_done->Set();
    });
    CHECK(environment_.Await(*is_done, kSecond).ok());
  }
  Reactor& reactor() { return *reactor_; }
  Peers& peers() { return *peers_; }
  const std::vector<TransportAddress>& addresses() const { return addresses_; }

 private:
  Environment& environment_;
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<Peers> peers_;
  std::vector<TransportAddress> addresses_;
};

dist::GroupCall CallOf(dist::CallKind kind) {
  dist::GroupCall call;
  call.kind = kind;
  if (dist::HasRoot(kind)) call.root = 1;
  if (kind == dist::CallKind::kBarrier) return call;
  if (dist::IsTransfer(kind)) call.peer = 1;
  const bool is_of_parts = kind == dist::CallKind::kAllGather ||
                           kind == dist::CallKind::kReduceScatter ||
                           kind == dist::CallKind::kAllToAll || kind == dist::CallKind::kGather ||
                           kind == dist::CallKind::kScatter;
  call.counts.assign(is_of_parts ? 2 : 1, is_of_parts ? kElements / 2 : kElements);
  if (kind == dist::CallKind::kAllToAll) call.receives = call.counts;
  if (kind == dist::CallKind::kGather) {
    call.counts = {0, kElements / 2};
    call.receives = {0, 0};
  }
  if (kind == dist::CallKind::kScatter) {
    call.counts = {0, 0};
    call.receives = {0, kElements / 2};
  }
  return call;
}

// Which fields of a frame are overwritten with right values, so that it is not refused at once.
enum Right : uint8_t { kRanks = 1, kSignature = 2, kKey = 4 };

// Rank 0, in three calls.
class RankZero {
 public:
  RankZero(LinkedNode& node, LinkedNode& other, dist::CallKind kind)
      : node_(node),
        collective_(CallOf(kind)),
        send_(CallOf(dist::CallKind::kSend)),
        receive_(CallOf(dist::CallKind::kReceive)) {
    dist::GroupEnd::Options options;
    options.reactor = &node.reactor();
    options.peers = &node.peers();
    options.allocate = AllocateHostMemory;
    options.dial = [&other](uint16_t) {
      other.reactor().Post([&other] { other.peers().Connect(0, [](const absl::Status&) {}); });
    };
    options.ask = [this](const control::RollCall& call) {
      control::RollAnswer answer;
      end_->Answer(call.number(), answer);
    };
    options.fail = [](const absl::Status&) {};
    end_ = std::make_unique<dist::GroupEnd>(
        dist::GroupIdentity{.id = kGroup, .name = "the world", .nodes = {0, 1}},
        std::move(options));
    int place = 0;
    for (dist::GroupCall* const call : {&collective_, &send_, &receive_}) {
      call->input = input_.data() + kElements * place;
      call->output = output_.data() + kElements * place++;
      CHECK(dist::CheckCall(*call, 2).ok()) << dist::CheckCall(*call, 2);
      end_->Start(*call, [](const absl::Status&) {});
    }
  }

  absl::Status Take(std::span<const std::byte> bytes, uint8_t right, const MemoryKey& key) {
    BRAID_ASSIGN_OR_RETURN(dist::GroupFrame frame, dist::DecodeGroupFrame(bytes));
    if ((right & kRanks) != 0) {
      std::visit([](auto& any) { any.from = 1, any.to = 0; }, frame);
    }
    if ((right & kKey) != 0) std::visit([&](auto& any) { any.key = key; }, frame);
    if (auto* const collective = std::get_if<CollectiveFrame>(&frame)) {
      collective->collective = kGroup;
      if ((right & kSignature) != 0) {
        collective->fingerprint = dist::SignatureOf(collective_, kGroup, collective->piece);
      }
    } else if (auto* const transfer = std::get_if<dist::TransferFrame>(&frame)) {
      transfer->group = kGroup;
      if ((right & kSignature) != 0) transfer->signature = TransferSignatureOf(send_, kGroup);
    } else {
      std::get<dist::WindowFrame>(frame).group = kGroup;
    }
    return end_->HandleFrame(1, frame);
  }

  void Close(Environment& environment) {
    const std::unique_ptr<Event> closed = environment.MakeEvent();
    node_.On([&] { end_->Close(absl::CancelledError("over"), [&] { closed->Set(); }); });
    const absl::Status ended = environment.Await(*closed, 100 * kSecond);
    CHECK(ended.ok()) << "the group does not end: " << ended;
    node_.On([&] { end_.reset(); });
  }

 private:
  LinkedNode& node_;
  dist::GroupCall collective_, send_, receive_;
  std::array<float, 3 *kElements> input_ = {}, output_ = {};
  std::unique_ptr<dist::GroupEnd> end_;
};

void Run(Bytes input) {
  InputReader reader(input);
  const uint8_t seed = reader.Byte();
  const std::unique_ptr<Environment> environment = MakeSimulatedEnvironment(seed);
  LoopbackNetwork network;
  std::array<std::byte, 4096> memory = {};  // that the other rank lends
  LinkedNode node(*environment, network, 0), other(*environment, network, 1);
  node.On([&] { node.peers().SetAddresses(1, other.addresses()); });
  other.On([&] { other.peers().SetAddresses(0, node.addresses()); });
  const auto kind =
      static_cast<dist::CallKind>(seed % (static_cast<int>(dist::CallKind::kBarrier) + 1));
  std::unique_ptr<RankZero> rank;
  node.On([&] { rank = std::make_unique<RankZero>(node, other, kind); });
  const std::unique_ptr<Event> never = environment->MakeEvent();
  environment->Await(*never, kSecond / 10).IgnoreError();
  MemoryKey key;
  other.On([&] {
    Link* const link = other.peers().LinkTo(0);
    if (link == nullptr) return;
    if (const auto exposed = link->Expose(memory); exposed.ok()) key = *exposed;
  });
  absl::Status status;
  for (size_t i = 0; i < kMostFrames && !reader.AtEnd() && status.ok(); ++i) {
    const uint8_t right = reader.Byte();
    const auto frame = AsBytes(reader.Take(1 + reader.Byte() % kMaxFrameBytes));
    const std::vector<std::byte> exact(frame.begin(), frame.end());
    // A wrong one closes the link and ends the session.
    node.On([&] { status = rank->Take(exact, right, key); });
    VLOG(1) << status;
    environment->Await(*never, kMillisecond).IgnoreError();
  }
  rank->Close(*environment);
}

}  // namespace

Target GroupsTarget() { return {.name = "groups", .run = Run}; }

}  // namespace braid::fuzz
