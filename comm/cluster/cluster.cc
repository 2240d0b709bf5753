#include "comm/cluster/cluster.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// What an error shows of a long list.
constexpr size_t kMaxShown = 20;

std::string Shorten(std::vector<std::string> entries, std::string_view separator) {
  const size_t left_out = entries.size() - std::min(entries.size(), kMaxShown);
  entries.resize(entries.size() - left_out);
  if (left_out > 0) entries.push_back(absl::StrFormat("and %d more", left_out));
  std::string text;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) text += separator;
    text += entries[i];
  }
  return text;
}

// `size` says where the number of nodes comes from: "nodes.txt has 3 nodes", "NNODES=3".
absl::StatusOr<int> CheckRank(const EnvironmentNumber& rank, int num_nodes,
                              const std::string& size) {
  if (rank.value >= 0 && rank.value < num_nodes) return rank.value;
  return absl::InvalidArgumentError(absl::StrFormat("%s, but %s; a rank from 0 to %d was expected",
                                                    rank.ToString(), size, num_nodes - 1));
}

std::optional<EnvironmentNumber> RankOfOptions(const ClusterOptions& options) {
  if (options.node_rank == -1) return std::nullopt;
  return EnvironmentNumber{"--node_rank", options.node_rank};
}

std::string NumberOfNodes(const NodeList& list) {
  return absl::StrFormat("%s has %d node%s", list.name, list.nodes.size(),
                         list.nodes.size() == 1 ? "" : "s");
}

std::vector<std::string> HostsOf(const std::vector<SocketAddress>& addresses) {
  std::vector<std::string> hosts;
  for (const SocketAddress& address : addresses) hosts.push_back(address.host());
  return hosts;
}

absl::StatusOr<int> RankByAddress(const NodeList& list, const std::vector<SocketAddress>& local) {
  std::vector<int> fitting;
  std::vector<std::string> tried;
  for (size_t i = 0; i < list.nodes.size(); ++i) {
    const absl::StatusOr<std::vector<SocketAddress>> addresses =
        ResolveHost(list.nodes[i].host, list.nodes[i].port);
    std::string result;
    if (!addresses.ok()) {
      result = std::string(addresses.status().message());
    } else {
      const bool fits =
          std::any_of(addresses->begin(), addresses->end(),
                      [&](const SocketAddress& a) { return IsLocalAddress(a, local); });
      if (fits) fitting.push_back(static_cast<int>(i));
      result = absl::StrFormat("%s is %s", Shorten(HostsOf(*addresses), ", "),
                               fits ? "this machine" : "another machine");
    }
    tried.push_back(
        absl::StrFormat("\n  %s: %s: %s", list.locations[i], list.nodes[i].host, result));
  }
  if (fitting.size() == 1) return fitting[0];
  return absl::InvalidArgumentError(absl::StrFormat(
      "which node of %s is this? %s of its %d nodes %s an address of this machine (%s); say it "
      "with "
      "--node_rank or BRAID_NODE_RANK, from 0 to %d. Tried:%s",
      list.name, fitting.empty() ? "none" : absl::StrFormat("%d", fitting.size()),
      list.nodes.size(), fitting.empty() ? "has" : "have", Shorten(HostsOf(local), ", "),
      list.nodes.size() - 1, Shorten(std::move(tried), "")));
}

// A launcher's rank says nothing about a list of another length.
absl::Status CheckSize(const Launcher& launcher, const NodeList& list) {
  if (!launcher.size.has_value() || launcher.size->value == static_cast<int>(list.nodes.size())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s, but %s (%s); start as many processes as there are nodes, or say with --node_rank which "
      "node this is",
      NumberOfNodes(list), launcher.size->ToString(), launcher.origin));
}

absl::StatusOr<int> RankInList(
    const ClusterOptions& options, const EnvironmentVariables& env, const NodeList& list,
    const std::function<absl::StatusOr<std::vector<SocketAddress>>()>& local_addresses) {
  const int num_nodes = static_cast<int>(list.nodes.size());
  const std::string size = NumberOfNodes(list);
  if (const auto rank = RankOfOptions(options)) return CheckRank(*rank, num_nodes, size);
  BRAID_ASSIGN_OR_RETURN(const auto braid_rank, FindBraidNodeRank(env));
  BRAID_ASSIGN_OR_RETURN(const auto launcher, FindLauncher(env));
  const bool has_launcher_rank = launcher.has_value() && launcher->rank.has_value();
  if (braid_rank.has_value() && !(has_launcher_rank && *launcher->rank == *braid_rank)) {
    return CheckRank(*braid_rank, num_nodes, size);
  }
  if (has_launcher_rank) {
    BRAID_RETURN_IF_ERROR(CheckSize(*launcher, list));
    return CheckRank(*launcher->rank, num_nodes, size);
  }
  const absl::StatusOr<std::vector<SocketAddress>> local = local_addresses();
  if (!local.ok()) {
    return absl::Status(local.status().code(),
                        absl::StrFormat("%s; say with --node_rank which node of %s this is",
                                        std::string(local.status().message()), list.name));
  }
  return RankByAddress(list, *local);
}

