#include "api/tool/launch.h"

#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "api/tool/launch_machine.h"
#include "api/tool/launch_terms.h"
#include "api/tool/node_command.h"
#include "api/tool/run_launch.h"
#include "api/tool/secret_flag.h"
#include "comm/cluster/device_spec.h"
#include "comm/cluster/launcher_environment.h"
#include "comm/cluster/node_list.h"
#include "comm/control/local_ranks.h"
#include "comm/control/secret.h"
#include "comm/network/socket.h"
#include "runtime/base/process.h"
#include "runtime/base/status.h"

ABSL_FLAG(int, local, 0, "Nodes to start on this machine");
ABSL_FLAG(std::string, nodes, "",
          "A node list file: a node is started on each of its hosts, on others over ssh");
ABSL_FLAG(std::string, devices, "",
          "Devices of a node: cpu:2. With --local also one entry for each: cpu:1,cpu:2. With "
          "--nodes for lines that give none");
ABSL_FLAG(std::string, host, "127.0.0.1",
          "With --local, the address of this machine at which the nodes meet");
ABSL_FLAG(uint16_t, ctrl_port, braid::kDefaultControlPort,
          "With --nodes, the control port of lines that give none");
ABSL_FLAG(std::string, ssh, "ssh -o BatchMode=yes",
          "With --nodes, what reaches other machines: a shell command that is given a host and "
          "what to run there, and asks nothing");
ABSL_FLAG(
    std::string, node_program_dir, "",
    "With --nodes, the folder of the braid tool on other machines; the same as here if empty");
ABSL_FLAG(int, nproc_per_node, 0,
          "Ranks of a process group to start on this machine, each with RANK, WORLD_SIZE, "
          "LOCAL_RANK, MASTER_ADDR and the like in its environment");
ABSL_FLAG(int, nnodes, 1, "With --nproc_per_node, how many machines start ranks");
ABSL_FLAG(int, node_rank, 0, "With --nnodes, which of them this is, from 0");
ABSL_FLAG(std::string, master_addr, "",
          "With --nproc_per_node, the host of machine 0 and so of rank 0; not given: ranks meet on "
          "this machine at a free port");
ABSL_FLAG(uint16_t, master_port, 0,
          "With --master_addr, its port, at which the launchers of several machines meet, and the "
          "ranks of one; 29500 if it is not given");
ABSL_FLAG(int, max_restarts, 0,
          "With --nproc_per_node, how often all ranks of all machines are started again after one "
          "has failed");
ABSL_FLAG(absl::Duration, join_timeout, absl::Seconds(60),
          "With --nnodes, how long launchers wait for each other");
ABSL_FLAG(bool, insecure, false,
          "With --nnodes, launchers meet without a secret at other addresses than loopback, too: "
          "whoever reaches the port may join");
ABSL_FLAG(bool, standalone, false, "With --nproc_per_node: this machine alone, at a free port");
ABSL_FLAG(bool, tag_output, false,
          "Print all that all nodes print, line by line as '[node 1] ...', instead of node 0's "
          "output alone");

namespace braid {
namespace {

absl::StatusOr<std::vector<DeviceSpec>> ParseDevices() {
  std::vector<DeviceSpec> devices;
  if (absl::GetFlag(FLAGS_devices).empty()) return devices;
  const std::vector<std::string> texts = absl::StrSplit(absl::GetFlag(FLAGS_devices), ',');
  for (const std::string& text : texts) {
    absl::StatusOr<DeviceSpec> spec = ParseDeviceSpec(text);
    if (!spec.ok()) {
      return absl::InvalidArgumentError("--devices: " + std::string(spec.status().message()));
    }
    devices.push_back(*std::move(spec));
  }
  return devices;
}

// Of nodes and ranks that are all started from here.
absl::StatusOr<std::string> SecretOfFlags() {
  const std::string file = absl::GetFlag(FLAGS_auth_token_file);
  return file.empty() ? KeepOrMakeSecret(EnvironmentVariable)
                      : ReadSecret(file, EnvironmentVariable);
}

absl::StatusOr<ListedNodes> ListedNodesOfFlags(const std::vector<DeviceSpec>& devices) {
  if (devices.size() > 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--devices lists the devices of %d nodes; with --nodes, the file says what each node has, "
        "and --devices what lines have that say nothing",
        devices.size()));
  }
  BRAID_ASSIGN_OR_RETURN(std::string secret, SecretOfFlags());
  NodeDefaults defaults{.port = absl::GetFlag(FLAGS_ctrl_port)};
  if (!devices.empty()) defaults.devices = devices[0];
  BRAID_ASSIGN_OR_RETURN(NodeList list, ReadNodeList(absl::GetFlag(FLAGS_nodes), defaults));
  ListedNodes nodes{
      .nodes = std::move(list.nodes), .secret = std::move(secret), .ssh = absl::GetFlag(FLAGS_ssh)};
  std::error_code error;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) nodes.directory = std::filesystem::current_path(error).string();
  if (error) {
    return absl::InternalError("cannot find this tool and its folder: " + error.message());
  }
  const std::string folder = absl::GetFlag(FLAGS_node_program_dir);
  nodes.tool = folder.empty() ? here.string() : (folder / here.filename()).string();
  return nodes;
}

