// Which nodes form the cluster, and which of them this process is. The list comes from the node
// list file, else from the program's code, else from the launcher's environment
// (launcher_environment.h), else this machine is alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/cluster/device_spec.h"
#include "comm/cluster/launcher_environment.h"
#include "comm/cluster/node_list.h"
#include "comm/network/socket.h"

namespace braid {

// What the program's code says; flags override it.
struct ClusterOptions {
  std::vector<ClusterNode> nodes = {};
  std::string nodes_file = {};        // --nodes; goes before `nodes`
  std::string devices_per_node = {};  // --devices, of nodes that say none; "": cpu:1
  int node_rank = -1;                 // --node_rank; -1: to be found out
  uint16_t ctrl_port = 0;             // --ctrl_port, of nodes that say none; 0: 9988
};

struct Cluster {
  // Where `knows_all_hosts`, all is filled in. Else only the master, node 0, has a host and a port:
  // launchers tell no more, and no more is needed to join; and the devices are this node's own,
  // until the others say theirs when they join.
  std::vector<ClusterNode> nodes;
  int rank = 0;                      // which of them this process is
  std::string origin;                // for messages: "nodes.txt", "Slurm job 12, step 0"
  bool knows_all_hosts = false;      // a file or code lists them, or this machine is alone
  std::string member_word = "node";  // what messages call one of them

  // Equal on every machine that has the same list, whatever its comments and spacing (see
  // DescribeDifference). A launcher's list leaves out the hosts: each node may know the master by
  // another name.
  std::string ToString() const;
};

// "node 2 (10.0.0.3)".
std::string NodeName(const Cluster& cluster, int node);

// Rank: --node_rank, else BRAID_NODE_RANK, else the launcher's, else the one listed node whose host
// has an address of this machine, which resolves every host and may wait for the resolver. Errors
// name the file and line, flag or variable, the value, and what was expected.
//
// BRAID_NODE_LIST, which `braid launch` sets if it was given a file, is that file's canonical text:
// it counts as the launcher's environment and knows all hosts.
absl::StatusOr<Cluster> FindCluster(
    const ClusterOptions& options, const EnvironmentVariables& env,
    const std::function<absl::StatusOr<std::vector<SocketAddress>>()>& local_addresses);

}  // namespace braid
