// Calls of process groups that move objects: anything that has an ObjectFormat (object_format.h),
// of other sizes on other ranks.
//
//   std::map<std::string, int64_t> vocabulary = ...;                       // rank 0's
//   BRAID_RETURN_IF_ERROR(dist::BroadcastObject(*world, vocabulary, 0));   // now everybody's
//   BRAID_ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
//                          dist::AllGatherObject(*world, host));
//
// Each is two calls of the group (sizes, then bytes), and its type is part of them: a rank that
// passes another one is a mismatch as in other calls, an error on all ranks that names both types
// and lines.
//
// Errors: INVALID_ARGUMENT on all ranks, which may go on with other calls, if an object takes more
// than ObjectOptions::max_bytes or cannot be written (which of its sender's own error says why), or
// if a rank that sends one to each has another number of them. INVALID_ARGUMENT on this rank, and
// the call is not made, for a root that there is not. DATA_LOSS where an object cannot be read. All
// else as of Group's calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/dist.h"
#include "api/object_format.h"
#include "graph/source_location.h"
#include "runtime/base/status.h"

namespace braid::dist {

// Name and limit are the same on all ranks.
struct ObjectOptions {
  std::string name = {};                          // in messages
  absl::Duration timeout = absl::ZeroDuration();  // as CallOptions', for either of the two calls
  // Of one object as bytes, up to 1 TiB. What a rank sends and receives lies in its memory as bytes
  // and as objects while the call lasts.
  int64_t max_bytes = int64_t{1} << 30;
};

// Objects as bytes, one behind the other.
struct EncodedObjects {
  std::string bytes;
  std::vector<int64_t> sizes;
};

// One of the calls below, on bytes. `own` is what this rank sends, or why it cannot.
struct ObjectCall {
  using Objects = absl::StatusOr<EncodedObjects>;

  Group& group;
  std::string_view kind;
  std::string type;
  const ObjectOptions& options;
  SourceLocation where;

  Objects Broadcast(Objects own, int root) const;
  Objects Scatter(Objects own, int root) const;
  Objects AllGather(Objects own) const;
  Objects Gather(Objects own, int root) const;
  Objects AllToAll(Objects own) const;

  // "broadcast_object of string (train.cc:12): WHAT".
  absl::Status Error(const absl::Status& what) const;
  absl::Status Unreadable(int rank, const absl::Status& what) const;
  // Unless there is an object for each rank.
  absl::Status CheckOneForEach(size_t objects) const;

