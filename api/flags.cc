#include "api/flags.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "api/byte_count.h"
#include "api/file_cache.h"
#include "api/main.h"
#include "api/network_flags.h"
#include "api/report_flags.h"
#include "glog/logging.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/cuda/cuda_kind.h"

ABSL_FLAG(std::string, nodes, "",
          "Node list file: a line `host[:port] [devices]` a node, the master first; the same file "
          "on every machine");
ABSL_FLAG(int, node_rank, -1,
          "Which line of --nodes this process is, from 0. Not given: what the launcher says, else "
          "the line with an address of this machine");
ABSL_FLAG(std::string, devices, "",
          "Devices of a node whose line of --nodes says none, e.g. cpu:4; auto: a CPU "
          "device for each processor. Empty: cpu:1");
ABSL_FLAG(int, ctrl_port, 0, "Control port of nodes whose line says none. 0: 9988");
ABSL_FLAG(absl::Duration, join_timeout, absl::Seconds(60), "How long nodes wait for each other");
ABSL_FLAG(std::string, simulate_nodes, "",
          "Several nodes inside this process: 2x4 is two nodes of four CPU devices, 1+2 one of one "
          "and one of two");
ABSL_FLAG(int, threads_per_device, 1, "Threads that one CPU device computes with");
ABSL_FLAG(std::string, precision, "f32",
          "What matrix products compute in: f32, or bf16 or f16 with f32 sums, variables and "
          "updates; f16 also scales the loss; tf32 is f32 whose products cards may round to TF32");
ABSL_FLAG(std::string, cuda_module, "",
          "File of Braid's module for CUDA. Empty: braid_cuda.so beside the program, in ../lib, or "
          "where the loader looks");
ABSL_FLAG(
    std::string, cuda_libraries, "",
    "Folders, separated by ':', where cuBLASLt, cuDNN, NCCL and NVRTC are looked for before the "
    "loader's own places");
ABSL_FLAG(bool, cuda_graphs, true,
          "Capture what a chain of kernels queues on a card, and launch it at once from then on");
ABSL_FLAG(bool, cuda_fusion, true,
          "Compile kernels that work element by element and follow one another into one, by NVRTC, "
          "when a job is loaded; what was compiled is kept in $XDG_CACHE_HOME/braid, else in "
          "~/.cache/braid");
ABSL_FLAG(bool, nccl, true,
          "Let cards of several nodes do collectives with each other by NCCL, where all nodes have "
          "it; without it they go through the hosts");
ABSL_FLAG(bool, winograd, true,
          "In f32, let convolutions with windows of 3 x 3 sum by Winograd's algorithm; without it "
          "they are slower, and their sums as they are written");
ABSL_FLAG(
    int64_t, channel_block, 0,
    "Most channels of the blocks in which tensors between convolutions lie on CPUs: 8 or 16; 0: as "
    "many as vectors of the master's CPU hold");
ABSL_FLAG(int64_t, check_replicas, -1,
          "After so many steps, and after the first, compare the variables that several devices "
          "hold; 0: never; -1: at the end of a job's first Run, and of those in which 1,000 steps "
          "have passed");
ABSL_FLAG(std::string, device_memory, "",
          "Memory of each device, e.g. 80GiB, to plan for machines that are not here. Empty: what "
          "there is, shared by the devices of a machine");
ABSL_FLAG(uint64_t, braid_seed, 0, "Seed of initial values, dropout and shuffling");
ABSL_FLAG(bool, dry_run, false, "Compile, print the plan's summary, and exit");
ABSL_FLAG(std::string, explain, "",
          "Write the whole plan to this file: ops, SBP, boxing, memory; as a graph if it ends in "
          ".dot, and those of later jobs to FILE.JOB.dot");
ABSL_FLAG(std::string, machine, "",
          "Rates of the cluster's devices and links, by which layouts and routes are chosen and a "
          "step's time is estimated: a file of lines `device cpu f32 1e11 flop/s`, `link network "
          "latency 2e-5 s`; or measured: what the nodes measure, so that another run may be laid "
          "out otherwise and have other last bits. Empty: fixed rates decide, and what the nodes "
          "measure is only for the estimates of --dry_run and --explain");
ABSL_FLAG(
    std::string, metrics_json, "",
    "Write a JSON line per fetched scalar and step, with its time; after loading a checkpoint "
    "behind what the file has");
ABSL_FLAG(bool, allow_nan, false, "Go on when a loss becomes NaN, which else ends the run");
ABSL_FLAG(bool, check_numerics, false,
          "Look at the numbers that each operator makes, and end the run at the first that makes a "
          "NaN or an infinity, with its line, the step and the ranges of its inputs; slow");
ABSL_FLAG(std::string, progress, "auto", "Progress bar: auto (on a terminal), on or off");

