#include "compiler/lower_servers.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/boxing/edge.h"
#include "graph/op_roles.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

std::string Where(const Op& op) {
  return absl::StrCat("'", op.name, "'",
                      op.location.line == 0 ? "" : absl::StrCat(" (", op.location.ToString(), ")"));
}

bool IsBroadcast(const NdSbp& sbp) {
  return std::ranges::all_of(sbp.dims(), [](const Sbp& one) { return one.is_broadcast(); });
}

}  // namespace

ServerLowering::ServerLowering(const LogicalGraph* graph, PhysicalGraph* result)
    : graph_(*graph), result_(*result) {
  for (const Op& op : graph_.ops()) {
    const int bound = MaxStaleness(op);
    if (bound == 0) continue;
    most_apart_ = std::max(most_apart_, bound);
    if (!workers_.has_value()) {
      workers_ = graph_.producer(op.inputs[PushedInput(graph_, op)]).placement;
    }
    for (const int input : DefOf(graph_, op).mutates()) {
      const OpId variable = graph_.tensor(op.inputs[input]).producer;
      bounds_[variable] = bound;
      gradients_[variable] = op.inputs[PushedInput(graph_, op)];
    }
  }
}

absl::Status ServerLowering::CheckWorkers(const Op& op, const Placement& workers) const {
  if (workers_->HasDevicesOf(workers) && workers.hierarchy().size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      Where(op), " works on ", workers.ToString(), " with variables of an asynchronous server, ",
      "whose workers are ", workers_->ToString(),
      "; all workers are to be in one placement of one dimension, e.g. by job.On, or let "
      "max_staleness be 0"));
}

absl::StatusOr<GroupRegisterId> ServerLowering::Pull(const Op& reader, TensorId variable,
                                                     const Source& source, const NdSbp& wanted) {
  const Op& owner = graph_.producer(variable);
  const Placement& servers = *owner.placement;
  if (servers == *reader.placement) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(reader), " reads ", Where(owner), " on ", servers.ToString(),
        ", where an asynchronous server changes it at any moment; let workers on other "
        "devices read it (a variable stays where an earlier job of the session has "
        "put it), or let max_staleness be 0"));
  }
  BRAID_RETURN_IF_ERROR(CheckWorkers(reader, *reader.placement));
  if (!IsBroadcast(wanted)) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(reader), " takes ", Where(owner), " as ", wanted.ToString(), " on ",
        reader.placement->ToString(),
        "; each worker of an asynchronous server takes all of it: split the batch, with a hint "
        "S(0) where it comes in, or let max_staleness be 0"));
  }
  TensorLayout layout = source.layout;
  layout.sbp = wanted;
  const GroupRegisterId reg =
      AddExchange(owner, Exchange::Lanes::kPull, source, *reader.placement, layout);
  pulls_[owner.id].push_back(result_.reg(reg).producer);
  return reg;
}

absl::StatusOr<GroupRegisterId> ServerLowering::Push(const Op& op, int input, const Source& source,
                                                     const TensorLayout& wanted) {
  const TensorId tensor = op.inputs[input];
  const Op& producer = graph_.producer(tensor);
  const Placement& from = result_.reg(source.reg).placement;
  BRAID_RETURN_IF_ERROR(CheckWorkers(producer, from));
  const bool is_sum = source.layout.sbp[0].kind == Sbp::Kind::kPartialSum;
  if (from.size() > 1 && !is_sum) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(producer), ", which workers push to an asynchronous server, is ",
        source.layout.sbp.ToString(), " on ", from.ToString(),
        "; each worker is to have an addend of it, P: split the batch, with a hint S(0) where it "
        "comes in, or let max_staleness be 0"));
  }
  std::vector<Pushed>& pushes = pushes_[tensor];
  const auto known = std::ranges::find_if(pushes, [&](const Pushed& push) {
    const Register& reg = result_.reg(push.reg);
    return reg.placement == *op.placement && reg.parts[0].layout == wanted;
  });
  if (known != pushes.end()) return known->reg;
  const GroupRegisterId reg =
      AddExchange(producer, Exchange::Lanes::kPush, source, *op.placement, wanted);
  result_.reg(reg).is_by_lane = true;
  pushes.push_back({.reg = reg, .servers = {}});
  return reg;
}

GroupRegisterId ServerLowering::AddExchange(const Op& producer, Exchange::Lanes lanes,
                                            const Source& source, const Placement& placement,
                                            const TensorLayout& wanted) {
  TaskGroup group;
  group.name = absl::StrCat(producer.name, lanes == Exchange::Lanes::kPull ? ".pull" : ".push");
  group.stream = StreamKind::kTransfer;
  group.work =
      Exchange{.movement = {.part = source.part, .source = source.layout, .destination = wanted},
               .lanes = lanes};
  return AddBoxingGroup(std::move(group), placement, wanted,
                        {.reg = source.reg,
                         .part = source.part,
                         .acts_per_step = 1,
                         .name = producer.name,
                         .location = producer.location},
                        result_);
}

