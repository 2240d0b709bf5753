// A simulated network: every process of a Simulation has a machine of its own, and TCP between them
// is two byte pipes with buffers, delays, splits and faults that the simulation's seed draws.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/network/network.h"
#include "runtime/base/simulation.h"

namespace braid {

struct SimNetworkOptions {
  // One chunk of bytes in `rarity` takes up to the longest time, all others up to the usual one.
  Nanoseconds usual_delay = 50 * kMicrosecond;
  Nanoseconds longest_delay = 3 * kMillisecond;
  uint64_t rarity = 16;
  // What a direction holds that was written and not yet read: between these, drawn for each.
  size_t least_buffer = size_t{1} << 10;
  size_t most_buffer = size_t{256} << 10;
};

// In the simulation's thread. Outlives the sockets' use; the simulation outlives it.
class SimNetwork {
 public:
  explicit SimNetwork(Simulation* simulation, const SimNetworkOptions& options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // The network as one process sees it. Its machine has these addresses, its interface "sim0", and
  // a loopback that no other sees. Kept by this.
  Network* AddMachine(int process, std::vector<SocketAddress> addresses);

  // Faults of a pair of processes.
  // Resets every connection between them, at both ends. New ones can be made.
  void Cut(int a, int b);
  // From now on nothing that one sends reaches the other, and neither is told. What was sent waits
  // for Heal, as TCP's retransmissions would bring it.
  void Partition(int a, int b);
  void Heal(int a, int b);

  // Of one process: there is no descriptor for another socket, until FreeDescriptors.
  void ExhaustDescriptors(int process);
  void FreeDescriptors(int process);

  // Connections that have an open end.
  int num_connections(int a, int b) const;

 private:
  class Internet;
  class Machine;
  const std::shared_ptr<Internet> internet_;  // shared with events under way
};

}  // namespace braid