namespace braid {
namespace {

constexpr int kMostThreads = 1024;  // of a device

absl::StatusOr<int> ParseCount(const std::string& text, const std::string& flag) {
  int count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: '%s' is no count; a number of at least 1 was expected", flag, text));
  }
  return count;
}

// f32 to all but the products of cards.
constexpr std::string_view kTf32 = "tf32";

absl::StatusOr<DType> PrecisionOf(const std::string& text) {
  if (text == "f32" || text == kTf32) return DType::kF32;
  if (text == "bf16") return DType::kBF16;
  if (text == "f16") return DType::kF16;
  return absl::InvalidArgumentError(
      absl::StrFormat("--precision=%s; f32, tf32, bf16 or f16 was expected", text));
}

absl::StatusOr<Progress> ProgressOf(const std::string& text) {
  if (text == "auto") return Progress::kAuto;
  if (text == "on") return Progress::kOn;
  if (text == "off") return Progress::kOff;
  return absl::InvalidArgumentError(
      absl::StrFormat("--progress=%s; auto, on or off was expected", text));
}

// --machine=FILE.
absl::StatusOr<compiler::Machine> ReadMachine(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrFormat(
        "--machine=%s cannot be read; a file of rates, or 'measured', was expected", path));
  }
  return compiler::Machine::Parse(text.str(), path);
}

absl::Status ReadMachineFlag(ProgramFlags& flags) {
  SessionOptions& session = flags.session;
  const std::string machine = absl::GetFlag(FLAGS_machine);
  session.decides_by_measured = machine == "measured";
  if (!machine.empty() && !session.decides_by_measured) {
    BRAID_ASSIGN_OR_RETURN(session.machine, ReadMachine(machine));
    return absl::OkStatus();
  }
  flags.measures_machine =
      session.decides_by_measured || session.dry_run || !session.explain_path.empty();
  return absl::OkStatus();
}

absl::Status CheckDevices(const DeviceSpec& devices, int node, const DeviceKinds& kinds) {
  if (devices.is_auto()) return absl::OkStatus();
  return Prefixed(absl::StrFormat("node %d is to have devices %s", node, devices.ToString()),
                  kinds.Find(devices.type).status());
}

absl::StatusOr<Cluster> ClusterOfFlags(const ClusterOptions& defaults, const DeviceKinds& kinds) {
  ClusterOptions options = defaults;
  if (const std::string nodes = absl::GetFlag(FLAGS_nodes); !nodes.empty()) {
    options.nodes_file = nodes;
  }
  if (const int rank = absl::GetFlag(FLAGS_node_rank); rank != -1) {
    if (rank < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--node_rank=%d; a number of at least 0 was expected", rank));
    }
    options.node_rank = rank;
  }
  const std::string devices = absl::GetFlag(FLAGS_devices);
  if (!devices.empty()) {
    options.devices_per_node = devices;
  } else if (const auto launched = EnvironmentVariable("BRAID_DEVICES")) {
    options.devices_per_node = *launched;
  }
  if (const int port = absl::GetFlag(FLAGS_ctrl_port); port != 0) {
    if (port < 1 || port > 65535) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--ctrl_port=%d; a port from 1 to 65535 was expected", port));
    }
    options.ctrl_port = static_cast<uint16_t>(port);
  }
  BRAID_ASSIGN_OR_RETURN(
      Cluster cluster, FindCluster(options, EnvironmentVariable, [] { return LocalAddresses(); }));
  for (size_t node = 0; node < cluster.nodes.size(); ++node) {
    BRAID_RETURN_IF_ERROR(
        CheckDevices(*cluster.nodes[node].devices, static_cast<int>(node), kinds));
  }
  if (const DeviceSpec& own = *cluster.nodes[cluster.rank].devices; own.is_auto()) {
    LOG(INFO) << "node " << cluster.rank << " takes the devices " << DevicesHere(own).ToString()
              << ", one for each processor (auto)";
  }
  return cluster;
}

absl::StatusOr<NetworkOptions> NetworkOf(Cluster cluster) {
  NetworkOptions network;
  network.cluster = std::move(cluster);
  BRAID_ASSIGN_OR_RETURN(NetworkFlags common, ReadNetworkFlags());
  network.secret = std::move(common.secret);
  network.is_insecure = common.is_insecure;
  network.interface = std::move(common.interface);
  network.transport = std::move(common.transport);
  network.rdma = std::move(common.rdma);
  const absl::Duration join_timeout = absl::GetFlag(FLAGS_join_timeout);
  if (join_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--join_timeout=%s; a time of more than 0 was expected, e.g. 60s",
                        absl::FormatDuration(join_timeout)));
  }
  network.join_timeout = absl::ToInt64Nanoseconds(join_timeout);
  if (network.cluster.rank == 0) {
    BRAID_ASSIGN_OR_RETURN(const std::optional<int> control,
                           FindControlDescriptor(EnvironmentVariable));
    network.control_descriptor = control.value_or(-1);
  }
  return network;
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseSimulatedNodes(const std::string& text) {
  const std::string flag = "--simulate_nodes=" + text;
  const std::vector<std::string> product = absl::StrSplit(text, 'x');
  if (product.size() == 2) {
    BRAID_ASSIGN_OR_RETURN(const int nodes, ParseCount(product[0], flag));
    BRAID_ASSIGN_OR_RETURN(const int devices, ParseCount(product[1], flag));
    return std::vector<int>(nodes, devices);
  }
  std::vector<int> devices;
  for (const auto part : absl::StrSplit(text, '+')) {
    BRAID_ASSIGN_OR_RETURN(devices.emplace_back(), ParseCount(std::string(part), flag));
  }
  return devices;
}

