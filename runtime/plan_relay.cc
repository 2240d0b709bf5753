#include "runtime/plan_relay.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Frames: channel, job, stage; then a key, or where a chunk lies and how long it is, or nothing.
enum Stage : uint8_t { kKey = 1, kChunk = 2, kTaken = 3 };
constexpr size_t kJobAt = 1;
constexpr size_t kStageAt = kJobAt + 8;
constexpr size_t kBodyAt = kStageAt + 1;
constexpr size_t kFrameBytes = kBodyAt + kMemoryKeyBytes;

// More than any compiler makes: a plan of 100,000 operators has 20 MiB.
constexpr uint64_t kMostPlanBytes = uint64_t{1} << 28;
constexpr size_t kMostEarlyKeys = size_t{1} << 16;

using Frame = std::array<std::byte, kFrameBytes>;

Frame MakeFrame(Stage stage, JobId job) {
  Frame frame{};
  frame[0] = static_cast<std::byte>(Channel::kPlan);
  frame[kStageAt] = static_cast<std::byte>(stage);
  PutLittleEndian<uint64_t>(frame, kJobAt, job);
  return frame;
}

}  // namespace

// The master's are the first nodes; then follow those of node 0, of node 1, and so on.
std::vector<uint16_t> PlanChildren(int node, PlanTree tree) {
  std::vector<uint16_t> children;
  const int64_t first = (int64_t{node} + 1) * tree.fan_out;
  const int64_t end = std::min<int64_t>(first + tree.fan_out, tree.num_nodes);
  for (int64_t child = first; child < end; ++child) {
    children.push_back(static_cast<uint16_t>(child));
  }
  return children;
}

int PlanParent(int node, PlanTree tree) {
  return node < tree.fan_out ? kNoNode : node / tree.fan_out - 1;
}

void PlanRelay::SetPeers(Peers* peers) {
  peers_ = peers;
  peers_->SetReceiver(Channel::kPlan, [this](uint16_t peer, std::span<const std::byte> frame) {
    return OnFrame(peer, frame);
  });
}

absl::Status PlanRelay::Begin(Request request) {
  if (passages_.contains(request.job) || request.bytes > kMostPlanBytes ||
      request.first.size() > request.bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "node %d: the plan of job %d comes in %d bytes, of which %d came first; it comes once, in "
        "at most %d bytes",
        options_.node, request.job, request.bytes, request.first.size(), kMostPlanBytes));
  }
  if (request.parent == options_.node ||
      std::count(request.children.begin(), request.children.end(), options_.node) > 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "node %d would send the plan of job %d to itself", options_.node, request.job));
  }
  Passage& passage = passages_[request.job];
  const uint64_t received = request.first.size();
  passage.plan = std::make_shared<std::string>(std::move(request.first));
  passage.plan->resize(request.bytes);
  passage.parent = request.parent;
  for (uint16_t node : request.children) {
    Child& child = passage.children.emplace_back();
    child.node = node;
    if (const auto early = early_keys_.extract({request.job, node}); !early.empty()) {
      child.key = early.mapped();
    }
  }
  const JobId job = request.job;
  // A peer that is not reached ends the session: whoever owns the peers hears of it.
  for (uint16_t node : request.children) {
    peers_->Connect(node, [this, job, node](const absl::Status& status) {
      const auto found = passages_.find(job);
      if (!status.ok() || found == passages_.end()) return;
      for (Child& child : found->second.children) child.is_linked |= child.node == node;
      Advance(job);
    });
  }
  if (request.parent.has_value()) {
    peers_->Connect(*request.parent,
                    [this, job, parent = *request.parent](const absl::Status& status) {
                      if (status.ok()) ExposeTo(parent, job);
                    });
  }
  return Receive(job, 0, received);
}

void PlanRelay::ExposeTo(uint16_t parent, JobId job) {
  const auto found = passages_.find(job);
  if (found == passages_.end()) return;  // it had nothing to come
  Passage& passage = found->second;
  Link& link = *peers_->LinkTo(parent);
  const absl::StatusOr<MemoryKey> key =
      link.Expose(std::as_writable_bytes(std::span(*passage.plan)));
  if (!key.ok()) return link.Close(key.status());
  passage.key = *key;
  Frame frame = MakeFrame(kKey, job);
  PutMemoryKey(frame, kBodyAt, *key);
  link.Send(frame);
}

