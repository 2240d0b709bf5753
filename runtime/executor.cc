#include "runtime/executor.h"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "runtime/actions/collective.h"
#include "runtime/actions/copy.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/seeded_choice.h"
#include "runtime/base/status.h"
#include "runtime/kernels/call_fuser.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

ActorId IdOf(const plan::ActorId& id) {
  return {static_cast<uint16_t>(id.node), static_cast<uint16_t>(id.thread), id.task};
}

ActorSpec SpecOf(const plan::Task& task) {
  ActorSpec spec;
  spec.id = IdOf(task.id);
  spec.name = std::string(task.name);
  if (std::holds_alternative<plan::Transfer>(task.work)) spec.name += ".transfer";
  spec.acts_per_step = task.acts_per_step;
  spec.lanes = task.lanes;
  spec.is_deferrable = task.is_deferrable;
  for (const plan::Input& input : task.inputs) {
    spec.inputs.push_back({input.reg, IdOf(input.producer), input.slots, input.period,
                           input.initial_tokens, input.lane});
  }
  for (const plan::Output& output : task.outputs) {
    OutputSpec& out = spec.outputs.emplace_back();
    out.reg = output.reg;
    out.slots = output.slots;
    out.period = output.period;
    out.initial_tokens = output.initial_tokens;
    out.lane = output.lane;
    for (const plan::ActorId& consumer : output.consumers) out.consumers.push_back(IdOf(consumer));
  }
  return spec;
}

}  // namespace

Executor::Executor(const NodeResources& resources, ExecutorOptions options)
    : resources_(resources),
      options_(std::move(options)),
      remote_(options_.job, resources.link_of),
      bus_(resources.node, &remote_),
      addresses_(resources.devices, resources.variables) {}

absl::Status Executor::Load(const plan::NodePlan& plan, PreparedKernels& kernels) {
  if (plan.node != resources_.node) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the plan of job '%s' is node %d's and came to node %d", plan.job,
                        plan.node, resources_.node));
  }
  return AddTasks(plan, kernels);
}

absl::Status Executor::AddTasks(const plan::NodePlan& plan, PreparedKernels& kernels) {
  job_name_ = plan.job;
  seed_ = plan.seed;
  std::set<uint16_t> threads;
  for (const plan::Task& task : plan.tasks) threads.insert(static_cast<uint16_t>(task.id.thread));
  BRAID_RETURN_IF_ERROR(resources_.threads->Start(threads));
  BRAID_RETURN_IF_ERROR(addresses_.Prepare(plan));
  if (resources_.environment->is_simulated()) {
    shadow_ = std::make_unique<ShadowMemory>(resources_.devices);
  }
  BRAID_RETURN_IF_ERROR(ObtainVariables(plan));
  variable_use_ = VariableUse(plan, *resources_.devices);
  StreamOrder order(plan, *resources_.devices);
  for (const plan::Task& task : plan.tasks) {
    if (absl::Status status = AddTask(plan, task, std::move(kernels[task.id.task]), order);
        !status.ok()) {
      return Prefixed(absl::StrFormat("job '%s', node %d", job_name_, resources_.node), status);
    }
  }
  marks_ = order.TakeMarks();
  OfferLocalRuns(plan);
  return absl::OkStatus();
}

void Executor::OfferLocalRuns(const plan::NodePlan& plan) {
  if (threads_.size() != 1 || !plan.peers.empty() || resources_.environment->is_simulated()) return;
  Thread& thread = threads_.begin()->second;
  const uint32_t device = DeviceOfThread(threads_.begin()->first);
  if (!thread.collectives.empty() || !(*resources_.devices)[device]->is_host()) return;
  local_runs_ = std::make_shared<LocalRuns>(
      resources_.environment, thread.reactor,
      [this](int64_t first_step, int64_t steps) { Credit(first_step, steps); });
}

