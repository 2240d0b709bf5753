#include "comm/collective/local_group.h"

#include <utility>

#include "glog/logging.h"

namespace braid {

MemberEvent EventOf(const CollectiveFrame& frame, const std::byte* data) {
  MemberEvent event{.peer = frame.from,
                    .slot = frame.slot,
                    .piece = frame.piece,
                    .index = frame.index,
                    .data = data,
                    .bytes = frame.bytes,
                    .signature = frame.fingerprint,
                    .key = frame.key,
                    .token = frame.token,
                    .reads_lent = frame.reads_lent};
  switch (frame.type) {
    case CollectiveFrame::Type::kKey:
      event.type = MemberEvent::Type::kKey;
      break;
    case CollectiveFrame::Type::kChunk:
    case CollectiveFrame::Type::kLent:
      event.type = MemberEvent::Type::kChunk;
      break;
    case CollectiveFrame::Type::kAck:
      event.type = MemberEvent::Type::kAck;
      break;
    case CollectiveFrame::Type::kOffer:
      event.type = MemberEvent::Type::kOffer;
      break;
    case CollectiveFrame::Type::kStand:
    case CollectiveFrame::Type::kSeen:
    case CollectiveFrame::Type::kRing:
      LOG(FATAL) << "frames of stands are no events of a ChunkMachine";
  }
  return event;
}

LocalGroup::LocalGroup(CollectiveSpec spec, uint16_t node)
    : spec_(std::move(spec)),
      node_(node),
      has_arrived_(spec_.members.size(), false),
      stations_(spec_.members.size()) {
  for (const Member& member : spec_.members) num_local_ += member.node == node ? 1 : 0;
}

void LocalGroup::Join(int rank, LocalMember member) {
  MutexLock lock(mutex_);
  const bool is_new =
      members_.try_emplace(rank, std::make_shared<const LocalMember>(std::move(member))).second;
  CHECK(is_new) << "member " << rank << " joined collective " << spec_.id << " twice";
}

void LocalGroup::Leave(int rank) {
  MutexLock lock(mutex_);
  members_[rank] = nullptr;
}

std::shared_ptr<const LocalMember> LocalGroup::Find(int rank) const {
  MutexLock lock(mutex_);
  const auto found = members_.find(rank);
  return found == members_.end() ? nullptr : found->second;
}

bool LocalGroup::HasJoined(int rank) const {
  MutexLock lock(mutex_);
  return members_.contains(rank);
}

bool LocalGroup::is_deserted() const {
  MutexLock lock(mutex_);
  if (static_cast<int>(members_.size()) < num_local_) return false;
  for (const auto& [rank, member] : members_) {
    if (member) return false;
  }
  return true;
}

void LocalGroup::Push(int rank, MemberEvent event) const {
  if (const auto member = Find(rank)) member->inbox->Push(std::move(event));
}

bool LocalGroup::BeginRead() {
  MutexLock lock(mutex_);
  if (!status_.ok()) return false;
  ++reading_;
  return true;
}

void LocalGroup::EndRead() {
  {
    MutexLock lock(mutex_);
    if (--reading_ > 0 || status_.ok()) return;
  }
  NotifyFailed();
}

void LocalGroup::Fail(const absl::Status& status) {
  CHECK(!status.ok());
  {
    MutexLock lock(mutex_);
    if (!status_.ok()) return;
    status_ = status;
    if (reading_ > 0) return;
  }
  NotifyFailed();
}

absl::Status LocalGroup::status() const {
  MutexLock lock(mutex_);
  return status_;
}

bool LocalGroup::Arrive(int rank) {
  MutexLock lock(mutex_);
  has_arrived_[rank] = true;
  if (++arrived_ < num_local_) return false;
  arrived_ = 0;
  has_arrived_.assign(has_arrived_.size(), false);
  return true;
}

std::vector<int> LocalGroup::Missing() const {
  MutexLock lock(mutex_);
  std::vector<int> missing;
  for (size_t rank = 0; rank < has_arrived_.size(); ++rank) {
    if (IsLocal(static_cast<int>(rank)) && !has_arrived_[rank]) {
      missing.push_back(static_cast<int>(rank));
    }
  }
  return missing;
}

void LocalGroup::Meet(int rank, bool is_done) const {
  for (int other = 0; other < static_cast<int>(spec_.members.size()); ++other) {
    if (other != rank)
      Push(other, {.type = MemberEvent::Type::kMet, .peer = rank, .index = is_done});
  }
}

void LocalGroup::NotifyFailed() const {
  for (int rank = 0; rank < static_cast<int>(spec_.members.size()); ++rank) {
    Push(rank, {.type = MemberEvent::Type::kFailed});
  }
}

}  // namespace braid
