#include "api/tool/node_command.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/network/network.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr char kRank[] = "BRAID_NODE_RANK";
constexpr char kNumNodes[] = "BRAID_NUM_NODES";
constexpr char kMaster[] = "BRAID_MASTER";
constexpr char kControl[] = "BRAID_CTRL_DESCRIPTOR";
constexpr char kDevices[] = "BRAID_DEVICES";
constexpr char kNodeList[] = "BRAID_NODE_LIST";
constexpr char kToken[] = "BRAID_AUTH_TOKEN";

absl::StatusOr<std::vector<DeviceSpec>> DevicesOfEach(const LocalNodes& nodes) {
  std::vector<DeviceSpec> devices = nodes.devices;
  if (devices.size() == 1) devices.assign(nodes.num_nodes, nodes.devices[0]);
  if (!devices.empty() && static_cast<int>(devices.size()) != nodes.num_nodes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--devices lists the devices of %d nodes, but --local=%d; give one entry for all nodes or "
        "one for each",
        devices.size(), nodes.num_nodes));
  }
  return devices;
}

// Names that do not resolve here may be names for ssh: they are other machines.
bool IsThisMachine(const std::string& host, const std::vector<SocketAddress>& local) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses = ResolveHost(host, 0);
  if (!addresses.ok()) return false;
  return std::any_of(addresses->begin(), addresses->end(),
                     [&](const SocketAddress& address) { return IsLocalAddress(address, local); });
}

// ssh joins its words by blanks and gives them to the user's shell there: one word, quoted once.
std::vector<std::string> CommandOverSsh(const ListedNodes& nodes, const std::string& host,
                                        const std::vector<std::string>& program) {
  std::string there = absl::StrFormat("cd %s && exec %s node --", QuoteForShell(nodes.directory),
                                      QuoteForShell(nodes.tool));
  for (const std::string& word : program) there += " " + QuoteForShell(word);
  return {"/bin/sh", "-c", "exec " + nodes.ssh + " \"$@\"", "ssh", host, there};
}

}  // namespace

std::map<std::string, std::optional<std::string>> EnvironmentChanges(
    const std::map<std::string, std::string>& environment) {
  std::map<std::string, std::optional<std::string>> changes;
  for (const char* name : {kRank, kNumNodes, kMaster, kControl, kDevices, kNodeList, kToken}) {
    changes[name] = std::nullopt;
  }
  for (const auto& [name, value] : environment) changes[name] = value;
  return changes;
}

absl::StatusOr<std::vector<NodeCommand>> CommandsOfLocalNodes(
    const LocalNodes& nodes, const std::vector<std::string>& program) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<DeviceSpec> devices, DevicesOfEach(nodes));
  absl::StatusOr<std::vector<SocketAddress>> host = ResolveHost(nodes.host, 0);
  if (!host.ok()) return Prefixed("--host=" + nodes.host, host.status());
  // The kernel chooses the port, and it stays ours from here to node 0.
  BRAID_ASSIGN_OR_RETURN(Socket control, ListenOn(host->front()));
  BRAID_ASSIGN_OR_RETURN(const SocketAddress master, control.LocalAddress());
  std::vector<NodeCommand> commands(nodes.num_nodes);
  for (int rank = 0; rank < nodes.num_nodes; ++rank) {
    NodeCommand& command = commands[rank];
    command.rank = rank;
    command.command = program;
    command.environment = {{kRank, absl::StrFormat("%d", rank)},
                           {kNumNodes, absl::StrFormat("%d", nodes.num_nodes)},
                           {kMaster, master.ToString()},
                           {kToken, nodes.secret}};
    if (!devices.empty()) command.environment[kDevices] = devices[rank].ToString();
  }
  commands[0].environment[kControl] = absl::StrFormat("%d", control.descriptor());
  commands[0].control = std::move(control);
  return commands;
}

std::vector<NodeCommand> CommandsOfLocalRanks(const LocalRanks& ranks, int restarts,
                                              const std::string& host,
                                              const std::vector<std::string>& program) {
  std::vector<NodeCommand> commands(ranks.count);
  for (int local = 0; local < ranks.count; ++local) {
    NodeCommand& command = commands[local];
    command.rank = ranks.first + local;
    command.word = "rank";
    command.host = host;
    command.command = program;
    command.environment = VariablesOfRank(ranks, local);
    command.environment["RESTART_COUNT"] = absl::StrFormat("%d", restarts);
  }
  return commands;
}

std::string MeetingPlace(const NodeCommand& command) {
  const auto found = command.environment.find(kMaster);
  return found == command.environment.end() ? "" : found->second;
}

absl::StatusOr<std::vector<NodeCommand>> CommandsOfListedNodes(
    const ListedNodes& nodes, const std::vector<std::string>& program) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<SocketAddress> local, LocalAddresses());
  const std::string list = NodeListText(nodes.nodes);
  std::vector<NodeCommand> commands;
  for (const ClusterNode& node : nodes.nodes) {
    NodeCommand& command = commands.emplace_back();
    command.rank = static_cast<int>(commands.size()) - 1;
    command.host = node.host;
    command.is_remote = !IsThisMachine(node.host, local);
    command.command = command.is_remote ? CommandOverSsh(nodes, node.host, program) : program;
    command.environment = {
        {kRank, absl::StrFormat("%d", command.rank)}, {kNodeList, list}, {kToken, nodes.secret}};
  }
  return commands;
}

std::string QuoteForShell(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+,-./:@_";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace braid