NodeSummary Executor::Summarize(const plan::NodePlan& plan) const {
  return SummarizeNode(plan, *resources_.datasets, [this](const plan::Task& task) {
    const auto found = descriptions_.find(task.id.task);
    if (found == descriptions_.end() || found->second.compute == nullptr) return KernelMemory();
    return found->second.compute->kernel_memory();
  });
}

absl::Status Executor::ObtainVariables(const plan::NodePlan& plan) {
  for (const plan::Task& task : plan.tasks) {
    const auto* owner = std::get_if<plan::VariableOwner>(&task.work);
    if (owner == nullptr) continue;
    for (const plan::Variable& variable : owner->variables) {
      const VariableSpec spec = {.name = std::string(variable.name),
                                 .layout = OperandOf(variable.shard),
                                 .init = variable.init != nullptr ? *variable.init : Attrs(),
                                 .seed = seed_};
      BRAID_RETURN_IF_ERROR(
          resources_.variables->Obtain(static_cast<int>(task.device), spec).status());
    }
  }
  return absl::OkStatus();
}

Executor::Thread& Executor::ThreadFor(const plan::Task& task) {
  const auto number = static_cast<uint16_t>(task.id.thread);
  Thread& thread = threads_[number];
  if (thread.actors != nullptr) return thread;
  thread.reactor = &resources_.threads->Of(number);
  ActorThreadOptions options;
  options.thread = number;
  if (resources_.environment->is_simulated()) {
    options.order = std::make_unique<SeededChoice>(resources_.simulation_seed * 1000003 +
                                                   resources_.node * 1009 + number);
  }
  options.on_run_done = [this, &thread, number](int64_t steps) {
    if (EndsLocalRun(steps)) return;
    Drain(number, [this, &thread, steps](const absl::Status& status) {
      if (status.ok()) OnThreadRunDone(thread, steps);
    });
  };
  options.on_failure = [this](absl::Status status) {
    resources_.control->Post([this, status] { OnFailure(status); });
  };
  options.on_closed = [this, &thread, number] {
    // It may be inside a Poll of the actors. When all threads have come back from theirs, nothing
    // of this job is on a stack any more.
    thread.reactor->Post([this, &thread, number] {
      thread.actors->Leave();
      thread.collectives.clear();
      Drain(number, [this, &thread](const absl::Status&) { OnThreadClosed(thread); });
    });
  };
  thread.actors = std::make_unique<ActorThread>(std::move(options), thread.reactor, &bus_);
  return thread;
}

absl::Status Executor::AddTask(const plan::NodePlan& plan, const plan::Task& task,
                               std::vector<ComputeCall> calls, StreamOrder& order) {
  Thread& thread = ThreadFor(task);
  BRAID_RETURN_IF_ERROR(AddLandings(task));
  BRAID_ASSIGN_OR_RETURN(const TaskMemory memory, addresses_.Of(task));
  ActionContext context{.plan = plan,
                        .task = task,
                        .addresses = addresses_,
                        .device = *(*resources_.devices)[task.device],
                        .memory = memory,
                        .calls = std::move(calls),
                        .first_step = &first_step_,
                        .variable_use = &variable_use_,
                        .variables_epoch = &resources_.variables->epoch(),
                        .reactor = thread.reactor,
                        .collectives = resources_.collectives,
                        .device_group = resources_.device_group,
                        .first_collective = options_.first_collective,
                        .link_of = resources_.link_of};
  BRAID_ASSIGN_OR_RETURN(
      MadeAction made,
      std::visit([&context](const auto& work) { return MakeAction(work, context); }, task.work));
  TaskDescription& description = descriptions_[task.id.task];
  description.title = TitleOf(task);
  description.compute = made.compute;
  if (made.port != nullptr) {
    ports_[task.outputs[0].reg] = std::move(made.port);
    ++ports_missing_;
  }
  if (made.collective != nullptr) {
    description.collective = made.collective_id + 1;
    thread.collectives.push_back(std::move(made.collective));
  }
  std::unique_ptr<Action> action = order.Wrap(task, std::move(made.action));
  if (shadow_ != nullptr) action = Check(task, memory, std::move(action));
  return thread.actors->AddActor(SpecOf(task), std::move(action));
}

