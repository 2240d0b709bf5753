#include "tests/comm/comm_cluster.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <utility>

#include "comm/loopback_transport.h"
#include "comm/network/sim_network.h"
#include "comm/rdma/rdma_transport.h"
#include "comm/shm/shm_transport.h"
#include "comm/tcp/tcp_transport.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "runtime/base/shared_heap.h"
#include "runtime/base/simulation.h"
#include "runtime/device/host_memory.h"

namespace braid {
namespace {

class LoopbackSet : public TransportSet {
 public:
  explicit LoopbackSet(int num_nodes) {
    for (int node = 0; node < num_nodes; ++node) {
      transports_.push_back(MakeLoopbackTransport(node, &network_));
    }
  }
  Transport& transport(int node) override { return *transports_[node]; }

 private:
  LoopbackNetwork network_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

// One simulated process on a machine of a simulated network.
class SimulatedMachine final : public Environment {
 public:
  explicit SimulatedMachine(uint64_t seed)
      : world_(MakeSimulation(seed)),
        process_(world_->AddProcess("all nodes")),
        network_(world_.get()),
        machine_(network_.AddMachine(0, {})) {}

  Network* network() { return machine_; }
  Nanoseconds Now() const override { return process_.Now(); }
  std::unique_ptr<Reactor> StartReactor(std::string_view name) override {
    return process_.StartReactor(name);
  }
  std::unique_ptr<Event> MakeEvent() override { return process_.MakeEvent(); }
  absl::Status Await(Event& event, Nanoseconds timeout) override {
    return process_.Await(event, timeout);
  }
  bool is_simulated() const override { return true; }

 private:
  const std::unique_ptr<Simulation> world_;
  Environment& process_;
  SimNetwork network_;
  Network* const machine_;
};

class TcpSet : public TransportSet {
 public:
  TcpSet(Environment& environment, int num_nodes, const std::string& host)
      : reactor_(environment.StartReactor("tcp")) {
    auto* const simulated = dynamic_cast<SimulatedMachine*>(&environment);
    for (int node = 0; node < num_nodes; ++node) {
      transports_.push_back(MakeTcpTransport(
          {.node = static_cast<uint16_t>(node),
           .reactor = reactor_.get(),
           .host = host,
           .network = simulated != nullptr ? simulated->network() : SystemNetwork()}));
    }
  }
  Transport& transport(int node) override { return *transports_[node]; }

 private:
  const std::unique_ptr<Reactor> reactor_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

using MakeTransport = std::unique_ptr<Transport> (*)(const TransportOptions& options);

// With heaps, or with memory that peers do not map, and devices do not know.
class HeapSet : public TransportSet {
 public:
  HeapSet(Environment& environment, int num_nodes, MakeTransport make, bool has_heaps)
      : reactor_(environment.StartReactor("heaps")) {
    for (int node = 0; node < num_nodes; ++node) {
      if (has_heaps) {
        auto heap = SharedHeap::Make(kHeapBytes);
        CHECK(heap.ok()) << heap.status();
        heaps_.push_back(*std::move(heap));
      }
      transports_.push_back(make({.node = static_cast<uint16_t>(node),
                                  .reactor = reactor_.get(),
                                  .shared_heap = has_heaps ? heaps_.back().get() : nullptr}));
    }
  }
  Transport& transport(int node) override { return *transports_[node]; }
  absl::StatusOr<Memory> Allocate(int node, uint64_t bytes) override {
    return heaps_.empty() ? TransportSet::Allocate(node, bytes) : heaps_[node]->Allocate(bytes);
  }

 private:
  static constexpr uint64_t kHeapBytes = uint64_t{1} << 32;

