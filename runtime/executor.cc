#include "runtime/executor.h"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "runtime/actions/collective.h"
#include "runtime/actions/copy.h"
#include "runtime/base/seeded_choice.h"
#include "runtime/base/status.h"
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
  spec.is_deferrable = task.is_deferrable;
  for (const plan::Input& input : task.inputs) {
    spec.inputs.push_back(
        {input.reg, IdOf(input.producer), input.slots, input.period, input.initial_tokens});
  }
  for (const plan::Output& output : task.outputs) {
    OutputSpec& out = spec.outputs.emplace_back();
    out.reg = output.reg;
    out.slots = output.slots;
    out.period = output.period;
    out.initial_tokens = output.initial_tokens;
    for (const plan::ActorId& consumer : output.consumers) out.consumers.push_back(IdOf(consumer));
  }
  return spec;
}

// The owner of a variable does no work of its own: its actor only counts.
class NoAction final : public Action {
 public:
  void Start(const Act&, ActDone done) override { done(absl::OkStatus()); }
};

}  // namespace

Executor::Executor(const NodeResources& resources, ExecutorOptions options)
    : resources_(resources),
      options_(std::move(options)),
      remote_(options_.job, resources.link_of),
      bus_(resources.node, &remote_) {}

Executor::~Executor() {
  *is_alive_ = false;
  for (auto& [number, thread] : threads_) thread.reactor.reset();
}

absl::StatusOr<std::unique_ptr<Executor>> Executor::Make(const plan::NodePlan& plan,
                                                         PreparedKernels kernels,
                                                         const NodeResources& resources,
                                                         ExecutorOptions options) {
  if (plan.node != resources.node) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the plan of job '%s' is node %d's and came to node %d", plan.job,
                        plan.node, resources.node));
  }
  std::unique_ptr<Executor> executor(new Executor(resources, std::move(options)));
  absl::Status status = executor->Load(plan, std::move(kernels));
  if (!status.ok()) {
    // Collectives die on their reactor's thread, also when no actor has run yet.
    for (auto& [number, thread] : executor->threads_) {
      thread.reactor->Post([&collectives = thread.collectives] { collectives.clear(); });
    }
    return status;
  }
  return executor;
}

absl::Status Executor::Load(const plan::NodePlan& plan, PreparedKernels kernels) {
  job_name_ = plan.job;
  seed_ = plan.seed;
  RETURN_IF_ERROR(PrepareArenas(plan));
  if (resources_.environment->is_simulated()) {
    shadow_ = std::make_unique<ShadowMemory>(resources_.devices);
  }
  RETURN_IF_ERROR(ObtainVariables(plan));
  for (const plan::Task& task : plan.tasks) {
    if (absl::Status status = AddTask(plan, task, std::move(kernels[task.id.task])); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrFormat("job '%s', node %d: %s", job_name_, resources_.node,
                                          std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

NodeSummary Executor::Summarize(const plan::NodePlan& plan) const {
  return SummarizeNode(plan, *resources_.datasets, [this](const plan::Task& task) {
    const auto found = descriptions_.find(task.id.task);
    if (found == descriptions_.end() || found->second.compute == nullptr) return KernelMemory();
    return KernelMemory{found->second.compute->memory_bytes(),
                        found->second.compute->shared_bytes()};
  });
}

absl::Status Executor::PrepareArenas(const plan::NodePlan& plan) {
  for (const plan::Arena& arena : plan.arenas) {
    if (arena.device >= resources_.devices->size()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the plan of job '%s' uses device %d of node %d, which has %d", job_name_,
                          arena.device, resources_.node, resources_.devices->size()));
    }
    Device& device = *(*resources_.devices)[arena.device];
    uint64_t bytes = arena.bytes;
    for (uint32_t stream = 0; stream < kNumStreams; ++stream) {
      scratch_[{arena.device, stream}] = device.arena().data() + bytes;
      bytes += arena.scratch_bytes[stream];
    }
    RETURN_IF_ERROR(device.GrowArena(bytes));
  }
  return absl::OkStatus();
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
      RETURN_IF_ERROR(resources_.variables->Obtain(static_cast<int>(task.device), spec).status());
    }
  }
  return absl::OkStatus();
}

