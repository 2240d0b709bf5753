#include "comm/collective/collective_hub.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "comm/collective/collective_algorithm.h"
#include "glog/logging.h"

namespace braid {
namespace {

// Keys that a peer may send before this node has created the collectives they are for.
constexpr size_t kMaxEarlyKeys = 1 << 20;

std::string Name(const CollectiveSpec& spec) {
  if (spec.name.empty()) {
    return absl::StrFormat("collective %d (%s)", spec.id, CollectiveKindName(spec.kind));
  }
  return absl::StrFormat("collective %d '%s' (%s)", spec.id, spec.name,
                         CollectiveKindName(spec.kind));
}

template <typename... Args>
absl::Status WrongFrame(uint16_t peer, const absl::FormatSpec<Args...>& format,
                        const Args&... args) {
  return absl::InvalidArgumentError(absl::StrFormat("wrong collective frame from node %d: %s", peer,
                                                    absl::StrFormat(format, args...)));
}

// Whether a member of this node exchanges items with a member on `peer`.
bool Uses(const LocalGroup& group, uint16_t peer) {
  const std::vector<Member>& members = group.spec().members;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const auto member = group.Find(rank);
    if (!member) continue;
    for (const Landing& landing : member->landings) {
      if (members[landing.from].node == peer) return true;
    }
    for (const LocalMember::Target& target : member->targets) {
      if (members[target.to].node == peer) return true;
    }
  }
  return false;
}

// Of a receiver, to the member that sends to it.
absl::Status TakeAnswer(const CollectiveSpec& spec, const LocalMember& member, uint16_t peer,
                        const CollectiveFrame& frame) {
  const bool is_offer = frame.type == CollectiveFrame::Type::kOffer;
  const auto target = std::ranges::find(member.targets, frame.from, &LocalMember::Target::to);
  if (target == member.targets.end()) {
    return WrongFrame(peer, "%s: member %d %s, but member %d sends nothing to it", Name(spec),
                      frame.from, is_offer ? "offers a place" : "acknowledges", frame.to);
  }
  if (!is_offer && frame.slot >= target->slots) {
    return WrongFrame(peer, "%s: member %d acknowledges slot %d of %d", Name(spec), frame.from,
                      frame.slot, target->slots);
  }
  member.inbox->Push(EventOf(frame));
  return absl::OkStatus();
}

// An all_to_all's counts beside those of the members that are here already.
absl::Status CheckPairs(const LocalGroup& group, const CollectiveSpec& spec) {
  if (spec.kind != CollectiveKind::kAllToAll) return absl::OkStatus();
  const auto check = [&](int from, int64_t sent, int to, int64_t expected) -> absl::Status {
    if (sent == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: member %d sends %d elements to member %d, which expects %d",
                        Name(spec), from, sent, to, expected));
  };
  for (size_t other = 0; other < spec.members.size(); ++other) {
    const auto member = group.Find(static_cast<int>(other));
    if (!member || member->counts.empty()) continue;
    absl::Status status = check(spec.my_rank, spec.counts[other], static_cast<int>(other),
                                member->receives[spec.my_rank]);
    status.Update(check(static_cast<int>(other), member->counts[spec.my_rank], spec.my_rank,
                        spec.receives[other]));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

void CollectiveHub::AddLink(uint16_t peer, Link* link) {
  MutexLock lock(mutex_);
  links_[peer] = {.link = link, .closed = absl::OkStatus()};
}

absl::StatusOr<std::unique_ptr<Collective>> CollectiveHub::Create(const CollectiveSpec& spec,
                                                                  Reactor& reactor,
                                                                  AllocateMemory allocate) {
  if (absl::Status status = CheckCollective(spec); !status.ok()) return status;
  if (const uint16_t node = spec.members[spec.my_rank].node; node != node_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: member %d lives on node %d, but was created on node %d", Name(spec),
                        spec.my_rank, node, node_));
  }
  MutexLock lock(mutex_);
  if (!aborted_.ok()) return aborted_;
  std::shared_ptr<LocalGroup> group;
  const auto found = groups_.find(spec.id);
  if (IsOver(spec.id) || (found != groups_.end() && found->second->is_deserted())) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s: its id was used before; every collective has its own, and later ones have higher ids",
        Name(spec)));
  }
  if (found == groups_.end()) {
    group = std::make_shared<LocalGroup>(spec, node_);
  } else {
    group = found->second;
    if (CollectiveFingerprint(group->spec()) != CollectiveFingerprint(spec)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: the spec of member %d differs from that of member %d (%s) on the same node",
          Name(spec), spec.my_rank, group->spec().my_rank, Name(group->spec())));
    }
    if (absl::Status status = CheckPairs(*group, spec); !status.ok()) return status;
    if (group->HasJoined(spec.my_rank)) {
      return absl::AlreadyExistsError(
          absl::StrFormat("%s: member %d was created twice", Name(spec), spec.my_rank));
    }
  }
  CollectiveContext context;
  context.spec = spec;
  context.reactor = &reactor;
  context.allocate = std::move(allocate);
  context.group = group;
  context.link_to = [this, &spec](uint16_t node) BRAID_REQUIRES(mutex_) -> absl::StatusOr<Link*> {
    const auto link = links_.find(node);
    if (link == links_.end()) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s: member %d needs a link from node %d to node %d, and there is none",
                          Name(spec), spec.my_rank, node_, node));
    }
    if (!link->second.closed.ok()) return link->second.closed;
    return link->second.link;
  };
  auto collective = FindCollectiveAlgorithm(spec.algorithm)->make(context);
  if (!collective.ok()) return collective;
  groups_[spec.id] = group;
  unconnected_.emplace_back(group, spec.my_rank);
  return collective;
}