  const std::unique_ptr<Reactor> reactor_;
  std::vector<std::unique_ptr<SharedHeap>> heaps_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

using MakeEnvironment = std::function<std::unique_ptr<Environment>(uint64_t seed)>;

TransportCase TcpCase(const std::string& name, const std::string& host, MakeEnvironment simulate) {
  return {name, false, 1, std::move(simulate), [host](Environment& environment, int n) {
            return std::make_unique<TcpSet>(environment, n, host);
          }};
}

TransportCase HeapCase(const std::string& name, bool lends, MakeTransport make, bool has_heaps) {
  return {name, lends, 1, nullptr, [make, has_heaps](Environment& environment, int n) {
            return std::make_unique<HeapSet>(environment, n, make, has_heaps);
          }};
}

// What tests/rdma/vm.sh says: this machine has an RDMA port.
bool HasRdmaPort() { return std::getenv("BRAID_TEST_RDMA") != nullptr; }

}  // namespace

absl::StatusOr<Memory> TransportSet::Allocate(int /*node*/, uint64_t bytes) {
  return AllocateHostMemory(bytes);
}

std::vector<std::byte> PatternBytes(size_t n, int seed) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>((i * 7 + seed * 31) & 0xff);
  return bytes;
}

std::vector<TransportCase> TransportCases() {
  std::vector<TransportCase> cases = {
      {"loopback", true, 1, &MakeSimulatedEnvironment,
       [](Environment&, int n) { return std::make_unique<LoopbackSet>(n); }},
      HeapCase("shm", true, &MakeShmTransport, true),
      HeapCase("shmForeign", false, &MakeShmTransport, false),
      TcpCase("tcpIpv4", "127.0.0.1", &MakeSimulatedMachine),
      TcpCase("tcpIpv6", "::1", nullptr),
  };
  if (HasRdmaPort()) {
    cases.push_back(HeapCase("rdma", false, &MakeRdmaTransport, true));
    cases.push_back(HeapCase("rdmaForeign", false, &MakeRdmaTransport, false));
    for (TransportCase& rdma : std::span(cases).last(2)) rdma.sampling = 12;
  }
  return cases;
}

std::unique_ptr<Environment> MakeSimulatedMachine(uint64_t seed) {
  return std::make_unique<SimulatedMachine>(seed);
}

void RunOn(Environment& environment, Reactor& reactor, const std::function<void()>& fn) {
  const std::unique_ptr<Event> event = environment.MakeEvent();
  reactor.Post([&] {
    fn();
    event->Set();
  });
  CHECK(environment.Await(*event, kTestTimeout).ok());
}

void Outcome::Take(const absl::Status& status) {
  MutexLock lock(mutex_);
  status_ = status;
  ++times_;
  event_->Set();
}

void WriteTo(Link& link, std::span<const std::byte> payload, const MemoryKey& key, uint64_t offset,
             std::span<const std::byte> frame, Outcome& done) {
  if (link.Write(payload, key, offset, frame, done.callback())) done.Take(absl::OkStatus());
}

absl::Status Outcome::Wait() {
  const absl::Status waited = environment_.Await(*event_, kTestTimeout);
  EXPECT_TRUE(waited.ok()) << waited;
  MutexLock lock(mutex_);
  return waited.ok() ? status_ : waited;
}

int Outcome::times() const {
  MutexLock lock(mutex_);
  return times_;
}

LinkedNodes::LinkedNodes(Environment& environment, const TransportCase& transport, int num_nodes)
    : environment_(environment), transports_(transport.make(environment, num_nodes)) {
  std::vector<std::string> addresses;
  for (int node = 0; node < num_nodes; ++node) {
    reactors_.push_back(environment.StartReactor("node" + std::to_string(node)));
    auto address = transports_->transport(node).Open();
    CHECK(address.ok()) << address.status();
    addresses.push_back(*address);
  }
  Mutex mutex;
  Outcome joined(environment);
  int missing = num_nodes * (num_nodes - 1);
  if (missing == 0) return;
  for (int from = 0; from < num_nodes; ++from) {
    for (int to = 0; to < num_nodes; ++to) {
      if (from == to) continue;
      CHECK(transports_->transport(from).Reaches(addresses[to]).ok());
      LinkRequest request{.peer = static_cast<uint16_t>(to),
                          .peer_address = addresses[to],
                          .reactor = reactors_[from].get()};
      transports_->transport(from).Connect(
          request, [&, from, to](absl::StatusOr<std::unique_ptr<Link>> link) {
            CHECK(link.ok()) << link.status();
            bool is_last;
            {
              MutexLock lock(mutex);
              links_[{from, to}] = *std::move(link);
              is_last = --missing == 0;
            }
            if (is_last) joined.Take(absl::OkStatus());
          });
    }
  }
  CHECK(joined.Wait().ok());
  // As after a check of the links: what a peer lends is read from its first frame on.
  for (const auto& [pair, link] : links_) {
    while (transport.lends && !link->can_read_lent()) {
      RunOn(environment_, *reactors_[pair.first], [] {});
    }
  }
}

LinkedNodes::~LinkedNodes() {
  for (auto& [pair, link] : links_) {
    RunOn(environment_, *reactors_[pair.first], [&link = link] { link.reset(); });
  }
}

AllocateMemory LinkedNodes::allocate(int node) {
  return [this, node](uint64_t bytes) { return transports_->Allocate(node, bytes); };
}

Memory LinkedNodes::Landing(int node, std::span<const std::byte> content) {
  absl::StatusOr<Memory> memory = transports_->Allocate(node, content.size());
  CHECK(memory.ok()) << memory.status();
  std::ranges::copy(content, memory->data());
  return *std::move(memory);
}

void LinkedNodes::DestroyLink(int from, int to) {
  RunOn(environment_, *reactors_[from], [&] { links_.at({from, to}).reset(); });
}

uint64_t LinkedNodes::TotalBytesSent() const {
  uint64_t bytes = 0;
  for (const auto& [pair, link] : links_) bytes += link->counters().bytes_sent;
  return bytes;
}

CommCluster::CommCluster(Environment& environment, const TransportCase& transport, int num_nodes)
    : nodes_(environment, transport, num_nodes) {
  for (int node = 0; node < num_nodes; ++node) {
    hubs_.push_back(std::make_unique<CollectiveHub>(node));
  }
  for (int node = 0; node < num_nodes; ++node) {
    for (int peer = 0; peer < num_nodes; ++peer) {
      if (peer == node) continue;
      CollectiveHub* hub = hubs_[node].get();
      Link* link = &nodes_.link(node, peer);
      hub->AddLink(peer, link);
      link->OnClosed([hub, peer](absl::Status status) { hub->LinkClosed(peer, status); });
      link->SetHandler([this, hub, link, node, peer](std::span<const std::byte> frame) {
        if (observer_) observer_(node, peer, frame);
        absl::Status status = hub->HandleFrame(peer, frame);
        if (status.ok()) return;
        {
          MutexLock lock(mutex_);
          frame_error_.Update(status);
        }
        link->Close(status);
      });
    }
  }
}

std::vector<absl::Status> CommCluster::Connect() {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (size_t node = 0; node < hubs_.size(); ++node) {
    outcomes.push_back(std::make_unique<Outcome>(nodes_.environment()));
    hubs_[node]->Connect(outcomes.back()->callback());
  }
  std::vector<absl::Status> statuses;
  for (const auto& outcome : outcomes) {
    statuses.push_back(outcome->Wait());
    EXPECT_EQ(outcome->times(), 1);
  }
  return statuses;
}

absl::Status CommCluster::frame_error() const {
  MutexLock lock(mutex_);
  return frame_error_;
}

}  // namespace braid
