#include "api/tool/launch.h"

#include <signal.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "api/tool/await_end.h"
#include "api/tool/node_command.h"
#include "api/tool/running_cluster.h"
#include "comm/cluster/device_spec.h"
#include "comm/cluster/node_list.h"
#include "runtime/base/process_guard.h"
#include "runtime/base/reactor.h"
#include "runtime/base/signals.h"
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

absl::StatusOr<ListedNodes> ListedNodesOfFlags(const std::vector<DeviceSpec>& devices) {
  if (devices.size() > 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--devices lists the devices of %d nodes; with --nodes, the file says what each node has, "
        "and --devices what lines have that say nothing",
        devices.size()));
  }
  NodeDefaults defaults{.port = absl::GetFlag(FLAGS_ctrl_port)};
  if (!devices.empty()) defaults.devices = devices[0];
  BRAID_ASSIGN_OR_RETURN(NodeList list, ReadNodeList(absl::GetFlag(FLAGS_nodes), defaults));
  ListedNodes nodes{.nodes = std::move(list.nodes), .ssh = absl::GetFlag(FLAGS_ssh)};
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

absl::StatusOr<std::vector<NodeCommand>> CommandsOfFlags(const ToolArguments& arguments) {
  const int local = absl::GetFlag(FLAGS_local);
  const std::string file = absl::GetFlag(FLAGS_nodes);
  if (!arguments.words.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is no flag; the program and its arguments come after --", arguments.words[0]));
  }
  if (arguments.program.empty()) {
    return absl::InvalidArgumentError(
        "no program is given; it and its arguments come after --: braid launch --local=2 -- "
        "./mnist");
  }
  if ((local != 0) != file.empty()) {
    return absl::InvalidArgumentError(
        local == 0 ? "nothing says where to start nodes; give --local=N or --nodes=FILE"
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
  return CommandsOfLocalNodes(
      {.num_nodes = local, .host = absl::GetFlag(FLAGS_host), .devices = devices},
      arguments.program);
}

absl::StatusOr<LaunchResult> RunNodes(std::vector<NodeCommand> commands) {
  // That nobody reads the output any more is noticed where it is written.
  signal(SIGPIPE, SIG_IGN);
  // Of local nodes, nobody else knows the port that was free.
  if (const std::string place = MeetingPlace(commands[0]); !place.empty()) {
    std::cerr << absl::StrFormat("braid launch: the %d nodes meet at %s\n", commands.size(), place);
  }
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGuard> guard, ProcessGuard::Start());
  const std::unique_ptr<Environment> environment = MakeRealEnvironment();
  const std::unique_ptr<Event> has_ended = environment->MakeEvent();
  const std::unique_ptr<Event> is_destroyed = environment->MakeEvent();
  LaunchResult result;
  const std::unique_ptr<Reactor> reactor = environment->StartReactor("launch");
  auto cluster = std::make_unique<RunningCluster>(
      reactor.get(), RunningCluster::Options{.commands = std::move(commands),
                                             .guard = guard.get(),
                                             .tag_output = absl::GetFlag(FLAGS_tag_output),
                                             .on_end = [&](LaunchResult how) {
                                               result = std::move(how);
                                               has_ended->Set();
                                             }});
  BRAID_ASSIGN_OR_RETURN(std::unique_ptr<SignalWatcher> signals,
                         SignalWatcher::Start(reactor.get(), {SIGINT, SIGTERM, SIGHUP},
                                              [&](int signal) { cluster->OnSignal(signal); }));
  reactor->Post([&] { cluster->Start(); });
  AwaitEnd(*environment, *has_ended);
  signals.reset();
  reactor->Post([&] {
    cluster.reset();
    is_destroyed->Set();
  });
  AwaitEnd(*environment, *is_destroyed);
  return result;
}

int Launch(const ToolArguments& arguments) {
  absl::StatusOr<std::vector<NodeCommand>> commands = CommandsOfFlags(arguments);
  const absl::StatusOr<LaunchResult> result =
      commands.ok() ? RunNodes(*std::move(commands)) : commands.status();
  if (!result.ok()) {
    std::cerr << "error: " << result.status().message() << "\n";
    return 1;
  }
  std::cerr << result->output;
  if (!result->cause.empty()) std::cerr << "braid launch: " << result->cause << "\n";
  return result->exit_code;
}

}  // namespace

Subcommand LaunchSubcommand() {
  return {
      .name = "launch",
      .summary = "starts a program as the nodes of a cluster",
      .usage = R"(starts a program as the nodes of a cluster.

  braid launch --local=2 --devices=cpu:2 -- ./mnist --epochs=1
  braid launch --nodes=nodes.txt -- ./mnist --epochs=1

The first starts 2 nodes on this machine, which meet at a free port, and prints
it. The second starts a node for each line of nodes.txt: on this machine
directly, on others by ssh, in the folder of the same name. Nodes share a fresh
secret, or BRAID_AUTH_TOKEN if that is exported.

Node 0 writes to this terminal, but does not read from it. Of other nodes, the
last output of the one that fails first is shown, unless --tag_output is given.
When a node fails, all others end too; the last line says which was the first
and why, and its exit code is returned (128 + N for signal N). SIGINT, SIGTERM
and SIGHUP go to all nodes; a second SIGINT kills them.
)",
      .file = "api/tool/launch.cc",
      .run = Launch,
  };
}

}  // namespace braid