Executor::Thread& Executor::ThreadFor(const plan::Task& task) {
  const auto number = static_cast<uint16_t>(task.id.thread);
  Thread& thread = threads_[number];
  if (thread.actors != nullptr) return thread;
  thread.reactor = resources_.environment->StartReactor(
      absl::StrFormat("%s n%d t%d", job_name_, resources_.node, number));
  ActorThreadOptions options;
  options.thread = number;
  if (resources_.environment->is_simulated()) {
    options.order = std::make_unique<SeededChoice>(resources_.simulation_seed * 1000003 +
                                                   resources_.node * 1009 + number);
  }
  options.on_run_done = [this, &thread](int64_t steps) {
    resources_.control->Post([this, &thread, steps] { OnThreadRunDone(thread, steps); });
  };
  options.on_failure = [this](absl::Status status) {
    resources_.control->Post([this, status] { OnFailure(status); });
  };
  options.on_closed = [this, &thread] {
    thread.collectives.clear();
    resources_.control->Post([this, &thread] { OnThreadClosed(thread); });
  };
  thread.actors = std::make_unique<ActorThread>(std::move(options), thread.reactor.get(), &bus_);
  return thread;
}

absl::Status Executor::AddTask(const plan::NodePlan& plan, const plan::Task& task,
                               std::vector<ComputeCall> calls) {
  Thread& thread = ThreadFor(task);
  for (const plan::Input& input : task.inputs) {
    if (input.producer.node == resources_.node || !input.memory.has_value()) continue;
    ASSIGN_OR_RETURN(const SlotMemory memory, MemoryOf(*input.memory));
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
  descriptions_[task.id.task].title = TitleOf(task);
  ASSIGN_OR_RETURN(std::unique_ptr<Action> action,
                   MakeAction(plan, task, std::move(calls), thread));
  return thread.actors->AddActor(SpecOf(task), std::move(action));
}

absl::StatusOr<SlotMemory> Executor::MemoryOf(const plan::Memory& memory) const {
  if (memory.device >= resources_.devices->size()) {
    return absl::InvalidArgumentError(absl::StrFormat("memory on device %d, node %d has %d",
                                                      memory.device, resources_.node,
                                                      resources_.devices->size()));
  }
  return SlotMemory{(*resources_.devices)[memory.device]->arena().data() + memory.offset,
                    memory.stride};
}

absl::StatusOr<OperandAddress> Executor::AddressOf(const plan::Task& task,
                                                   const plan::Operand& operand) {
  OperandAddress address;
  address.index = operand.index;
  address.offset = operand.offset;
  size_t ends = 0;
  switch (operand.source) {
    case plan::Operand::Source::kInput:
      address.kind = OperandAddress::Kind::kInput;
      ends = task.inputs.size();
      break;
    case plan::Operand::Source::kOutput:
      address.kind = OperandAddress::Kind::kOutput;
      ends = task.outputs.size();
      break;
    case plan::Operand::Source::kScratch:
      address.fixed = scratch_[{task.device, task.id.thread % kNumStreams}] + operand.offset;
      break;
    case plan::Operand::Source::kVariable:
      address.fixed = resources_.variables->Find(static_cast<int>(operand.index),
                                                 std::string(operand.variable));
      if (address.fixed == nullptr) {
        return absl::InternalError(
            absl::StrFormat("task '%s' reads variable '%s', which no task of device %d owns",
                            task.name, operand.variable, operand.index));
      }
      break;
  }
  if (address.kind != OperandAddress::Kind::kFixed && operand.index >= ends) {
    return absl::InvalidArgumentError(
        absl::StrFormat("task '%s': operand of end %d, it has %d", task.name, operand.index, ends));
  }
  return address;
}

absl::StatusOr<std::unique_ptr<Action>> Executor::MakeAction(const plan::NodePlan& plan,
                                                             const plan::Task& task,
                                                             std::vector<ComputeCall> calls,
                                                             Thread& thread) {
  TaskMemory memory;
  for (const plan::Input& input : task.inputs) {
    SlotMemory slots;
    if (input.memory.has_value()) {
      ASSIGN_OR_RETURN(slots, MemoryOf(*input.memory));
    }
    memory.inputs.push_back(slots);
  }
  const bool is_transfer = std::holds_alternative<plan::Transfer>(task.work);
  for (const plan::Output& output : task.outputs) {
    SlotMemory slots;
    if (output.memory.has_value() && !is_transfer) {
      ASSIGN_OR_RETURN(slots, MemoryOf(*output.memory));
    }
    memory.outputs.push_back(slots);
  }
  absl::StatusOr<std::unique_ptr<Action>> action;
  if (std::holds_alternative<plan::Compute>(task.work)) {
    action = MakeCompute(task, memory, std::move(calls));
  } else if (std::holds_alternative<plan::Copy>(task.work)) {
    action = MakeCopy(task, memory);
  } else if (is_transfer) {
    action = MakeTransfer(task, memory);
  } else if (std::holds_alternative<plan::Collective>(task.work)) {
    action = MakeCollective(plan, task, memory, thread);
  } else {
    action = std::make_unique<NoAction>();
  }
  RETURN_IF_ERROR(action.status());
  if (shadow_ == nullptr) return action;
  return Check(task, memory, *std::move(action));
}

std::unique_ptr<Action> Executor::Check(const plan::Task& task, const TaskMemory& memory,
                                        std::unique_ptr<Action> action) {
  std::vector<CheckedAction::End> inputs, outputs;
  for (size_t i = 0; i < task.inputs.size(); ++i) {
    inputs.push_back({task.inputs[i].reg, memory.inputs[i]});
  }
  for (size_t i = 0; i < task.outputs.size(); ++i) {
    outputs.push_back({task.outputs[i].reg, memory.outputs[i]});
  }
  return std::make_unique<CheckedAction>(std::move(action), std::move(inputs), std::move(outputs),
                                         shadow_.get());
}

absl::StatusOr<std::unique_ptr<Action>> Executor::MakeCompute(const plan::Task& task,
                                                              TaskMemory memory,
                                                              std::vector<ComputeCall> calls) {
  const std::vector<plan::Kernel>& kernels = std::get<plan::Compute>(task.work).kernels;
  CHECK_EQ(calls.size(), kernels.size()) << "task '" << task.name << "' and its kernels";
  for (size_t i = 0; i < kernels.size(); ++i) {
    for (const plan::Operand& operand : kernels[i].inputs) {
      ASSIGN_OR_RETURN(calls[i].inputs.emplace_back(), AddressOf(task, operand));
    }
    for (const plan::Operand& operand : kernels[i].outputs) {
      ASSIGN_OR_RETURN(calls[i].outputs.emplace_back(), AddressOf(task, operand));
    }
  }
  auto action = std::make_unique<ComputeAction>(std::move(memory), std::move(calls),
                                                task.acts_per_step, &first_step_);
  descriptions_[task.id.task].compute = action.get();
  return action;
}

absl::StatusOr<std::unique_ptr<Action>> Executor::MakeCopy(const plan::Task& task,
                                                           TaskMemory memory) {
  const auto& copy = std::get<plan::Copy>(task.work);
  const OperandSpec destination = OperandOf(copy.destination.shard);
  CopyAction::Options options;
  ASSIGN_OR_RETURN(options.destination, AddressOf(task, copy.destination));
  options.destination_bytes = static_cast<uint64_t>(BytesOf(destination));
  options.dtype = destination.dtype;
  options.reduction = copy.reduction;
  options.zero_first = copy.zero_first;
  for (const plan::Copy::Move& move : copy.moves) {
    CopyAction::Move& out = options.moves.emplace_back();
    ASSIGN_OR_RETURN(out.source, AddressOf(task, move.source));
    out.runs = RunsOf(move.source.shard.region, destination.region, move.box);
    out.add = move.add;
  }
  return std::make_unique<CopyAction>(std::move(memory), std::move(options));
}

absl::StatusOr<std::unique_ptr<Action>> Executor::MakeTransfer(const plan::Task& task,
                                                               TaskMemory memory) {
  const auto& transfer = std::get<plan::Transfer>(task.work);
  const OperandSpec source = OperandOf(transfer.source.shard);
  TransferAction::Options options;
  ASSIGN_OR_RETURN(options.source, AddressOf(task, transfer.source));
  options.bytes = transfer.bytes;
  options.landing = transfer.landing;
  options.element_size = SizeOf(source.dtype);
  options.pack = RunsOf(source.region, transfer.box, transfer.box);
  options.is_contiguous = options.pack.is_contiguous();
  if (options.is_contiguous) {
    options.first_byte =
        options.pack.from.empty() ? 0 : options.pack.from[0] * options.element_size;
  } else {
    ASSIGN_OR_RETURN(const SlotMemory staging,
                     MemoryOf({.device = task.device, .offset = transfer.staging}));
    options.staging = staging.base;
  }
  auto port = std::make_unique<LandingPort>();
  port->link = resources_.link_of(static_cast<uint16_t>(transfer.peer));
  if (port->link == nullptr) {
    return absl::InternalError(absl::StrFormat(
        "task '%s' sends to node %d, to which there is no link", task.name, transfer.peer));
  }
  port->stride = task.outputs[0].memory->stride;
  options.port = port.get();
  ports_[task.outputs[0].reg] = std::move(port);
  ++ports_missing_;
  return std::make_unique<TransferAction>(std::move(memory), std::move(options));
}

absl::StatusOr<std::unique_ptr<Action>> Executor::MakeCollective(const plan::NodePlan& plan,
                                                                 const plan::Task& task,
                                                                 TaskMemory memory,
                                                                 Thread& thread) {
  const auto& collective = std::get<plan::Collective>(task.work);
  CollectiveSpec spec = CollectiveSpecOf(plan, task);
  spec.id += options_.first_collective;
  ASSIGN_OR_RETURN(const OperandAddress input, AddressOf(task, collective.input));
  ASSIGN_OR_RETURN(const OperandAddress output, AddressOf(task, collective.output));
  ASSIGN_OR_RETURN(std::unique_ptr<Collective> end,
                   resources_.collectives->Create(
                       spec, *thread.reactor, OwnMemoryOf(*(*resources_.devices)[task.device])));
  CollectiveAction::Options options{input, output, end.get(), {}};
  for (const Member& member : spec.members) {
    options.threads.push_back(
        {.node = member.node,
         .thread = static_cast<int>(member.device * kNumStreams + task.id.thread % kNumStreams)});
  }
  descriptions_[task.id.task].collective = spec.id + 1;
  auto action = std::make_unique<CollectiveAction>(std::move(memory), std::move(options));
  thread.collectives.push_back(std::move(end));
  return action;
}

absl::Status Executor::Connect() {
  for (auto& [reg, landing] : landings_) {
    Link* link = resources_.link_of(landing.peer);
    if (link == nullptr) {
      return absl::InternalError(absl::StrFormat("no link to node %d", landing.peer));
    }
    ASSIGN_OR_RETURN(landing.key, link->Expose({landing.base, landing.stride * landing.slots}));
    landing.is_exposed = true;
    SendLandingKey(*link, options_.job, {reg, landing.key});
  }
  RETURN_IF_ERROR(bus_.Start());
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
    ASSIGN_OR_RETURN(const Message message, MessageOfFrame(frame));
    if (message.src.node != peer) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s came from node %d", ToString(message), peer));
    }
    return bus_.Deliver(message);
  }
  ASSIGN_OR_RETURN(const LandingKey key, LandingKeyOfFrame(frame));
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
  if (!is_connected_ || is_ready_ || ports_missing_ > 0) return;
  is_ready_ = true;
  options_.on_ready();
}

