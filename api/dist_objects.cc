#include "api/dist_objects.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_format.h"

namespace braid::dist {
namespace {

// Instead of a size: the rank has nothing to send.
constexpr int64_t kRefused = -1;
constexpr int64_t kMostObjectBytes = int64_t{1} << 40;

std::span<uint8_t> BytesOf(std::string& text) {
  return {reinterpret_cast<uint8_t*>(text.data()), text.size()};
}

EncodedObjects Room(std::vector<int64_t> sizes) {
  const int64_t bytes = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  return {std::string(static_cast<size_t>(bytes), '\0'), std::move(sizes)};
}

}  // namespace

absl::Status ObjectCall::Error(const absl::Status& what) const {
  return absl::Status(what.code(), absl::StrFormat("%s of %s (%s): %s", kind, type,
                                                   where.ToString(), what.message()));
}

absl::Status ObjectCall::Unreadable(int rank, const absl::Status& what) const {
  return Error(absl::Status(what.code(), absl::StrFormat("the object of rank %d cannot be read: %s",
                                                         rank, what.message())));
}

absl::Status ObjectCall::CheckOneForEach(size_t objects) const {
  if (static_cast<int>(objects) == group.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("rank %d has %d objects; one for each of %d ranks was expected", group.rank(),
                      objects, group.size()));
}

absl::Status ObjectCall::CheckOptions() const {
  if (options.max_bytes >= 1 && options.max_bytes <= kMostObjectBytes) return absl::OkStatus();
  return Error(absl::InvalidArgumentError(absl::StrFormat(
      "max_bytes is %d; it must be from 1 to %d", options.max_bytes, kMostObjectBytes)));
}

absl::Status ObjectCall::CheckRoot(int root) const {
  if (root >= 0 && root < group.size()) return absl::OkStatus();
  return Error(absl::InvalidArgumentError(
      absl::StrFormat("root is %d, and the group has ranks 0 to %d", root, group.size() - 1)));
}

// What must be the same on all ranks and the group's call has no field for goes by its name.
CallOptions ObjectCall::Options() const {
  CallOptions call = {.name = absl::StrFormat("%s of %s", kind, type), .timeout = options.timeout};
  if (options.max_bytes != ObjectOptions().max_bytes) {
    call.name += absl::StrFormat(", at most %d bytes", options.max_bytes);
  }
  if (!options.name.empty()) call.name += absl::StrFormat(", %s", options.name);
  return call;
}

// All ranks must be told of what keeps this one from sending, whichever objects they get.
std::vector<int64_t> ObjectCall::Announced(const Objects& own, int count) const {
  if (!own.ok()) return std::vector<int64_t>(count, kRefused);
  if (own->sizes.empty()) return std::vector<int64_t>(count, 0);
  const int64_t largest = std::ranges::max(own->sizes);
  return largest > options.max_bytes ? std::vector<int64_t>(count, largest) : own->sizes;
}

absl::Status ObjectCall::CheckAnnounced(int rank, const std::vector<int64_t>& sizes,
                                        const Objects& own) const {
  if (rank == group.rank() && !own.ok()) return Error(own.status());
  for (const int64_t size : sizes) {
    if (size < 0) {
      return Error(absl::InvalidArgumentError(
          absl::StrFormat("rank %d cannot send; its own error says why", rank)));
    }
    if (size > options.max_bytes) {
      return Error(absl::InvalidArgumentError(absl::StrFormat(
          "an object of rank %d takes %d bytes, and at most %d are allowed; say a larger "
          "ObjectOptions::max_bytes on all ranks",
          rank, size, options.max_bytes)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> ObjectCall::GatherSizes(const Objects& own,
                                                             const CallOptions& call) const {
  std::vector<int64_t> sizes(group.size());
  BRAID_RETURN_IF_ERROR(group.AllGather(Announced(own, 1), sizes, {}, call, where));
  for (int rank = 0; rank < group.size(); ++rank) {
    BRAID_RETURN_IF_ERROR(CheckAnnounced(rank, {sizes[rank]}, own));
  }
  return sizes;
}

ObjectCall::Objects ObjectCall::Broadcast(Objects own, int root) const {
  BRAID_RETURN_IF_ERROR(CheckOptions());
  BRAID_RETURN_IF_ERROR(CheckRoot(root));
  const CallOptions call = Options();
  std::vector<int64_t> sizes = Announced(own, 1);
  BRAID_RETURN_IF_ERROR(group.Broadcast(sizes, root, call, where));
  BRAID_RETURN_IF_ERROR(CheckAnnounced(root, sizes, own));
  if (group.rank() != root) own = Room(std::move(sizes));
  BRAID_RETURN_IF_ERROR(group.Broadcast(BytesOf(own->bytes), root, call, where));
  return own;
}

ObjectCall::Objects ObjectCall::Scatter(Objects own, int root) const {
  BRAID_RETURN_IF_ERROR(CheckOptions());
  BRAID_RETURN_IF_ERROR(CheckRoot(root));
  const CallOptions call = Options();
  std::vector<int64_t> sizes = Announced(own, group.size());
  BRAID_RETURN_IF_ERROR(group.Broadcast(sizes, root, call, where));
  BRAID_RETURN_IF_ERROR(CheckAnnounced(root, sizes, own));
  EncodedObjects received = Room({sizes[group.rank()]});
  BRAID_RETURN_IF_ERROR(
      group.Scatter(BytesOf(own->bytes), BytesOf(received.bytes), root, sizes, call, where));
  return received;
}

ObjectCall::Objects ObjectCall::AllGather(Objects own) const {
  BRAID_RETURN_IF_ERROR(CheckOptions());
  const CallOptions call = Options();
  BRAID_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, GatherSizes(own, call));
  EncodedObjects received = Room(std::move(sizes));
  BRAID_RETURN_IF_ERROR(
      group.AllGather(BytesOf(own->bytes), BytesOf(received.bytes), received.sizes, call, where));
  return received;
}

// All ranks hear all sizes, so that they agree on errors.
ObjectCall::Objects ObjectCall::Gather(Objects own, int root) const {
  BRAID_RETURN_IF_ERROR(CheckOptions());
  BRAID_RETURN_IF_ERROR(CheckRoot(root));
  CallOptions call = Options();
  call.name += absl::StrFormat(", root %d", root);
  BRAID_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, GatherSizes(own, call));
  EncodedObjects received = group.rank() == root ? Room(std::move(sizes)) : EncodedObjects();
  BRAID_RETURN_IF_ERROR(group.Gather(BytesOf(own->bytes), BytesOf(received.bytes), root,
                                     received.sizes, call, where));
  return received;
}

ObjectCall::Objects ObjectCall::AllToAll(Objects own) const {
  BRAID_RETURN_IF_ERROR(CheckOptions());
  const CallOptions call = Options();
  const std::vector<int64_t> sends = Announced(own, group.size());
  std::vector<int64_t> receives(group.size());
  BRAID_RETURN_IF_ERROR(group.AllToAll(sends, receives, {}, {}, call, where));
  // An own size that is too large is told as the others are.
  for (int rank = 0; rank < group.size(); ++rank) {
    BRAID_RETURN_IF_ERROR(CheckAnnounced(rank, {receives[rank]}, own));
  }
  EncodedObjects received = Room(std::move(receives));
  BRAID_RETURN_IF_ERROR(group.AllToAll(BytesOf(own->bytes), BytesOf(received.bytes), own->sizes,
                                       received.sizes, call, where));
  return received;
}

}  // namespace braid::dist
