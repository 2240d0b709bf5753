// The machines of a simulated world, with a process on each, joined by simulated TCP: what goes
// wrong with them, and how their processes end. Clusters (sim_cluster.h) and worlds of process
// groups (sim_world.h) stand on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "api/network.h"
#include "comm/network/sim_network.h"
#include "runtime/base/reactor.h"
#include "runtime/base/simulation.h"

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

// One of any kind up to `last`, between any of them, before `horizon`. Those that end last longer
// than heartbeats are waited for.
SimFault DrawFault(uint64_t seed, int num_nodes, Nanoseconds horizon, SimFault::Kind last);

struct SimNodeOutcome {
  absl::Status status;      // as the node's process would end with
  bool was_killed = false;  // then the status says nothing
  bool has_ended = false;   // within the limit
  Nanoseconds ended = 0;    // when
};

struct SimOutcome {
  std::vector<SimNodeOutcome> nodes;
  std::vector<double> losses;      // of a cluster's master's Runs, if they succeeded
  std::optional<double> repeated;  // of its last step from the checkpoint
  Nanoseconds end = 0;             // of the last node
  uint64_t num_events = 0;
  uint64_t digest = 0;    // equal for equal options
  std::string left_over;  // sockets, reactors and timers that nobody gave back; "": none

  std::string ToString() const;  // a line a node
};

class SimMachines {
 public:
  // `begin` begins faults of kinds that are not of machines. It may be empty if there are none.
  SimMachines(uint64_t seed, int count, std::function<void(const SimFault&)> begin = {});

  int count() const { return static_cast<int>(outcome_.nodes.size()); }
  Simulation& world() { return *world_; }
  // A process that no fault touches, for who waits for the others.
  Environment& observer() { return *observer_; }
  // How the process on a machine joins a cluster of all of them, with a CPU device each.
  // Nodes are said to be on `hosts` machines in turn; 0: on one.
  NetworkOptions NetworkOf(int node, Nanoseconds join_timeout, int hosts = 0);

  void Expect(const SimFault& fault);

  // The process on a machine has come to its end. What a killed one says does not count.
  void Ended(int node, const absl::Status& status);
  // Until all that live have ended, or `limit`.
  void AwaitEnds(Nanoseconds limit);
  bool have_all_ended() const;
  const SimNodeOutcome& node(int node) const { return outcome_.nodes[node]; }

  // All that stands goes on.
  void Release();
  // When all is taken down.
  SimOutcome Finish();

 private:
  void Begin(const SimFault& fault);
  void Kill(int node);

  const std::function<void(const SimFault&)> begin_;
  const std::unique_ptr<Simulation> world_;
  SimNetwork network_;
  Cluster cluster_;
  std::vector<Network*> sockets_;
  Environment* observer_ = nullptr;
  std::unique_ptr<Event> all_ended_;
  SimOutcome outcome_;
};

// Whether the ends are what the faults allow: nothing is left over; every survivor has ended in
// time; all that can still talk to each other name the same cause; who has lost the master says so.
// "" or what is wrong. Without a fault: all OK.
std::string CheckEnds(const std::vector<SimFault>& faults, Nanoseconds join_timeout,
                      const SimOutcome& outcome);

}  // namespace braid
