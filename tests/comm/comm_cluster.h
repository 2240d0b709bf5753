// Nodes in one process for the tests of comm: a reactor, a transport, links to all others and a hub
// each. The list of transports that every suite of this folder runs over is in comm_cluster.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/collective/collective_hub.h"
#include "comm/transport.h"
#include "runtime/base/memory.h"
#include "runtime/base/reactor.h"

namespace braid {

constexpr Nanoseconds kTestTimeout = 60 * kSecond;

// Transports of several nodes that can reach each other.
class TransportSet {
 public:
  virtual ~TransportSet() = default;
  virtual Transport& transport(int node) = 0;
  // Of the node, for what others write; the set outlives it.
  virtual absl::StatusOr<Memory> Allocate(int node, uint64_t bytes);
};

// Bytes that tell their place and `seed`.
std::vector<std::byte> PatternBytes(size_t n, int seed);

struct TransportCase {
  std::string name;
  bool lends = false;  // what Allocate gives, to peers that can read it
  // Of many cases that are alike, every so many one runs: more than 1 where a machine is emulated.
  size_t sampling = 1;
  // An environment in which `make` works, of one simulated process; null: there is none.
  std::function<std::unique_ptr<Environment>(uint64_t seed)> simulate;
  std::function<std::unique_ptr<TransportSet>(Environment& environment, int num_nodes)> make;
};

std::vector<TransportCase> TransportCases();

// Where every case that can be simulated works: one simulated process on a machine of a simulated
// network.
std::unique_ptr<Environment> MakeSimulatedMachine(uint64_t seed);

// Runs `fn` on the reactor and waits for it.
void RunOn(Environment& environment, Reactor& reactor, const std::function<void()>& fn);

// A status that comes later, and how often it came.
class Outcome {
 public:
  explicit Outcome(Environment& environment)
      : environment_(environment), event_(environment.MakeEvent()) {}
  std::function<void(absl::Status)> callback() {
    return [this](absl::Status status) { Take(status); };
  }
  void Take(const absl::Status& status);
  absl::Status Wait();  // the status; fails the test if it does not come
  int times() const;

 private:
  Environment& environment_;
  const std::unique_ptr<Event> event_;
  mutable Mutex mutex_;
  absl::Status status_;
  int times_ = 0;
};

// Link::Write; `done` is told in either case.
void WriteTo(Link& link, std::span<const std::byte> payload, const MemoryKey& key, uint64_t offset,
             std::span<const std::byte> frame, Outcome& done);

// Two or more joined nodes, without anything on their links.
class LinkedNodes {
 public:
  LinkedNodes(Environment& environment, const TransportCase& transport, int num_nodes);
  ~LinkedNodes();

  Environment& environment() { return environment_; }
  int num_nodes() const { return static_cast<int>(reactors_.size()); }
  Reactor& reactor(int node) { return *reactors_[node]; }
  Link& link(int from, int to) { return *links_.at({from, to}); }
  AllocateMemory allocate(int node);
  // Memory of the node, for what others write, with that in it.
  Memory Landing(int node, std::span<const std::byte> content);
  void DestroyLink(int from, int to);
  uint64_t TotalBytesSent() const;

 private:
  Environment& environment_;
  std::vector<std::unique_ptr<Reactor>> reactors_;
  std::unique_ptr<TransportSet> transports_;
  std::map<std::pair<int, int>, std::unique_ptr<Link>> links_;
};

// LinkedNodes with hubs, whose links carry collective frames only.
class CommCluster {
 public:
  CommCluster(Environment& environment, const TransportCase& transport, int num_nodes);

  // Sees every frame from now on, on the reactor of `node`, before its hub does.
  using FrameObserver = std::function<void(int node, int peer, std::span<const std::byte> frame)>;
  void ObserveFrames(FrameObserver observer) { observer_ = std::move(observer); }

  LinkedNodes& nodes() { return nodes_; }
  CollectiveHub& hub(int node) { return *hubs_[node]; }
  // Connects all hubs; a status per node.
  std::vector<absl::Status> Connect();
  // The first error of a frame.
  absl::Status frame_error() const;

 private:
  FrameObserver observer_;
  std::vector<std::unique_ptr<CollectiveHub>> hubs_;
  mutable Mutex mutex_;
  absl::Status frame_error_;
  LinkedNodes nodes_;  // last: its reactors call what is above
};

}  // namespace braid