bool ServerLowering::GoesDirectly(const BoxingEdge& edge) const {
  return workers_.has_value() && workers_->size() > 1 && !edge.source_sbp.has_mirrored() &&
         workers_->HasDevicesOf(edge.source) != workers_->HasDevicesOf(edge.destination);
}

int ServerLowering::AddServer(TensorId tensor, GroupRegisterId pushed, GroupId group) {
  for (Pushed& push : pushes_.at(tensor)) {
    if (push.reg == pushed) push.servers.push_back(group);
  }
  const TaskGroup& push = result_.group(result_.reg(pushed).producer);
  return result_.reg(push.inputs[0].reg).placement.size();
}

absl::Status ServerLowering::CheckIsNoMeeting(const TaskGroup& group) const {
  if (group.movement() == nullptr || group.placement.size() == 1 ||
      !group.placement.HasDevicesOf(*workers_)) {
    return absl::OkStatus();
  }
  if (group.is<Exchange>() && !result_.reg(group.inputs[0].reg).placement.HasDevicesOf(*workers_)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      DescribeGroup(result_, group.id), " moves ", group.movement()->source.ToString(), " to ",
      group.movement()->destination.sbp.ToString(), " on ", group.placement.ToString(),
      " in every step, for which the workers of an asynchronous server would wait for "
      "each other; compute it for each worker alone, or let max_staleness be 0"));
}

bool ServerLowering::IsBefore(GroupId group, GroupId later) const {
  std::vector<bool> is_seen(result_.groups().size(), false);
  std::vector<GroupId> stack = {later};
  while (!stack.empty()) {
    const GroupId next = stack.back();
    stack.pop_back();
    for (const GroupInput& input : result_.group(next).inputs) {
      const Register& reg = result_.reg(input.reg);
      if (reg.initial_tokens > 0 || is_seen[reg.producer]) continue;
      if (reg.producer == group) return true;
      is_seen[reg.producer] = true;
      stack.push_back(reg.producer);
    }
  }
  return false;
}

void ServerLowering::OrderPush(OpId variable, const Pushed& push) {
  const TaskGroup& exchange = result_.group(result_.reg(push.reg).producer);
  const GroupId maker = result_.reg(exchange.inputs[0].reg).producer;
  for (const GroupId pull : pulls_.at(variable)) {
    if (IsBefore(pull, maker)) return;
  }
  const auto consumers = result_.Consumers();
  for (const GroupId pull : pulls_.at(variable)) {
    for (const auto& [reader, input] : consumers[result_.group(pull).outputs[0]]) {
      if (IsBefore(maker, reader)) continue;
      return result_.AddControlEdge(reader, maker, /*initial_tokens=*/0);
    }
  }
}

absl::Status ServerLowering::Finish() {
  if (pushes_.empty()) return absl::OkStatus();
  for (const TaskGroup& group : result_.groups()) {
    BRAID_RETURN_IF_ERROR(CheckIsNoMeeting(group));
    if (!group.is<Exchange>() || group.exchange_lanes() != Exchange::Lanes::kNone) continue;
    // What workers get from elsewhere and give to all together waits for the last of them.
    for (const GroupRegisterId id : {group.inputs[0].reg, group.outputs[0]}) {
      Register& reg = result_.reg(id);
      if (reg.placement.HasDevicesOf(*workers_)) {
        reg.least_slots = std::max(reg.least_slots, most_apart_ + 1);
      }
    }
  }
  for (const auto& [variable, pulls] : pulls_) {
    for (const Pushed& push : pushes_.at(gradients_.at(variable))) {
      OrderPush(variable, push);
      for (const GroupId pull : pulls) {
        for (const GroupId server : push.servers) {
          result_.AddControlEdge(server, pull, /*initial_tokens=*/1, /*pieces=*/1);
          result_.reg(result_.group(pull).inputs.back().reg).is_by_lane = true;
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckServersAreHosts(const PhysicalGraph& graph) {
  for (const TaskGroup& group : graph.groups()) {
    if (group.exchange_lanes() == Exchange::Lanes::kNone) continue;
    for (const Placement* const placement :
         {&group.placement, &graph.reg(group.inputs[0].reg).placement}) {
      for (const DeviceId& device : placement->devices()) {
        if (graph.kinds.of(device.node).is_host) continue;
        return absl::UnimplementedError(absl::StrFormat(
            "%s, of an asynchronous server, works on %s:%d of node %d; its devices and its workers "
            "have to be CPUs, or let max_staleness be 0",
            DescribeGroup(graph, group.id), graph.kinds.of(device.node).name, device.device,
            device.node));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace braid::compiler
