#include "tests/support/lagging_group.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/device/box.h"

namespace braid {
namespace {

using Parts = std::vector<std::shared_ptr<LaggingPart>>;

// Elements before block `r`.
int64_t Before(const std::vector<int64_t>& counts, size_t r) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<int64_t>(r), int64_t{0});
}

// The inputs' elements from `first` on, reduced in rank order.
std::vector<std::byte> Reduce(const Parts& parts, int64_t first, int64_t n) {
  const DeviceCollectiveSpec& spec = *parts[0]->spec;
  const auto size = static_cast<int64_t>(SizeOf(spec.dtype));
  const CombineFn combine = CombineFunction(spec.dtype, spec.reduction);
  std::vector<std::byte> sum(parts[0]->input + first * size, parts[0]->input + (first + n) * size);
  for (size_t r = 1; r < parts.size(); ++r) {
    combine(sum.data(), sum.data(), parts[r]->input + first * size, n);
  }
  return sum;
}

std::vector<std::byte> Gather(const Parts& parts) {
  std::vector<std::byte> whole;
  for (size_t r = 0; r < parts.size(); ++r) {
    const int64_t bytes =
        parts[r]->spec->counts[r] * static_cast<int64_t>(SizeOf(parts[r]->spec->dtype));
    whole.insert(whole.end(), parts[r]->input, parts[r]->input + bytes);
  }
  return whole;
}

void Put(const std::vector<std::byte>& bytes, const LaggingPart& part) {
  std::copy(bytes.begin(), bytes.end(), part.output);
}

void CarryOut(const Parts& parts) {
  const DeviceCollectiveSpec& spec = *parts[0]->spec;
  const auto size = static_cast<int64_t>(SizeOf(spec.dtype));
  switch (spec.kind) {
    case CollectiveKind::kAllReduce: {
      const std::vector<std::byte> sum = Reduce(parts, 0, spec.counts[0]);
      for (const auto& part : parts) Put(sum, *part);
      return;
    }
    case CollectiveKind::kAllGather: {
      const std::vector<std::byte> whole = Gather(parts);
      for (const auto& part : parts) Put(whole, *part);
      return;
    }
    case CollectiveKind::kReduceScatter: {
      std::vector<std::vector<std::byte>> blocks;  // an output may lie in an input
      for (size_t r = 0; r < parts.size(); ++r) {
        blocks.push_back(Reduce(parts, Before(spec.counts, r), spec.counts[r]));
      }
      for (size_t r = 0; r < parts.size(); ++r) Put(blocks[r], *parts[r]);
      return;
    }
    case CollectiveKind::kAllToAll:
      for (size_t to = 0; to < parts.size(); ++to) {
        for (size_t from = 0; from < parts.size(); ++from) {
          const std::vector<int64_t>& sent = parts[from]->spec->counts;
          const std::byte* block = parts[from]->input + Before(sent, to) * size;
          std::copy(block, block + sent[to] * size,
                    parts[to]->output + Before(parts[to]->spec->receives, from) * size);
        }
      }
      return;
    case CollectiveKind::kBroadcast: {
      const std::byte* root = parts[spec.root]->input;
      const std::vector<std::byte> whole(root, root + spec.counts[0] * size);
      for (const auto& part : parts) Put(whole, *part);
      return;
    }
  }
}

}  // namespace

LaggingMeeting::State LaggingMeeting::StateOf(const LaggingPart& part) const {
  MutexLock lock(mutex_);
  return part.is_done ? State::kDone : part.has_come ? State::kWaits : State::kToCome;
}

void LaggingMeeting::Come(const std::shared_ptr<LaggingPart>& part, const absl::Status& status) {
  std::vector<int> places;
  {
    MutexLock lock(mutex_);
    part->has_come = true;
    part->status = status;
    places = ComeLocked(part);
  }
  for (const int place : places) options_.wake(place);
}

std::vector<int> LaggingMeeting::ComeLocked(const std::shared_ptr<LaggingPart>& part) {
  const auto key = std::make_pair(part->places, part->spec->id);
  if (absl::Status swap = FindSwap(*part); !swap.ok()) swapped_[key] = std::move(swap);
  CHECK(waiting_.emplace(part->place(), part).second);
  if (HasLeft(*part)) return Finish({part}, absl::AbortedError("the device has left the others"));
  const Parts parts = WaitingIn(*part);
  if (const auto swapped = swapped_.find(key); swapped != swapped_.end()) {
    return Finish(parts, swapped->second);
  }
  if (parts.size() < part->places.size()) return {};
  absl::Status first;
  for (const auto& other : parts) first.Update(other->status);
  // All members wait here: nobody else touches what they have.
  if (first.ok()) options_.with_memory(part->places, [&parts] { CarryOut(parts); });
  return Finish(parts, first);
}

void LaggingMeeting::Leave(int place) {
  std::vector<int> places;
  {
    MutexLock lock(mutex_);
    left_.insert(place);
    const auto found = waiting_.find(place);
    if (found == waiting_.end() || !HasLeft(*found->second)) return;
    const std::shared_ptr<LaggingPart> part = found->second;
    places = Finish({part}, absl::AbortedError("the device has left the others"));
  }
  for (const int waits_at : places) options_.wake(waits_at);
}

LaggingMeeting::Parts LaggingMeeting::WaitingIn(const LaggingPart& part) const {
  Parts parts;
  for (const int place : part.places) {
    const auto found = waiting_.find(place);
    if (found != waiting_.end() && found->second->IsOfSame(part)) parts.push_back(found->second);
  }
  return parts;
}

bool LaggingMeeting::HasLeft(const LaggingPart& part) const {
  return part.spans_nodes() && left_.contains(part.place());
}

// Whether a member waits in another collective that it does with this one's device.
absl::Status LaggingMeeting::FindSwap(const LaggingPart& part) const {
  for (const int place : part.places) {
    const auto found = waiting_.find(place);
    if (found == waiting_.end() || found->second->IsOfSame(part)) continue;
    const std::vector<int>& others = found->second->places;
    if (std::find(others.begin(), others.end(), part.place()) == others.end()) continue;
    return absl::InternalError(absl::StrFormat(
        "device %d has come to collective %d while device %d waits for it in collective %d: their "
        "orders differ",
        part.place(), part.spec->id, place, found->second->spec->id));
  }
  return absl::OkStatus();
}

std::vector<int> LaggingMeeting::Finish(const Parts& parts, const absl::Status& status) {
  std::vector<int> places;
  for (const auto& part : parts) {
    part->is_done = true;
    part->status = status;
    waiting_.erase(part->place());
    places.push_back(part->place());
  }
  return places;
}

}  // namespace braid