absl::Status CheckArguments(const ToolArguments& arguments) {
  if (!arguments.words.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is no flag; the program and its arguments come after --", arguments.words[0]));
  }
  if (arguments.program.empty()) {
    return absl::InvalidArgumentError(
        "no program is given; it and its arguments come after --: braid launch --local=2 -- "
        "./mnist");
  }
  return absl::OkStatus();
}

absl::StatusOr<LocalRanks> RanksOfFlags() {
  const int count = absl::GetFlag(FLAGS_nproc_per_node), machines = absl::GetFlag(FLAGS_nnodes);
  const int machine = absl::GetFlag(FLAGS_node_rank), restarts = absl::GetFlag(FLAGS_max_restarts);
  const std::string host = absl::GetFlag(FLAGS_master_addr);
  const uint16_t port = absl::GetFlag(FLAGS_master_port);
  if (absl::GetFlag(FLAGS_local) != 0 || !absl::GetFlag(FLAGS_nodes).empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--nproc_per_node=%d starts ranks of a process group, and --local or "
                        "--nodes nodes of a cluster; give one of them",
                        count));
  }
  if (count < 1 || machines < 1 || count > kMaxNodes / machines) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--nproc_per_node=%d with --nnodes=%d; 1 or more each and %d ranks in all at most were "
        "expected",
        count, machines, kMaxNodes));
  }
  if (machine < 0 || machine >= machines) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--node_rank=%d with --nnodes=%d; 0 to %d was expected", machine, machines, machines - 1));
  }
  if (host.empty() && (machines > 1 || port != 0)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--nnodes=%d and --master_port=%d without --master_addr, which is the host of rank 0, the "
        "same on all machines",
        machines, port));
  }
  if (absl::GetFlag(FLAGS_standalone) && !host.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--standalone means this machine alone; it excludes --master_addr=%s", host));
  }
  if (restarts < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--max_restarts=%d; 0 or more was expected", restarts));
  }
  if (const absl::Duration limit = absl::GetFlag(FLAGS_join_timeout);
      limit <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--join_timeout=%s; more than zero was expected", absl::FormatDuration(limit)));
  }
  return LocalRanks{.master = {.host = host, .port = port != 0 ? port : kDefaultGroupPort},
                    .world_size = machines * count,
                    .first = machine * count,
                    .count = count};
}

absl::StatusOr<std::vector<NodeCommand>> CommandsOfFlags(const ToolArguments& arguments) {
  const int local = absl::GetFlag(FLAGS_local);
  const std::string file = absl::GetFlag(FLAGS_nodes);
  if ((local != 0) != file.empty()) {
    return absl::InvalidArgumentError(
        local == 0 ? "nothing says where to start nodes; give --local=N or --nodes=FILE, or "
                     "--nproc_per_node=N for ranks of a process group"
                   : absl::StrFormat("--local=%d and --nodes=%s exclude each other; give one of "
                                     "them",
                                     local, file));
  }
  BRAID_ASSIGN_OR_RETURN(const std::vector<DeviceSpec> devices, ParseDevices());
  if (!file.empty()) {
    BRAID_ASSIGN_OR_RETURN(const ListedNodes nodes, ListedNodesOfFlags(devices));
    return CommandsOfListedNodes(nodes, arguments.program);
  }
  if (local < 1 || local > kMaxNodes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--local=%d; 1 to %d nodes were expected", local, kMaxNodes));
  }
  BRAID_ASSIGN_OR_RETURN(std::string secret, SecretOfFlags());
  return CommandsOfLocalNodes({.num_nodes = local,
                               .host = absl::GetFlag(FLAGS_host),
                               .secret = std::move(secret),
                               .devices = devices},
                              arguments.program);
}

LaunchOptions OptionsOfNodes(std::vector<NodeCommand> commands) {
  // Of local nodes, nobody else knows the port that was free.
  if (const std::string place = MeetingPlace(commands[0]); !place.empty()) {
    std::cerr << absl::StrFormat("braid launch: the %d nodes meet at %s\n", commands.size(), place);
  }
  return {
      .commands = [commands = std::move(commands)](int /*restarts*/, uint16_t /*port*/) mutable {
        return std::move(commands);
      }};
}

