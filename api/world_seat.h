// What a session has of a world of processes that each run the program: they agree on every call
// before it is made, rank 0's coordinator carries it out, and each has a node of its own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/dist.h"
#include "api/dist_objects.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"

namespace braid {

class Coordinator;
class Environment;
class Event;
class KernelRegistry;
class Node;

// Made and used by one thread of each rank, in the same order on all of them.
class WorldSeat {
 public:
  // FAILED_PRECONDITION if it was taken before.
  static absl::StatusOr<std::unique_ptr<WorldSeat>> Take(dist::World& world);
  ~WorldSeat();
  WorldSeat(const WorldSeat&) = delete;
  WorldSeat& operator=(const WorldSeat&) = delete;

  int rank() const;
  int size() const;
  Environment& environment() const;
  Node& node() const;
  KernelRegistry& kernels() const;   // the node's
  Coordinator* coordinator() const;  // of rank 0; null elsewhere

  // What a process's machine is.
  struct Machine {
    std::string host;
    uint64_t memory_bytes = 0, process_bytes = 0;
    int64_t channel_block = 0;  // that its session would take alone
  };
  // Of all ranks, in their order.
  absl::StatusOr<std::vector<Machine>> ExchangeMachines(const Machine& own);

  // OK if this is so on all ranks and they make the same call. An error of one rank comes back on
  // all, with that rank unless all have it; INVALID_ARGUMENT says which ranks make which calls.
  // What a call has of text (a job as it was recorded) is compared, too: the first line that
  // differs is named, as "operator 3", of what all ranks "record".
  struct Call {
    std::string what;  // "Run of job 'train', steps 0 to 9"
    std::string text = {};
    std::string_view verb = "record";
    std::string_view line = "operator";
  };
  absl::Status Agree(const Call& call, const absl::Status& own);
  // When all ranks have come, which have agreed before.
  absl::Status Meet();
  // Rank 0's status, on all ranks, with what it has to say to them: anything that has an
  // ObjectFormat.
  template <typename T>
  absl::Status TakeFromMaster(const absl::Status& own, T& object) {
    std::pair<Words, T> sent = {WordsOf(own), object};
    BRAID_RETURN_IF_ERROR(dist::BroadcastObject(*group_, sent, /*root=*/0));
    if (rank() == 0) return StatusOf(WordsOf(own));
    object = std::move(sent.second);
    return StatusOf(sent.first);
  }

  // Begins to wait for the job's next run, before it can begin.
  void ExpectRun(JobId job);
  // Until this rank's part of it is done.
  absl::Status AwaitRun();

 private:
  struct Run;
  // A status as it goes from rank to rank, and is then of all of them.
  using Words = std::pair<int64_t, std::string>;
  static Words WordsOf(const absl::Status& status);
  static absl::Status StatusOf(const Words& words);

  absl::Status Compare(const Call& call, const absl::Status& own);
  WorldSeat(std::shared_ptr<Membership> membership, std::unique_ptr<dist::Group> group);

  const std::shared_ptr<Membership> membership_;
  const std::unique_ptr<dist::Group> group_;  // of all ranks: the session's own
  std::shared_ptr<Run> run_;
};

}  // namespace braid
