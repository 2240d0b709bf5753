// The master's end of a plan's way to the nodes (plan_relay.h): what is more than a Load message
// holds follows in chunks, a few at a time to each of the nodes that get the plan from the master.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/ids.h"
#include "runtime/plan_relay.h"

namespace braid {

namespace control {
class ControlMessage;
class Load;
}  // namespace control

// On the coordinator's reactor thread.
class PlanSender {
 public:
  using Send = std::function<void(uint16_t node, const control::ControlMessage& message)>;
  explicit PlanSender(Send send) : send_(std::move(send)) {}

  // Sends what the Load messages left out to these nodes.
  void Begin(JobId job, std::shared_ptr<const std::string> plan, int num_receivers);
  // A node has taken a chunk. An error: it was sent none.
  absl::Status OnTaken(uint16_t node, JobId job);

 private:
  struct Receiver {
    uint64_t sent = 0;
    int unacknowledged = 0;
  };
  struct Passage {
    std::shared_ptr<const std::string> plan;
    std::map<uint16_t, Receiver> receivers;  // that have not all of it
  };
  void Advance(const Passage& passage, JobId job, uint16_t node, Receiver& receiver);

  const Send send_;
  std::map<JobId, Passage> passages_;
};

// What a Load message says to one node of where the plan comes from and goes to, with the first
// bytes where the master sends it.
void RoutePlan(const std::string& plan, int node, PlanTree tree, control::Load& load);

}  // namespace braid