absl::StatusOr<LaunchOptions> OptionsOfRanks(const std::vector<std::string>& program) {
  BRAID_ASSIGN_OR_RETURN(LocalRanks ranks, RanksOfFlags());
  Socket port;  // kept, so that nobody else gets it while ranks are started again
  if (ranks.master.host.empty()) {
    BRAID_ASSIGN_OR_RETURN(ReservedRanks reserved, ReserveLocalRanks(ranks.count));
    ranks = std::move(reserved.ranks);
    port = std::move(reserved.port);
    BRAID_ASSIGN_OR_RETURN(ranks.secret, SecretOfFlags());
  } else {
    BRAID_ASSIGN_OR_RETURN(ranks.secret,
                           ReadSecret(absl::GetFlag(FLAGS_auth_token_file), EnvironmentVariable));
  }
  LaunchOptions options{.max_restarts = absl::GetFlag(FLAGS_max_restarts)};
  const int machines = absl::GetFlag(FLAGS_nnodes), machine = absl::GetFlag(FLAGS_node_rank);
  std::string host;
  if (machines > 1) {
    host = absl::StrFormat("machine %d, %s", machine, HostName());
    options.terms = TextOfTerms({.ranks_per_machine = ranks.count,
                                 .max_restarts = options.max_restarts,
                                 .program = program});
    NetworkPlace& place = options.place.emplace();
    place.cluster.nodes.assign(machines, {.host = {}, .devices = DeviceSpec()});
    place.cluster.nodes[0].host = ranks.master.host;
    place.cluster.nodes[0].port = ranks.master.port;
    place.cluster.rank = machine;
    place.cluster.origin = "--master_addr";
    place.cluster.member_word = "machine";
    place.secret = ranks.secret;
    place.is_insecure = absl::GetFlag(FLAGS_insecure);
    place.join_timeout = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_join_timeout));
  }
  options.commands = [ranks, program, host, port = std::move(port)](int restarts,
                                                                    uint16_t chosen) mutable {
    if (chosen != 0) ranks.master.port = chosen;
    return CommandsOfLocalRanks(ranks, restarts, host, program);
  };
  return options;
}

absl::StatusOr<LaunchOutcome> RunFlags(const ToolArguments& arguments) {
  BRAID_RETURN_IF_ERROR(CheckArguments(arguments));
  LaunchOptions options;
  if (absl::GetFlag(FLAGS_nproc_per_node) != 0) {
    BRAID_ASSIGN_OR_RETURN(options, OptionsOfRanks(arguments.program));
  } else {
    BRAID_ASSIGN_OR_RETURN(std::vector<NodeCommand> commands, CommandsOfFlags(arguments));
    options = OptionsOfNodes(std::move(commands));
  }
  options.tag_output = absl::GetFlag(FLAGS_tag_output);
  return RunLaunch(std::move(options));
}

int Launch(const ToolArguments& arguments) {
  const absl::StatusOr<LaunchOutcome> outcome = RunFlags(arguments);
  if (!outcome.ok()) {
    std::cerr << "error: " << outcome.status().message() << "\n";
    return 1;
  }
  std::cerr << TextOf(*outcome, "");
  return outcome->exit_code;
}

}  // namespace

Subcommand LaunchSubcommand() {
  return {
      .name = "launch",
      .summary = "starts a program as the nodes of a cluster, or as ranks of a process group",
      .usage = R"(starts a program as the nodes of a cluster, or as ranks of a process group.

  braid launch --local=2 --devices=cpu:2 -- ./mnist --epochs=1
  braid launch --nodes=nodes.txt -- ./mnist --epochs=1
  braid launch --nproc_per_node=4 --max_restarts=2 -- ./collectives
  braid launch --nnodes=2 --node_rank=0 --nproc_per_node=4 --master_addr=10.0.0.1 -- ./collectives

The first starts 2 nodes on this machine, which meet at a free port, and prints
it. The second starts a node for each line of nodes.txt: on this machine
directly, on others by ssh, in the folder of the same name. Nodes share a fresh
secret, or what --auth_token_file or the exported BRAID_AUTH_TOKEN has.

The third starts 4 ranks of a process group here, as torchrun does, and all of
them once more, up to twice, when one fails (RESTART_COUNT says how often). The
fourth is run on each of two machines with its own --node_rank, else the same
flags. The launchers meet at 10.0.0.1, port 29500, prove to each other that they
have the same BRAID_AUTH_TOKEN, start their ranks and restart them together, and
end together with the first failure of all machines. Ranks meet at another port
of 10.0.0.1, which is chosen for each attempt.

Node 0 writes to this terminal, but does not read from it. Of other nodes, the
last output of the one that fails first is shown, unless --tag_output is given.
When a node fails, all others end too; the last line says which was the first
and why, and its exit code is returned (128 + N for signal N). SIGINT, SIGTERM
and SIGHUP go to all nodes; a second SIGINT kills them.
)",
      .files = {"api/tool/launch.cc", kSecretFlagFile},
      .run = Launch,
  };
}

}  // namespace braid
