#include "runtime/group/groups.h"

#include <string>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/group/roll_call.h"

namespace braid::dist {
namespace {

// Frames that peers may send before this node has opened the groups they are for.
constexpr size_t kMostEarly = 1 << 16;

}  // namespace

Groups::~Groups() = default;

void Groups::SetPeers(Peers* peers) {
  peers_ = peers;
  peers->SetReceiver(Channel::kGroup, [this](uint16_t peer, std::span<const std::byte> bytes) {
    return OnFrame(peer, bytes);
  });
}

void Groups::SetMachines(const std::map<uint16_t, std::string>& machines) {
  std::map<std::string, uint32_t> numbers;
  for (const auto& [node, machine] : machines) {
    const auto number = static_cast<uint32_t>(numbers.size());
    hosts_[node] = numbers.try_emplace(machine, number).first->second;
  }
}

void Groups::Open(GroupIdentity identity) {
  if (!closed_.ok()) return;
  for (const uint16_t node : identity.nodes) {
    const auto host = hosts_.find(node);
    identity.hosts.push_back(host == hosts_.end() ? 0 : host->second);
  }
  const uint64_t id = identity.id;
  CHECK(!groups_.contains(id)) << identity.name << " is opened twice";
  GroupEnd::Options options;
  options.reactor = options_.reactor;
  options.peers = peers_;
  options.allocate = options_.allocate;
  options.fail = options_.fail;
  options.dial = [this](uint16_t node) {
    control::ControlMessage message;
    message.mutable_dial()->set_from(options_.node);
    message.mutable_dial()->set_to(node);
    options_.send(message);
  };
  options.ask = [this](const control::RollCall& call) {
    control::ControlMessage message;
    *message.mutable_roll_call() = call;
    message.mutable_roll_call()->set_asker(options_.node);
    options_.send(message);
  };
  GroupEnd& group =
      *groups_.emplace(id, std::make_unique<GroupEnd>(std::move(identity), std::move(options)))
           .first->second;
  std::erase_if(early_, [&](const auto& early) {
    if (GroupOf(early.second) != id) return false;
    // Its link is not to be closed from here: whoever waits for an answer finds out.
    const absl::Status taken = group.HandleFrame(early.first, early.second);
    LOG_IF(ERROR, !taken.ok()) << taken.message();
    return true;
  });
}

void Groups::Start(uint64_t group, GroupCall call, std::function<void(absl::Status)> done) {
  const auto found = groups_.find(group);
  const bool is_drop = call.kind == CallKind::kDropWindow && found != groups_.end();
  if (!closed_.ok() && !is_drop) return done(closed_);
  CHECK(found != groups_.end()) << "a call of group " << group << ", which is not open";
  found->second->Start(std::move(call), std::move(done));
}

bool Groups::IsDirect(uint64_t group) const {
  const auto found = groups_.find(group);
  return found != groups_.end() && found->second->IsDirect();
}

std::string Groups::LastAlgorithm(uint64_t group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? "" : std::string(found->second->last_algorithm());
}

void Groups::Leave(std::function<void()> left) {
  has_left_ = true;
  const auto waits_for = std::make_shared<size_t>(groups_.size() + 1);
  const auto one_less = [waits_for, left = std::move(left)] {
    if (--*waits_for == 0) left();
  };
  for (const auto& [id, group] : groups_) group->Leave(one_less);
  one_less();
}

absl::Status Groups::OnFrame(uint16_t peer, std::span<const std::byte> bytes) {
  if (!closed_.ok()) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(const GroupFrame frame, DecodeGroupFrame(bytes));
  const auto found = groups_.find(GroupOf(frame));
  if (found != groups_.end()) return found->second->HandleFrame(peer, frame);
  if (!MayBeEarly(frame) || early_.size() >= kMostEarly) {
    return absl::InvalidArgumentError(
        absl::StrFormat("wrong frame from node %d: there is no process group %d on node %d", peer,
                        GroupOf(frame), options_.node));
  }
  early_.emplace_back(peer, frame);
  return absl::OkStatus();
}

void Groups::OnRollCall(const control::RollCall& call) {
  control::ControlMessage message;
  control::RollAnswer& answer = *message.mutable_roll_answer();
  answer.set_group(call.group());
  answer.set_has_ended(has_left_);
  const auto found = groups_.find(call.group());
  if (found != groups_.end()) found->second->Answer(call.number(), answer);
  TellElsewhere(call.group(), answer);
  options_.send(message);
}

void Groups::TellElsewhere(uint64_t group, control::RollAnswer& answer) const {
  for (const auto& [id, other] : groups_) {
    if (id == group) continue;
    control::RollAnswer of_other;
    other->Answer(-1, of_other);
    if (of_other.blocked_in().empty()) continue;
    answer.add_elsewhere(CallOf(of_other.blocked_in(), other->identity().name));
  }
  if (!options_.waits) return;
  for (std::string& call : options_.waits()) answer.add_elsewhere(std::move(call));
}

void Groups::OnDial(uint16_t node) {
  if (!closed_.ok() || peers_ == nullptr) return;
  // Whether it comes is known to whoever wants it.
  peers_->Connect(node, [](const absl::Status&) {});
}

void Groups::Close(const absl::Status& reason, std::function<void()> closed) {
  if (closed_.ok()) closed_ = reason;
  closing_ = static_cast<int>(groups_.size()) + 1;
  const auto one_less = [this, closed = std::move(closed)] {
    if (--closing_ == 0) closed();
  };
  for (const auto& [id, group] : groups_) group->Close(reason, one_less);
  one_less();
}

}  // namespace braid::dist