void CollectiveHub::Connect(std::function<void(absl::Status)> done) {
  auto connect = std::make_shared<PendingConnect>();
  connect->missing = 1;
  connect->done = std::move(done);
  absl::Status status;
  std::vector<std::pair<Link*, CollectiveFrame>> keys;  // to send
  std::vector<std::pair<std::shared_ptr<LocalGroup>, CollectiveFrame>> early;
  std::vector<std::pair<std::shared_ptr<LocalGroup>, EarlyKey>> unexpected;
  {
    MutexLock lock(mutex_);
    status.Update(aborted_);
    // What all members have left needs no place any more.
    for (auto it = groups_.begin(); it != groups_.end();) {
      if (it->second->is_deserted()) {
        it = groups_.erase(it);
      } else {
        ++it;
      }
    }
    for (const auto& [group, rank] : std::exchange(unconnected_, {})) {
      const CollectiveSpec& spec = group->spec();
      next_ = std::max(next_, spec.id + 1);
      // It is gone: its job could not be loaded, and others of the group may never have been made.
      const auto member = group->Find(rank);
      if (!member) continue;
      for (size_t other = 0; other < spec.members.size(); ++other) {
        if (!group->IsLocal(other) || group->HasJoined(other)) continue;
        status.Update(absl::FailedPreconditionError(absl::StrFormat(
            "%s: member %d lives on node %d, too, and was not created", Name(spec), other, node_)));
      }
      for (const Landing& landing : member->landings) {
        keys.emplace_back(links_[spec.members[landing.from].node].link,
                          CollectiveFrame{.type = CollectiveFrame::Type::kKey,
                                          .collective = spec.id,
                                          .from = static_cast<uint16_t>(rank),
                                          .to = static_cast<uint16_t>(landing.from),
                                          .slot = landing.slots,
                                          .bytes = landing.slot_bytes,
                                          .key = landing.key,
                                          .fingerprint = landing.fingerprint,
                                          .reads_lent = landing.reads_lent});
      }
      for (const LocalMember::Target& target : member->targets) {
        const uint16_t peer = spec.members[target.to].node;
        const Hop hop(spec.id, rank, target.to);
        status.Update(links_[peer].closed);
        if (const auto came = early_.find(hop); came != early_.end()) {
          if (came->second.peer == peer) {
            early.emplace_back(group, came->second.frame);
          } else {
            status.Update(WrongFrame(came->second.peer,
                                     "the key of member %d, which lives on node %d", target.to,
                                     peer));
          }
          early_.erase(came);
        } else {
          awaited_[hop] = {.peer = peer, .connect = connect};
          ++connect->missing;
        }
      }
    }
    for (auto it = early_.begin(); it != early_.lower_bound(Hop(next_, 0, 0)); ++it) {
      if (!groups_.contains(it->second.frame.collective)) continue;
      unexpected.emplace_back(groups_.at(it->second.frame.collective), it->second);
    }
    // The others are of what was never created here: its job could not be loaded.
    early_.erase(early_.begin(), early_.lower_bound(Hop(next_, 0, 0)));
  }
  if (status.ok()) {
    for (const auto& [link, frame] : keys) link->Send(EncodedCollectiveFrame(frame).bytes());
  }
  for (const auto& [group, frame] : early) status.Update(TakeKey(*group, frame));
  for (const auto& [group, key] : unexpected) {
    status.Update(RefuseKey(*group, key.peer, key.frame));
  }
  Progress(connect, status);
}

