// A whole cluster in one thread, as its users start it: a master's session and the services of the
// other nodes, each a process of one simulated world, joined by simulated TCP. A seed draws order,
// delays and splits, and a plan of faults says what goes wrong.
#pragma once

#include <braid/braid.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/reactor.h"

namespace braid {

// Nodes are processes of the world by the same numbers; node 0 is the master.
struct SimFault {
  enum class Kind {
    kCrash,      // of `node`
    kPause,      // of `node`, for `lasts`
    kCut,        // every connection between `node` and `other` is reset
    kPartition,  // nothing reaches `other` from `node` or back, for `lasts`
    // Resources of `node`:
    kNoDescriptors,  // none for another socket, for `lasts`
    kNoMemory,       // none for devices from then on
    kSlowDisk,       // what brings files to the disk stands, for `lasts`
    kOtherFiles,     // another checkpoint takes the place of the one that was saved
  };
  Kind kind = Kind::kCrash;
  int node = 0;
  int other = 0;
  Nanoseconds at = 0;
  Nanoseconds lasts = 0;
  // If not 0, it begins when the world has run that many events, which must be by `at`.
  uint64_t at_event = 0;

  std::string ToString() const;  // "12.3 ms: pause of node 1 for 7.000 s"
  bool touches(int n) const;
};

// One of any kind, between any of them, before `horizon`; those of files where the program saves.
// Those that end last longer than heartbeats are waited for.
SimFault DrawFault(uint64_t seed, int num_nodes, Nanoseconds horizon, bool saves = false);

struct SimClusterOptions {
  uint64_t seed = 1;
  std::vector<int> devices = {1, 1, 1};  // of each node
  std::vector<std::string> kinds = {};   // of them, by node; empty: CPUs
  std::vector<SimFault> faults = {};
  std::function<void(Job&)> record;  // the job, which fetches "loss"
  // A user's own operators and kernels, as MainOptions::extend; may be empty.
  std::function<absl::Status(OpRegistry&, KernelRegistry&)> extend = {};
  int64_t steps = 3;
  // If not "": where the program saves before its last step, and loads after it to make that step
  // again.
  std::string folder = "";
  std::string other_checkpoint = "";  // that kOtherFiles brings: the same job's after a step less
  Nanoseconds join_timeout = 6 * kSecond;
  Nanoseconds limit = 300 * kSecond;  // a node that has not ended by then hangs
};

struct SimNodeOutcome {
  absl::Status status;      // as the node's process would end with
  bool was_killed = false;  // then the status says nothing
  bool has_ended = false;   // within the limit
  Nanoseconds ended = 0;    // when
};

struct SimOutcome {
  std::vector<SimNodeOutcome> nodes;
  std::vector<double> losses;      // of the master's Runs, if they succeeded
  std::optional<double> repeated;  // of the last step from the checkpoint
  Nanoseconds end = 0;             // of the last node
  uint64_t num_events = 0;
  uint64_t digest = 0;    // equal for equal options
  std::string left_over;  // sockets, reactors and timers that nobody gave back; "": none

  std::string ToString() const;  // a line a node
};

SimOutcome RunSimCluster(const SimClusterOptions& options);

// Whether the outcome is what the faults allow: every survivor has ended in time, and not with OK
// unless the job could do without; all that can still talk to each other name the same cause; who
// has lost the master says so. "" or what is wrong. Without a fault: all OK.
std::string CheckOutcome(const SimClusterOptions& options, const SimOutcome& outcome);

}  // namespace braid