void Executor::Run(int64_t first_step, int64_t steps) {
  // Acts count from the first Run on; the mailbox that brings the credits orders this write.
  first_step_ = first_step - steps_;
  steps_ += steps;
  for (auto& [number, thread] : threads_) thread.actors->Run(steps);
  if (threads_.empty()) {
    steps_reported_ = steps_;
    options_.on_run_done();
  }
}

void Executor::OnThreadRunDone(Thread& thread, int64_t steps) {
  thread.steps_done = steps;
  int64_t done = steps;
  for (const auto& [number, other] : threads_) done = std::min(done, other.steps_done);
  if (done < steps_ || steps_reported_ == steps_) return;
  steps_reported_ = steps_;
  options_.on_run_done();
}

void Executor::OnFailure(absl::Status status) {
  if (std::exchange(has_failed_, true) || closed_ != nullptr) return;
  options_.on_failure(std::move(status));
}

void Executor::Close(absl::Status cause, std::function<void()> closed) {
  closed_ = std::move(closed);
  for (auto& [number, thread] : threads_) {
    thread.reactor->Post([&thread = thread, cause] {
      for (const auto& collective : thread.collectives) collective->Abort(cause);
    });
    thread.actors->Abort(cause);
  }
  if (threads_.empty()) resources_.control->Post(closed_);
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
  // The callback destroys this object: nothing after it.
  std::exchange(closed_, nullptr)();
}

int64_t Executor::acts_done() const {
  int64_t acts = 0;
  for (const auto& [number, thread] : threads_) acts += thread.actors->acts_done();
  return acts;
}

}  // namespace braid