void CollectiveHub::Progress(const std::shared_ptr<PendingConnect>& connect,
                             const absl::Status& status) {
  std::function<void(absl::Status)> done;
  {
    MutexLock lock(mutex_);
    if (--connect->missing > 0 && status.ok()) return;
    done = std::exchange(connect->done, nullptr);
  }
  if (done) done(status);
}

absl::Status CollectiveHub::HandleFrame(uint16_t peer, std::span<const std::byte> bytes) {
  const absl::StatusOr<CollectiveFrame> decoded = DecodeCollectiveFrame(bytes);
  if (!decoded.ok()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("from node %d: %s", peer, std::string(decoded.status().message())));
  }
  const CollectiveFrame& frame = *decoded;
  if (frame.type == CollectiveFrame::Type::kKey) return HandleKey(peer, frame);
  std::shared_ptr<LocalGroup> group;
  {
    MutexLock lock(mutex_);
    const auto found = groups_.find(frame.collective);
    if (found != groups_.end()) {
      group = found->second;
    } else if (IsOver(frame.collective)) {
      return absl::OkStatus();
    }
  }
  if (!group) {
    return WrongFrame(peer, "there is no collective %d on node %d", frame.collective, node_);
  }
  const CollectiveSpec& spec = group->spec();
  const size_t p = spec.members.size();
  if (frame.from >= p || frame.to >= p) {
    return WrongFrame(peer, "%s: from member %d to member %d, of %d", Name(spec), frame.from,
                      frame.to, p);
  }
  if (spec.members[frame.from].node != peer || !group->IsLocal(frame.to)) {
    return WrongFrame(
        peer, "%s: from member %d to member %d, which live on nodes %d and %d, arrived on node %d",
        Name(spec), frame.from, frame.to, spec.members[frame.from].node,
        spec.members[frame.to].node, node_);
  }
  if (IsOfStands(frame.type)) {
    return WrongFrame(peer, "%s: a frame of type %d, which is none of plans", Name(spec),
                      static_cast<int>(frame.type));
  }
  const auto member = group->Find(frame.to);
  if (!member) {
    if (group->HasJoined(frame.to)) return absl::OkStatus();  // it has left
    return WrongFrame(peer, "%s: member %d was not created here", Name(spec), frame.to);
  }
  if (frame.type == CollectiveFrame::Type::kAck || frame.type == CollectiveFrame::Type::kOffer) {
    return TakeAnswer(spec, *member, peer, frame);
  }
  for (const Landing& landing : member->landings) {
    if (landing.from != frame.from) continue;
    if (frame.slot >= landing.slots) {
      return WrongFrame(peer, "%s: member %d used slot %d of %d", Name(spec), frame.from,
                        frame.slot, landing.slots);
    }
    if (frame.bytes <= 0 || frame.bytes > landing.slot_bytes) {
      return WrongFrame(peer, "%s: member %d sent %d bytes, a slot has %d", Name(spec), frame.from,
                        frame.bytes, landing.slot_bytes);
    }
    member->inbox->Push(EventOf(frame, landing.memory + frame.slot * landing.slot_bytes));
    return absl::OkStatus();
  }
  return WrongFrame(peer, "%s: member %d receives nothing from member %d", Name(spec), frame.to,
                    frame.from);
}