// The list that somebody wrote down, or none.
absl::StatusOr<std::optional<NodeList>> FindList(const ClusterOptions& options,
                                                 const EnvironmentVariables& env,
                                                 const NodeDefaults& defaults) {
  std::optional<NodeList> list;
  if (!options.nodes_file.empty()) {
    BRAID_ASSIGN_OR_RETURN(list, ReadNodeList(options.nodes_file, defaults));
  } else if (!options.nodes.empty()) {
    BRAID_ASSIGN_OR_RETURN(list, CheckNodeList(options.nodes, "the program", defaults));
  } else if (const std::optional<std::string> text = env("BRAID_NODE_LIST")) {
    BRAID_ASSIGN_OR_RETURN(list, ParseNodeList(*text, "BRAID_NODE_LIST", defaults));
  }
  return list;
}

absl::StatusOr<Cluster> ClusterOfLauncher(const ClusterOptions& options,
                                          const EnvironmentVariables& env, const Launcher& launcher,
                                          const NodeDefaults& defaults) {
  if (!launcher.size.has_value()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the environment names a cluster (%s), but not its number of nodes; set %s, or list the "
        "nodes (--nodes)",
        launcher.rank.has_value() ? launcher.rank->ToString() : launcher.origin,
        launcher.size_variable));
  }
  std::optional<EnvironmentNumber> rank = RankOfOptions(options);
  if (!rank.has_value()) {
    BRAID_ASSIGN_OR_RETURN(rank, FindBraidNodeRank(env));
  }
  if (!rank.has_value()) rank = launcher.rank;
  if (!rank.has_value()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "environment variable %s is set (%s), but nothing says which node this is; give "
        "--node_rank or set BRAID_NODE_RANK",
        launcher.size->ToString(), launcher.origin));
  }
  const int num_nodes = launcher.size->value;
  Cluster cluster{.origin = launcher.origin};
  BRAID_ASSIGN_OR_RETURN(cluster.rank, CheckRank(*rank, num_nodes, launcher.size->ToString()));
  BRAID_ASSIGN_OR_RETURN(const HostAndPort master, launcher.master);
  cluster.nodes.resize(num_nodes, {.devices = defaults.devices});
  cluster.nodes[0].host = master.host;
  cluster.nodes[0].port = master.port;
  if (master.port == 0) {
    const bool is_said = options.ctrl_port != 0 || launcher.default_port == 0;
    cluster.nodes[0].port = is_said ? defaults.port : launcher.default_port;
  }
  return cluster;
}

absl::StatusOr<Cluster> AloneHere(const ClusterOptions& options, const EnvironmentVariables& env,
                                  const NodeDefaults& defaults) {
  BRAID_ASSIGN_OR_RETURN(const auto braid_rank, FindBraidNodeRank(env));
  if (braid_rank.has_value()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "environment variable %s is set, but nothing says which nodes there are; list them "
        "(--nodes), or set BRAID_NUM_NODES and BRAID_MASTER",
        braid_rank->ToString()));
  }
  if (const auto rank = RankOfOptions(options)) {
    const std::string size = "this machine is alone: no list (--nodes) and no launcher names nodes";
    BRAID_RETURN_IF_ERROR(CheckRank(*rank, 1, size).status());
  }
  const std::string warning = DescribeMissingSrun(env);
  if (!warning.empty()) LOG(WARNING) << warning;
  return Cluster{
      .nodes = {{.host = "127.0.0.1", .port = defaults.port, .devices = defaults.devices}},
      .origin = "this machine alone",
      .knows_all_hosts = true};
}

}  // namespace

std::string Cluster::ToString() const {
  if (knows_all_hosts) return NodeListText(nodes);
  std::string text;
  for (const ClusterNode& node : nodes) text += "* " + node.devices->ToString() + "\n";
  return text;
}

absl::StatusOr<Cluster> FindCluster(
    const ClusterOptions& options, const EnvironmentVariables& env,
    const std::function<absl::StatusOr<std::vector<SocketAddress>>()>& local_addresses) {
  NodeDefaults defaults;
  if (options.ctrl_port != 0) defaults.port = options.ctrl_port;
  if (!options.devices_per_node.empty()) {
    absl::StatusOr<DeviceSpec> devices = ParseDeviceSpec(options.devices_per_node);
    if (!devices.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--devices: %s", std::string(devices.status().message())));
    }
    defaults.devices = *std::move(devices);
  }
  BRAID_ASSIGN_OR_RETURN(std::optional<NodeList> list, FindList(options, env, defaults));
  if (list.has_value()) {
    const bool is_from_launch = options.nodes_file.empty() && options.nodes.empty();
    Cluster cluster{.origin = is_from_launch ? "braid launch" : list->name,
                    .knows_all_hosts = true};
    BRAID_ASSIGN_OR_RETURN(cluster.rank, RankInList(options, env, *list, local_addresses));
    cluster.nodes = std::move(list->nodes);
    return cluster;
  }
  BRAID_ASSIGN_OR_RETURN(const std::optional<Launcher> launcher, FindLauncher(env));
  if (launcher.has_value()) return ClusterOfLauncher(options, env, *launcher, defaults);
  return AloneHere(options, env, defaults);
}

std::string NodeName(const Cluster& cluster, int node) {
  if (node < 0 || node >= static_cast<int>(cluster.nodes.size())) {
    return absl::StrFormat("%s %d", cluster.member_word, node);
  }
  const std::string& host = cluster.nodes[node].host;
  return host.empty() ? absl::StrFormat("%s %d", cluster.member_word, node)
                      : absl::StrFormat("%s %d (%s)", cluster.member_word, node, host);
}

}  // namespace braid