absl::Status Executor::AddLandings(const plan::Task& task) {
  for (const plan::Input& input : task.inputs) {
    if (input.producer.node == resources_.node || !input.memory.has_value()) continue;
    BRAID_ASSIGN_OR_RETURN(const SlotMemory memory, addresses_.Of(*input.memory));
    Landing& landing = landings_[input.reg];
    landing.base = memory.base;
    landing.stride = memory.stride;
    landing.slots = input.slots;
    landing.peer = static_cast<uint16_t>(input.producer.node);
    // Peers write there past the shadow: nobody else may.
    if (shadow_ != nullptr) {
      shadow_->Write(input.reg, memory.base, memory.stride * input.slots);
    }
  }
  return absl::OkStatus();
}

std::unique_ptr<Action> Executor::Check(const plan::Task& task, const TaskMemory& memory,
                                        std::unique_ptr<Action> action) {
  std::vector<CheckedAction::End> inputs, outputs;
  for (size_t i = 0; i < task.inputs.size(); ++i) {
    inputs.push_back({task.inputs[i].reg, memory.inputs[i], task.inputs[i].lane});
  }
  for (size_t i = 0; i < task.outputs.size(); ++i) {
    outputs.push_back({task.outputs[i].reg, memory.outputs[i], task.outputs[i].lane});
  }
  return std::make_unique<CheckedAction>(std::move(action), std::move(inputs), std::move(outputs),
                                         shadow_.get());
}

absl::Status Executor::Connect() {
  for (auto& [reg, landing] : landings_) {
    Link* link = resources_.link_of(landing.peer);
    if (link == nullptr) {
      return absl::InternalError(absl::StrFormat("no link to node %d", landing.peer));
    }
    BRAID_ASSIGN_OR_RETURN(landing.key,
                           link->Expose({landing.base, landing.stride * landing.slots}));
    landing.is_exposed = true;
    SendLandingKey(*link, options_.job, {reg, landing.key});
  }
  BRAID_RETURN_IF_ERROR(bus_.Start());
  std::map<uint32_t, Reactor*> devices;  // each by one of its threads
  for (const auto& [number, thread] : threads_) {
    devices.emplace(DeviceOfThread(number), thread.reactor);
  }
  for (const auto& [index, reactor] : devices) {
    ++devices_filling_;
    Device* const device = (*resources_.devices)[index].get();
    const Notice drained = [this, control = resources_.control,
                            is_alive = is_alive_](const absl::Status& status) {
      control->Post([this, is_alive, status] {
        if (!*is_alive) return;
        if (!status.ok()) return OnFailure(status);
        --devices_filling_;
        CheckReady();
      });
    };
    // Not on this thread, which has other things to do in the meantime.
    reactor->Post([device, drained] {
      if (CallFuser* const fuser = device->call_fuser()) fuser->Compile();
      device->Drain(drained);
    });
  }
  resources_.collectives->Connect(
      [this, control = resources_.control, is_alive = is_alive_](absl::Status status) {
        control->Post([this, is_alive, status] {
          if (!*is_alive) return;
          if (!status.ok()) return OnFailure(status);
          is_connected_ = true;
          CheckReady();
        });
      });
  return absl::OkStatus();
}

absl::Status Executor::OnFrame(uint16_t peer, std::span<const std::byte> frame) {
  if (static_cast<Channel>(frame[0]) == Channel::kActor) {
    BRAID_ASSIGN_OR_RETURN(const Message message, MessageOfFrame(frame));
    if (message.src.node != peer) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s came from node %d", ToString(message), peer));
    }
    return bus_.Deliver(message);
  }
  BRAID_ASSIGN_OR_RETURN(const LandingKey key, LandingKeyOfFrame(frame));
  const auto it = ports_.find(key.reg);
  if (it == ports_.end() || it->second->key.bytes != 0 || it->second->link->peer() != peer) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "node %d sent a landing key for register %d, which was not expected", peer, key.reg));
  }
  it->second->key = key.key;
  --ports_missing_;
  CheckReady();
  return absl::OkStatus();
}