absl::Status CollectiveHub::HandleKey(uint16_t peer, const CollectiveFrame& frame) {
  AwaitedKey awaited;
  std::shared_ptr<LocalGroup> group;
  bool is_awaited = false;
  {
    MutexLock lock(mutex_);
    if (IsOver(frame.collective)) return absl::OkStatus();
    const Hop hop(frame.collective, frame.to, frame.from);
    const auto found = awaited_.find(hop);
    is_awaited = found != awaited_.end();
    if (!is_awaited && frame.collective >= next_) {
      if (early_.size() >= kMaxEarlyKeys) {
        return WrongFrame(peer, "a key for collective %d, the %d-th for one that is not here",
                          frame.collective, early_.size() + 1);
      }
      if (!early_.try_emplace(hop, EarlyKey{.peer = peer, .frame = frame}).second) {
        return WrongFrame(peer, "collective %d: the key of member %d for member %d came twice",
                          frame.collective, frame.from, frame.to);
      }
      return absl::OkStatus();
    }
    if (is_awaited && found->second.peer != peer) {
      return WrongFrame(peer, "collective %d: the key of member %d, which lives on node %d",
                        frame.collective, frame.from, found->second.peer);
    }
    group = groups_.at(frame.collective);
    if (is_awaited) {
      awaited = std::move(found->second);
      awaited_.erase(found);
    }
  }
  if (!is_awaited) {
    RefuseKey(*group, peer, frame).IgnoreError();  // the members are told
    return absl::OkStatus();
  }
  const absl::Status status = TakeKey(*group, frame);
  Progress(awaited.connect, status);
  // Specs that differ are the users' error, not the link's.
  return absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;
}

absl::Status CollectiveHub::RefuseKey(LocalGroup& group, uint16_t peer,
                                      const CollectiveFrame& frame) const {
  const absl::Status status = absl::FailedPreconditionError(absl::StrFormat(
      "%s: member %d on node %d expects something from member %d, which by its spec on node %d "
      "sends it nothing (or nothing more); what one sends must be what the other receives",
      Name(group.spec()), frame.from, peer, frame.to, node_));
  group.Fail(status);
  return status;
}

absl::Status CollectiveHub::TakeKey(LocalGroup& group, const CollectiveFrame& frame) const {
  const CollectiveSpec& spec = group.spec();
  const uint16_t peer = spec.members[frame.from].node;
  absl::Status status;
  const auto member = group.Find(frame.to);
  if (!member) return status;  // it has left
  for (const LocalMember::Target& target : member->targets) {
    if (target.to != frame.from) continue;
    if (target.fingerprint != frame.fingerprint) {
      status = absl::FailedPreconditionError(absl::StrFormat(
          "%s: its spec on node %d (fingerprint %x) differs from that on node %d (%x): all members "
          "must be created with the same name, kind, members, counts, types and chunks",
          Name(spec), peer, frame.fingerprint, node_, target.fingerprint));
      break;
    }
    const uint64_t needed = target.slots * target.slot_bytes;
    if (frame.slot != target.slots || frame.bytes != target.slot_bytes ||
        frame.key.bytes < needed) {
      status = WrongFrame(
          peer, "%s: a key for %d slots of %d bytes, %d in all; must be %d of %d, %d in all",
          Name(spec), frame.slot, frame.bytes, frame.key.bytes, target.slots, target.slot_bytes,
          needed);
    }
  }
  if (!status.ok()) {
    group.Fail(status);
    return status;
  }
  member->inbox->Push(EventOf(frame));
  return status;
}

void CollectiveHub::LinkClosed(uint16_t peer, const absl::Status& status) {
  CHECK(!status.ok());
  std::vector<std::shared_ptr<LocalGroup>> groups;
  std::vector<std::shared_ptr<PendingConnect>> connects;
  {
    MutexLock lock(mutex_);
    if (const auto link = links_.find(peer); link != links_.end()) link->second.closed = status;
    for (const auto& [id, group] : groups_) groups.push_back(group);
    for (auto it = awaited_.begin(); it != awaited_.end();) {
      if (it->second.peer != peer) {
        ++it;
        continue;
      }
      connects.push_back(std::move(it->second.connect));
      it = awaited_.erase(it);
    }
  }
  for (const auto& group : groups) {
    if (Uses(*group, peer)) group->Fail(status);
  }
  for (const auto& connect : connects) Progress(connect, status);
}

void CollectiveHub::Abort(const absl::Status& status) {
  CHECK(!status.ok());
  std::vector<std::shared_ptr<LocalGroup>> groups;
  std::vector<std::shared_ptr<PendingConnect>> connects;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = status;
    for (const auto& [id, group] : groups_) groups.push_back(group);
    for (auto& [hop, awaited] : awaited_) connects.push_back(std::move(awaited.connect));
    awaited_.clear();
  }
  for (const auto& group : groups) group->Fail(status);
  for (const auto& connect : connects) Progress(connect, status);
}

}  // namespace braid