absl::Status PlanRelay::OnChunk(JobId job, uint64_t offset, std::string_view bytes) {
  const auto found = passages_.find(job);
  if (found == passages_.end() || found->second.parent.has_value() ||
      offset != found->second.received || bytes.size() > found->second.plan->size() - offset) {
    return absl::InvalidArgumentError(
        absl::StrFormat("node %d: %d bytes at byte %d of the plan of job %d were not expected",
                        options_.node, bytes.size(), offset, job));
  }
  std::memcpy(found->second.plan->data() + offset, bytes.data(), bytes.size());
  options_.on_taken(job);
  return Receive(job, offset, bytes.size());
}

void PlanRelay::Drop(JobId job) {
  if (const auto found = passages_.find(job); found != passages_.end()) {
    found->second.is_dropped = true;
  }
}

absl::Status PlanRelay::OnFrame(uint16_t peer, std::span<const std::byte> frame) {
  if (frame.size() != kFrameBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a frame of a plan has %d bytes; %d were expected", frame.size(), kFrameBytes));
  }
  const auto job = GetLittleEndian<uint64_t>(frame, kJobAt);
  const auto stage = static_cast<uint8_t>(frame[kStageAt]);
  if (stage == kKey) return OnKey(peer, job, GetMemoryKey(frame, kBodyAt));
  const auto found = passages_.find(job);
  const absl::Status refusal = absl::InvalidArgumentError(absl::StrFormat(
      "node %d: a frame of stage %d for the plan of job %d was not expected from node %d",
      options_.node, stage, job, peer));
  if (found == passages_.end()) return refusal;
  if (stage == kChunk && found->second.parent == peer) {
    const auto offset = GetLittleEndian<uint64_t>(frame, kBodyAt);
    const auto bytes = GetLittleEndian<uint64_t>(frame, kBodyAt + 8);
    if (offset != found->second.received || bytes > found->second.plan->size() - offset) {
      return refusal;
    }
    peers_->LinkTo(peer)->Send(MakeFrame(kTaken, job));
    return Receive(job, offset, bytes);
  }
  for (Child& child : found->second.children) {
    if (stage != kTaken || child.node != peer || child.unacknowledged == 0) continue;
    --child.unacknowledged;
    Advance(job);
    return absl::OkStatus();
  }
  return refusal;
}

absl::Status PlanRelay::OnKey(uint16_t peer, JobId job, const MemoryKey& key) {
  const auto found = passages_.find(job);
  if (found == passages_.end()) {
    if (early_keys_.size() >= kMostEarlyKeys) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%d keys came for plans that this node does not know yet", early_keys_.size()));
    }
    early_keys_[{job, peer}] = key;
    return absl::OkStatus();
  }
  for (Child& child : found->second.children) {
    if (child.node != peer || child.key.has_value()) continue;
    child.key = key;
    Advance(job);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("node %d does not get the plan of job %d from node %d, or got it already",
                      peer, job, options_.node));
}

absl::Status PlanRelay::Receive(JobId job, uint64_t offset, uint64_t bytes) {
  Passage& passage = passages_.at(job);
  passage.received = offset + bytes;
  const bool is_whole = passage.received == passage.plan->size();
  if (is_whole && passage.key.has_value()) {
    peers_->LinkTo(*passage.parent)->Withdraw(*std::exchange(passage.key, std::nullopt));
  }
  const std::shared_ptr<const std::string> plan = passage.plan;
  const bool is_wanted = is_whole && !passage.is_dropped;
  Advance(job);
  if (is_wanted) options_.on_plan(job, plan);
  return absl::OkStatus();
}

void PlanRelay::Advance(JobId job) {
  Passage& passage = passages_.at(job);
  bool is_over = passage.received == passage.plan->size();
  for (Child& child : passage.children) {
    if (child.is_linked && child.key.has_value()) SendTo(passage, job, child);
    is_over &= child.sent == passage.plan->size() && child.unacknowledged == 0;
  }
  if (is_over) passages_.erase(job);
}

void PlanRelay::SendTo(const Passage& passage, JobId job, Child& child) {
  Link& link = *peers_->LinkTo(child.node);
  while (child.sent < passage.received && child.unacknowledged < kMostUnacknowledgedChunks) {
    const uint64_t bytes = std::min<uint64_t>(kPlanChunkBytes, passage.received - child.sent);
    Frame frame = MakeFrame(kChunk, job);
    PutLittleEndian<uint64_t>(frame, kBodyAt, child.sent);
    PutLittleEndian<uint64_t>(frame, kBodyAt + 8, bytes);
    // The plan stays until it has been sent. What breaks on the way breaks the link.
    [[maybe_unused]] const bool is_sent =
        link.Write(std::as_bytes(std::span(*passage.plan)).subspan(child.sent, bytes), *child.key,
                   child.sent, frame, [plan = passage.plan](const absl::Status&) {});
    child.sent += bytes;
    ++child.unacknowledged;
  }
}

}  // namespace braid
