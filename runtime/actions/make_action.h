// From a task of the plan to its action: each kind of work makes its own, in its own file. This is
// the list.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "actor/action.h"
#include "comm/collective/collective_hub.h"
#include "comm/transport.h"
#include "compiler/plan/node_plan.h"
#include "runtime/actions/compute.h"
#include "runtime/actions/task_memory.h"
#include "runtime/actions/transfer.h"
#include "runtime/actions/variable_use.h"
#include "runtime/base/ids.h"
#include "runtime/base/reactor.h"
#include "runtime/device/device.h"
#include "runtime/device/device_group.h"

namespace braid {

// What actions are made with; borrowed, and outlives them, but for `memory` and `calls`, which the
// action takes.
struct ActionContext {
  const plan::NodePlan& plan;
  const plan::Task& task;
  const PlanMemory& addresses;
  Device& device;
  TaskMemory memory;
  std::vector<ComputeCall> calls;
  const int64_t* first_step = nullptr;  // the job's step at act 0
  const VariableUse* variable_use = nullptr;
  const std::atomic<uint64_t>* variables_epoch = nullptr;  // VariableStore's
  Reactor* reactor = nullptr;                              // of the actor's thread
  CollectiveHub* collectives = nullptr;
  DeviceGroup* device_group = nullptr;  // null: the devices do no collectives themselves
  CollectiveId first_collective = 0;    // of the job
  std::function<Link*(uint16_t peer)> link_of;

  Stream& stream() const { return device.stream(task.stream); }
};

// An action, and what the executor keeps and asks beside it.
struct MadeAction {
  std::unique_ptr<Action> action;
  const ComputeAction* compute = nullptr;  // the action itself
  std::unique_ptr<LandingPort> port;  // of a transfer, borrowed by it; its key is still to come
  std::unique_ptr<Collective> collective;  // borrowed by its action
  CollectiveId collective_id = 0;
};

absl::StatusOr<MadeAction> MakeAction(const plan::Compute& compute, ActionContext& context);
absl::StatusOr<MadeAction> MakeAction(const plan::Copy& copy, ActionContext& context);
absl::StatusOr<MadeAction> MakeAction(const plan::Staging& staging, ActionContext& context);
absl::StatusOr<MadeAction> MakeAction(const plan::Transfer& transfer, ActionContext& context);
absl::StatusOr<MadeAction> MakeAction(const plan::Collective& collective, ActionContext& context);
absl::StatusOr<MadeAction> MakeAction(const plan::VariableOwner& owner, ActionContext& context);

}  // namespace braid