void Executor::CheckReady() {
  if (!is_connected_ || is_ready_ || ports_missing_ > 0 || devices_filling_ > 0) return;
  is_ready_ = true;
  options_.on_ready();
}

void Executor::Run(int64_t first_step, int64_t steps) {
  Credit(first_step, steps);
  if (threads_.empty()) {
    steps_reported_ = steps_.load();
    options_.on_run_done();
  }
}

void Executor::Credit(int64_t first_step, int64_t steps) {
  // Acts count from the first Run on; the mailbox that brings the credits orders this write.
  first_step_ = first_step - steps_;
  steps_ += steps;
  if (variable_use_.writes() && !std::exchange(is_writing_, true)) {
    resources_.variables->BeginWriting();
  }
  for (auto& [number, thread] : threads_) thread.actors->Run(steps);
}

// Before the program's thread hears of it.
bool Executor::EndsLocalRun(int64_t steps) {
  if (local_runs_ == nullptr || !local_runs_->is_running()) return false;
  threads_.begin()->second.steps_done = steps;
  steps_reported_ = steps;
  EndWriting();
  local_runs_->OnRunDone();
  return true;
}

void Executor::Drain(uint16_t thread, std::function<void(const absl::Status&)> drained) {
  Device& device = *(*resources_.devices)[DeviceOfThread(thread)];
  device.Drain([this, drained = std::move(drained)](const absl::Status& status) {
    resources_.control->Post([this, drained, status] {
      if (!status.ok()) OnFailure(status);
      drained(status);
    });
  });
}

void Executor::OnThreadRunDone(Thread& thread, int64_t steps) {
  thread.steps_done = steps;
  int64_t done = steps;
  for (const auto& [number, other] : threads_) done = std::min(done, other.steps_done);
  if (done < steps_ || steps_reported_ == steps_) return;
  steps_reported_ = steps_.load();
  EndWriting();
  options_.on_run_done();
}

void Executor::EndWriting() {
  if (std::exchange(is_writing_, false)) resources_.variables->EndWriting();
}

void Executor::OnFailure(absl::Status status) {
  if (std::exchange(has_failed_, true) || closed_ != nullptr) return;
  options_.on_failure(std::move(status));
}

void Executor::Close(absl::Status cause, std::function<void()> closed) {
  if (local_runs_ != nullptr) local_runs_->Close();
  closed_ = std::move(closed);
  for (auto& [number, thread] : threads_) {
    thread.reactor->Post([&thread = thread, cause] {
      for (const auto& collective : thread.collectives) collective->Abort(cause);
    });
    thread.actors->Abort(cause);
  }
  if (threads_.empty()) resources_.control->Post([this] { FinishClose(); });
}

void Executor::OnThreadClosed(Thread& thread) {
  thread.is_closed = true;
  for (const auto& [number, other] : threads_) {
    if (!other.is_closed) return;
  }
  for (auto& [reg, landing] : landings_) {
    Link* link = resources_.link_of(landing.peer);
    if (landing.is_exposed && link != nullptr) link->Withdraw(landing.key);
  }
  FinishClose();
}

void Executor::FinishClose() {
  *is_alive_ = false;
  EndWriting();
  if (local_runs_ != nullptr) LocalRuns::OnClosed(local_runs_);
  // The callback destroys this object: nothing after it.
  std::exchange(closed_, nullptr)();
}

int64_t Executor::acts_done() const {
  int64_t acts = 0;
  for (const auto& [number, thread] : threads_) acts += thread.actors->acts_done();
  return acts;
}

}  // namespace braid