absl::StatusOr<ProgramFlags> ReadFlags(const ClusterOptions& defaults,
                                       const DeviceKinds& device_kinds) {
  ProgramFlags flags;
  SessionOptions& session = flags.session;
  session.device_kinds = device_kinds;
  const auto cuda = std::make_shared<cuda::CudaOptions>();
  cuda->module = absl::GetFlag(FLAGS_cuda_module);
  cuda->libraries = absl::GetFlag(FLAGS_cuda_libraries);
  cuda->rounds_to_tf32 = absl::GetFlag(FLAGS_precision) == kTf32;
  cuda->sums_by_winograd = absl::GetFlag(FLAGS_winograd);
  cuda->uses_graphs = absl::GetFlag(FLAGS_cuda_graphs);
  cuda->uses_nccl = absl::GetFlag(FLAGS_nccl);
  cuda->fuses_kernels = absl::GetFlag(FLAGS_cuda_fusion);
  const FileCache cache(CacheFolder(), "cuda");
  cuda->cache = {
      .read = [cache](const std::string& key) { return cache.Read(key); },
      .keep = [cache](const std::string& key, const std::string& code) { cache.Keep(key, code); }};
  BRAID_RETURN_IF_ERROR(session.device_kinds.Register("cuda", cuda::CudaKind(cuda)));
  if (const std::string simulated = absl::GetFlag(FLAGS_simulate_nodes); !simulated.empty()) {
    for (const auto& [flag, value] : {std::pair("devices", absl::GetFlag(FLAGS_devices)),
                                      std::pair("nodes", absl::GetFlag(FLAGS_nodes))}) {
      if (!value.empty()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "--simulate_nodes=%s says which nodes and devices there are, and --%s=%s "
            "says something else; give one of them",
            simulated, flag, value));
      }
    }
    BRAID_ASSIGN_OR_RETURN(session.devices, ParseSimulatedNodes(simulated));
  } else {
    BRAID_ASSIGN_OR_RETURN(Cluster cluster, ClusterOfFlags(defaults, session.device_kinds));
    cuda->card = cluster.nodes[cluster.rank].devices->card;
    flags.is_master = cluster.rank == 0;
    if (cluster.nodes.size() == 1) {
      const DeviceSpec devices = DevicesHere(*cluster.nodes[0].devices);
      session.devices = {devices.count};
      session.node_kinds = {devices.type};
    } else {
      BRAID_ASSIGN_OR_RETURN(session.network, NetworkOf(std::move(cluster)));
    }
  }
  session.threads_per_device = absl::GetFlag(FLAGS_threads_per_device);
  if (session.threads_per_device < 1 || session.threads_per_device > kMostThreads) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--threads_per_device=%d; 1 to %d was expected, and no more than a "
                        "device's share of the processors is of use",
                        session.threads_per_device, kMostThreads));
  }
  BRAID_ASSIGN_OR_RETURN(session.precision, PrecisionOf(absl::GetFlag(FLAGS_precision)));
  session.winograd = absl::GetFlag(FLAGS_winograd);
  if (const int64_t block = absl::GetFlag(FLAGS_channel_block); block != 0) {
    session.channel_block = block;
  }
  if (const std::string text = absl::GetFlag(FLAGS_device_memory); !text.empty()) {
    BRAID_ASSIGN_OR_RETURN(session.device_memory_bytes, ParseByteCount("--device_memory", text));
  }
  if (const int64_t every = absl::GetFlag(FLAGS_check_replicas); every >= 0) {
    session.check_replicas = every;
  } else if (every != -1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--check_replicas=%d; a number of steps, 0 for never, or -1 was expected", every));
  }
  session.seed = absl::GetFlag(FLAGS_braid_seed);
  session.dry_run = absl::GetFlag(FLAGS_dry_run);
  session.explain_path = absl::GetFlag(FLAGS_explain);
  session.metrics_path = absl::GetFlag(FLAGS_metrics_json);
  session.allow_nan = absl::GetFlag(FLAGS_allow_nan);
  session.check_numerics = absl::GetFlag(FLAGS_check_numerics);
  BRAID_RETURN_IF_ERROR(ReadMachineFlag(flags));
  BRAID_ASSIGN_OR_RETURN(ReportFlags reports, ReadReportFlags());
  if (reports.stall_timeout.has_value()) session.stall_timeout = *reports.stall_timeout;
  session.event_dump = std::move(reports.event_dump);
  BRAID_ASSIGN_OR_RETURN(session.progress, ProgressOf(absl::GetFlag(FLAGS_progress)));
  return flags;
}

}  // namespace braid
