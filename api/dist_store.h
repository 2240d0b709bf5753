// What the ranks of a world know by name: each sets keys that the others read and wait for. For
// what is found out while a program runs, an address or who is the first; data of any size is what
// a group's calls are for.
//
//   if (world->rank() == 0) BRAID_RETURN_IF_ERROR(world->store().Set("address", address));
//   BRAID_ASSIGN_OR_RETURN(address, world->store().Get("address"));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "graph/source_location.h"

namespace braid {

class Membership;

namespace dist {

// Keys and values are any bytes: a key 1 to 65,536 of them, a value up to 16 MiB. They are at rank
// 0, in its memory, until they are deleted or the world ends; all calls of all ranks are worked off
// there one after the other. Any number of threads of a process may make calls at once.
//
// Errors are this call's alone, and the world goes on: INVALID_ARGUMENT for a key or value of
// another size, and those that are said below. When the world fails, every call that waits and
// each later one returns its cause; when it has closed, CANCELLED.
class Store {
 public:
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  absl::Status Set(std::string_view key, std::string_view value, SourceLocation where = Here());

  // Waits until the key is there. DEADLINE_EXCEEDED names it if it does not come in time; zero: the
  // world's timeout; INVALID_ARGUMENT for less.
  absl::StatusOr<std::string> Get(std::string_view key,
                                  absl::Duration timeout = absl::ZeroDuration(),
                                  SourceLocation where = Here());

  // Waits until each of the keys is there, or was since the call began. The timeout is as Get's;
  // the error names those that are missing. The keys have at most 16 MiB together.
  absl::Status Wait(const std::vector<std::string>& keys,
                    absl::Duration timeout = absl::ZeroDuration(), SourceLocation where = Here());

  // Returns the sum. The value is a decimal number as text; a key that is not there counts from 0.
  // FAILED_PRECONDITION if it holds anything else, OUT_OF_RANGE if the sum does not fit into 64
  // bits: then it stays as it is.
  absl::StatusOr<int64_t> Add(std::string_view key, int64_t amount, SourceLocation where = Here());

  // Sets the key if it holds `expected`, or if it is not there and `expected` is empty. Returns
  // what it holds afterwards: `desired`, if it was set. NOT_FOUND if it is not there and something
  // was expected.
  absl::StatusOr<std::string> CompareSet(std::string_view key, std::string_view expected,
                                         std::string_view desired, SourceLocation where = Here());

  // Whether it was there.
  absl::StatusOr<bool> Delete(std::string_view key, SourceLocation where = Here());

  absl::StatusOr<int64_t> NumKeys(SourceLocation where = Here());

 private:
  friend class World;
  class Impl;
  // `timeout`: of calls that say none.
  Store(std::shared_ptr<Membership> membership, absl::Duration timeout);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace dist
}  // namespace braid
