// What `braid launch` starts for each node: which program, here or on which host, with what in its
// environment.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/cluster/launcher_environment.h"
#include "comm/cluster/node_list.h"
#include "comm/network/socket.h"

namespace braid {

struct NodeCommand {
  int rank = 0;
  std::string word = "node";  // or "rank", of process groups, in messages
  std::string host;           // "": a node of --local, whose address says nothing
  bool is_remote = false;     // `command` is ssh's; the rest is told there (remote_orders.h)
  std::vector<std::string> command;
  // The variables by which the program finds its cluster. They never go through a command line,
  // since all users of a machine see those.
  std::map<std::string, std::string> environment;
  Socket control;  // the master's listening socket, which node 0 inherits; may be none
};

// What the environment changes to: what an outer launch said of its nodes goes.
std::map<std::string, std::optional<std::string>> EnvironmentChanges(
    const std::map<std::string, std::string>& environment);

// `num_nodes` nodes on this machine, which meet at a free port of `host`. `devices` has an entry
// for each of them, one for all, or none.
struct LocalNodes {
  int num_nodes = 1;
  std::string host = "127.0.0.1";
  std::string secret = {};
  std::vector<DeviceSpec> devices = {};
};
absl::StatusOr<std::vector<NodeCommand>> CommandsOfLocalNodes(
    const LocalNodes& nodes, const std::vector<std::string>& program);

// One machine's ranks of a process group, which have been started `restarts` times before. `host`
// says in messages where they are; "": here.
std::vector<NodeCommand> CommandsOfLocalRanks(const LocalRanks& ranks, int restarts,
                                              const std::string& host,
                                              const std::vector<std::string>& program);

// HOST:PORT of the master, of a command of CommandsOfLocalNodes; "" of others, whose list says it.
std::string MeetingPlace(const NodeCommand& command);

// The nodes of a list: those on other machines by `ssh`, a command in the shell's language that is
// given a host and what to run there.
struct ListedNodes {
  std::vector<ClusterNode> nodes;
  std::string secret;
  std::string ssh;
  std::string tool;       // the braid tool on the other machines
  std::string directory;  // where the program starts there
};
absl::StatusOr<std::vector<NodeCommand>> CommandsOfListedNodes(
    const ListedNodes& nodes, const std::vector<std::string>& program);

// A word that a POSIX shell reads as `text`, whatever is in it.
std::string QuoteForShell(std::string_view text);

}  // namespace braid
