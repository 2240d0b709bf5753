#include "runtime/plan_sender.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "runtime/control.pb.h"

namespace braid {

void RoutePlan(const std::string& plan, int node, PlanTree tree, control::Load& load) {
  load.clear_plan();
  load.clear_plan_parent();
  load.clear_plan_children();
  load.set_plan_bytes(plan.size());
  if (const int parent = PlanParent(node, tree); parent == kNoNode) {
    load.set_plan(plan.substr(0, kPlanChunkBytes));
  } else {
    load.set_plan_parent(static_cast<uint32_t>(parent));
  }
  for (uint16_t child : PlanChildren(node, tree)) load.add_plan_children(child);
}

void PlanSender::Begin(JobId job, std::shared_ptr<const std::string> plan, int num_receivers) {
  if (plan->size() <= kPlanChunkBytes) return;
  Passage& passage = passages_[job];
  passage.plan = std::move(plan);
  for (int node = 0; node < num_receivers; ++node) {
    Receiver& receiver = passage.receivers[static_cast<uint16_t>(node)];
    receiver.sent = kPlanChunkBytes;
    Advance(passage, job, static_cast<uint16_t>(node), receiver);
  }
}

absl::Status PlanSender::OnTaken(uint16_t node, JobId job) {
  const auto passage = passages_.find(job);
  if (passage == passages_.end() || !passage->second.receivers.contains(node)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("node %d took a chunk of the plan of job %d; it was sent none", node, job));
  }
  Receiver& receiver = passage->second.receivers.at(node);
  --receiver.unacknowledged;
  Advance(passage->second, job, node, receiver);
  if (receiver.unacknowledged == 0) passage->second.receivers.erase(node);
  if (passage->second.receivers.empty()) passages_.erase(passage);
  return absl::OkStatus();
}

void PlanSender::Advance(const Passage& passage, JobId job, uint16_t node, Receiver& receiver) {
  const std::string& plan = *passage.plan;
  while (receiver.sent < plan.size() && receiver.unacknowledged < kMostUnacknowledgedChunks) {
    const uint64_t bytes = std::min<uint64_t>(kPlanChunkBytes, plan.size() - receiver.sent);
    control::ControlMessage message;
    message.mutable_plan_chunk()->set_job(job);
    message.mutable_plan_chunk()->set_offset(receiver.sent);
    message.mutable_plan_chunk()->set_bytes(plan.substr(receiver.sent, bytes));
    send_(node, message);
    receiver.sent += bytes;
    ++receiver.unacknowledged;
  }
}

}  // namespace braid
