// A job's plan on its way: the master gives the same bytes to a few nodes in chunks, each of these
// passes them on to a few others while they come, and so on, so that the master's work and memory
// do not grow with the number of nodes. The first nodes get them over their control connections,
// which are there anyway and make a small cluster's plan one message; all others over the links of
// Peers, since workers have no control connections between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "comm/peers/peers.h"
#include "runtime/base/ids.h"

namespace braid {

constexpr size_t kPlanChunkBytes = size_t{256} << 10;
// To one receiver, at any time.
constexpr int kMostUnacknowledgedChunks = 4;

// The nodes that get a plan from this one; every node gets it from exactly one other, or from the
// master (kNoNode).
struct PlanTree {
  int num_nodes = 1;
  int fan_out = 8;  // of the master and of each node
};
constexpr int kNoNode = -1;
std::vector<uint16_t> PlanChildren(int node, PlanTree tree);
int PlanParent(int node, PlanTree tree);

// One node's part of it. On the node's control thread.
class PlanRelay {
 public:
  struct Options {
    uint16_t node = 0;
    // A chunk of the master's was taken.
    std::function<void(JobId job)> on_taken;
    // All bytes are here. Shared with what still goes to other nodes.
    std::function<void(JobId job, std::shared_ptr<const std::string> plan)> on_plan;
  };
  explicit PlanRelay(Options options) : options_(std::move(options)) {}

  // Which all links are of; it receives their Channel::kPlan.
  void SetPeers(Peers* peers);

  struct Request {
    JobId job = 0;
    uint64_t bytes = 0;              // of the whole plan
    std::string first;               // its first bytes, if the master sends it
    std::optional<uint16_t> parent;  // the node that sends it; none: the master does
    std::vector<uint16_t> children;  // that it is passed on to
  };
  absl::Status Begin(Request request);
  // A chunk of the master's. They come in order.
  absl::Status OnChunk(JobId job, uint64_t offset, std::string_view bytes);
  // The plan is not wanted any more. It still comes and is passed on, since others may be sending.
  void Drop(JobId job);

 private:
  struct Child {
    uint16_t node = 0;
    bool is_linked = false;
    std::optional<MemoryKey> key;  // of its buffer
    uint64_t sent = 0;
    int unacknowledged = 0;
  };
  struct Passage {
    std::shared_ptr<std::string> plan;
    uint64_t received = 0;
    std::optional<uint16_t> parent;
    std::optional<MemoryKey> key;  // of `plan`, for the parent
    std::vector<Child> children;
    bool is_dropped = false;
  };

  absl::Status OnFrame(uint16_t peer, std::span<const std::byte> frame);
  absl::Status OnKey(uint16_t peer, JobId job, const MemoryKey& key);
  void ExposeTo(uint16_t parent, JobId job);
  absl::Status Receive(JobId job, uint64_t offset, uint64_t bytes);
  // Sends what may be sent, and forgets the passage when all of it has gone through.
  void Advance(JobId job);
  void SendTo(const Passage& passage, JobId job, Child& child);

  const Options options_;
  Peers* peers_ = nullptr;
  std::map<JobId, Passage> passages_;
  // Of children that heard of the job before this node did.
  std::map<std::pair<JobId, uint16_t>, MemoryKey> early_keys_;
};

}  // namespace braid