 private:
  absl::Status CheckOptions() const;
  absl::Status CheckRoot(int root) const;
  CallOptions Options() const;
  // What this rank says of the sizes of its objects.
  std::vector<int64_t> Announced(const Objects& own, int count) const;
  // What rank `rank` has said.
  absl::Status CheckAnnounced(int rank, const std::vector<int64_t>& sizes,
                              const Objects& own) const;
  absl::StatusOr<std::vector<int64_t>> GatherSizes(const Objects& own,
                                                   const CallOptions& call) const;
};

template <typename T, typename Objects>
ObjectCall::Objects EncodeObjects(const Objects& objects) {
  ObjectWriter writer;
  EncodedObjects encoded;
  for (const T& object : objects) {
    const size_t before = writer.bytes().size();
    BRAID_RETURN_IF_ERROR(EncodeObject(object, writer));
    encoded.sizes.push_back(static_cast<int64_t>(writer.bytes().size() - before));
  }
  encoded.bytes = std::move(writer.bytes());
  return encoded;
}

// One for each rank.
template <typename T>
ObjectCall::Objects EncodeForEach(const ObjectCall& call, const std::vector<T>& objects) {
  BRAID_RETURN_IF_ERROR(call.CheckOneForEach(objects.size()));
  return EncodeObjects<T>(objects);
}

template <typename T>
absl::StatusOr<T> DecodeFrom(const ObjectCall& call, int rank, std::string_view bytes) {
  absl::StatusOr<T> object = DecodeObject<T>(bytes);
  if (!object.ok()) return call.Unreadable(rank, object.status());
  return object;
}

// In the order of ranks.
template <typename T>
absl::StatusOr<std::vector<T>> DecodeFromEach(const ObjectCall& call,
                                              const EncodedObjects& encoded) {
  std::vector<T> objects;
  objects.reserve(encoded.sizes.size());
  std::string_view bytes = encoded.bytes;
  for (const int64_t size : encoded.sizes) {
    const int rank = static_cast<int>(objects.size());
    BRAID_ASSIGN_OR_RETURN(T object, DecodeFrom<T>(call, rank, bytes.substr(0, size)));
    objects.push_back(std::move(object));
    bytes.remove_prefix(size);
  }
  return objects;
}

// Every rank gets the root's object.
template <typename T>
absl::Status BroadcastObject(Group& group, T& object, int root, const ObjectOptions& options = {},
                             SourceLocation where = Here()) {
  static_assert(!std::is_const_v<T>, "the object is replaced on all ranks but the root");
  const ObjectCall call = {group, "broadcast_object", ObjectFormat<T>::Name(), options, where};
  const bool is_root = group.rank() == root;
  BRAID_ASSIGN_OR_RETURN(
      const EncodedObjects encoded,
      call.Broadcast(is_root ? EncodeObjects<T>(std::span(&object, 1)) : EncodedObjects(), root));
  if (is_root) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(object, DecodeFrom<T>(call, root, encoded.bytes));
  return absl::OkStatus();
}

// The objects of all ranks in their order.
template <typename T>
absl::StatusOr<std::vector<T>> AllGatherObject(Group& group, const T& object,
                                               const ObjectOptions& options = {},
                                               SourceLocation where = Here()) {
  const ObjectCall call = {group, "all_gather_object", ObjectFormat<T>::Name(), options, where};
  BRAID_ASSIGN_OR_RETURN(const EncodedObjects encoded,
                         call.AllGather(EncodeObjects<T>(std::span(&object, 1))));
  return DecodeFromEach<T>(call, encoded);
}

// The same, but only at the root; elsewhere it is empty.
template <typename T>
absl::StatusOr<std::vector<T>> GatherObject(Group& group, const T& object, int root,
                                            const ObjectOptions& options = {},
                                            SourceLocation where = Here()) {
  const ObjectCall call = {group, "gather_object", ObjectFormat<T>::Name(), options, where};
  BRAID_ASSIGN_OR_RETURN(const EncodedObjects encoded,
                         call.Gather(EncodeObjects<T>(std::span(&object, 1)), root));
  return DecodeFromEach<T>(call, encoded);
}

// The own one of the root's objects, of which it has one for each rank; elsewhere `objects` may be
// empty.
template <typename T>
absl::StatusOr<T> ScatterObjects(Group& group, const std::vector<T>& objects, int root,
                                 const ObjectOptions& options = {}, SourceLocation where = Here()) {
  const ObjectCall call = {group, "scatter_objects", ObjectFormat<T>::Name(), options, where};
  BRAID_ASSIGN_OR_RETURN(
      const EncodedObjects encoded,
      call.Scatter(group.rank() == root ? EncodeForEach(call, objects) : EncodedObjects(), root));
  return DecodeFrom<T>(call, root, encoded.bytes);
}

// One to each rank, one from each, in their order.
template <typename T>
absl::StatusOr<std::vector<T>> AllToAllObjects(Group& group, const std::vector<T>& objects,
                                               const ObjectOptions& options = {},
                                               SourceLocation where = Here()) {
  const ObjectCall call = {group, "all_to_all_objects", ObjectFormat<T>::Name(), options, where};
  BRAID_ASSIGN_OR_RETURN(const EncodedObjects encoded, call.AllToAll(EncodeForEach(call, objects)));
  return DecodeFromEach<T>(call, encoded);
}

}  // namespace braid::dist
