#include "api/dist_init.h"

#include <glog/logging.h>

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "comm/cluster/host_and_port.h"
#include "comm/cluster/launcher_environment.h"
#include "comm/cluster/node_list.h"
#include "comm/control/secret.h"
#include "comm/transport.h"
#include "runtime/base/status.h"

namespace braid::dist {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kFile = "file://";

// A number of the user's, and where it comes from.
struct Given {
  int value = -1;
  std::string origin = {};  // "RANK", "rank in tcp://..."
};

absl::StatusOr<int> ParseNumber(const std::string& origin, const std::string& text) {
  int value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= 0) return value;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is '%s'; a number from 0 on was expected", origin, text));
}

struct Meeting {
  HostAndPort master;
  std::string file;  // in which the master says where it is; "": known
  Given rank, world_size;
  int control_descriptor = -1;  // the master's listening socket, if a launcher has made it
};

// Where neither the address nor the options say it.
absl::Status ReadVariable(const InitOptions& options, const char* variable, Given& out) {
  const std::optional<std::string> text = options.environment(variable);
  if (out.value >= 0 || !text.has_value()) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(out.value, ParseNumber(variable, *text));
  out.origin = variable;
  return absl::OkStatus();
}

absl::StatusOr<Meeting> MeetByEnvironment(const InitOptions& options) {
  Meeting meeting;
  const auto read = [&](const char* variable, int given, Given& out) -> absl::Status {
    out = {given, "InitOptions"};
    BRAID_RETURN_IF_ERROR(ReadVariable(options, variable, out));
    if (out.value >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("env://: %s is not set; a launcher sets RANK, WORLD_SIZE, MASTER_ADDR and "
                        "MASTER_PORT for each process",
                        variable));
  };
  BRAID_RETURN_IF_ERROR(read("RANK", options.rank, meeting.rank));
  BRAID_RETURN_IF_ERROR(read("WORLD_SIZE", options.world_size, meeting.world_size));
  const std::optional<std::string> address = options.environment("MASTER_ADDR");
  if (!address.has_value()) {
    return absl::InvalidArgumentError(
        "env://: MASTER_ADDR is not set; it is the host of rank 0, the same for all ranks");
  }
  BRAID_RETURN_IF_ERROR(CheckHost(*address));
  meeting.master = {.host = *address, .port = kDefaultGroupPort};
  if (const std::optional<std::string> port = options.environment("MASTER_PORT")) {
    BRAID_ASSIGN_OR_RETURN(const int number, ParseNumber("MASTER_PORT", *port));
    if (number < 1 || number > std::numeric_limits<uint16_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("MASTER_PORT is %d; a port from 1 to 65535 was expected", number));
    }
    meeting.master.port = static_cast<uint16_t>(number);
  }
  return meeting;
}

// "rank=R&world_size=N" behind the address; what is not there is as the options say.
absl::Status ReadQuery(const InitOptions& options, const std::string& query, Meeting& meeting) {
  const std::string& method = options.init_method;
  meeting.rank = {options.rank, "InitOptions"};
  meeting.world_size = {options.world_size, "InitOptions"};
  const std::vector<std::string> items = absl::StrSplit(query, '&', absl::SkipEmpty());
  for (const std::string& item : items) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(item, absl::MaxSplits('=', 1));
    const std::string origin = absl::StrFormat("%s in %s", pair.first, method);
    if (pair.first != "rank" && pair.first != "world_size") {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is not known; rank and world_size are", origin));
    }
    Given& given = pair.first == "rank" ? meeting.rank : meeting.world_size;
    BRAID_ASSIGN_OR_RETURN(given.value, ParseNumber(origin, pair.second));
    given.origin = origin;
  }
  return absl::OkStatus();
}

// tcp://host:port?rank=R&world_size=N
absl::StatusOr<Meeting> MeetByAddress(const InitOptions& options) {
  const std::string& method = options.init_method;
  Meeting meeting;
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(method.substr(kTcp.size()), absl::MaxSplits('?', 1));
  BRAID_ASSIGN_OR_RETURN(meeting.master, ParseHostAndPort(parts.first));
  if (meeting.master.port == 0) meeting.master.port = kDefaultGroupPort;
  BRAID_RETURN_IF_ERROR(ReadQuery(options, parts.second, meeting));
  if (meeting.rank.value < 0 || meeting.world_size.value < 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s does not say the %s of this process, nor do InitOptions; tcp://%s?rank=R&world_size=N "
        "does",
        method, meeting.rank.value < 0 ? "rank" : "world_size", FormatHostAndPort(meeting.master)));
  }
  return meeting;
}

// file:///path?rank=R&world_size=N
absl::StatusOr<Meeting> MeetByFile(const InitOptions& options) {
  const std::string& method = options.init_method;
  Meeting meeting;
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(method.substr(kFile.size()), absl::MaxSplits('?', 1));
  meeting.file = parts.first;
  if (!meeting.file.starts_with('/') || meeting.file.ends_with('/')) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "init_method is '%s', and '%s' is no absolute path of a file; "
        "file:///FOLDER/NAME was expected, with three slashes, in a folder that all "
        "ranks reach",
        method, meeting.file));
  }
  BRAID_RETURN_IF_ERROR(ReadQuery(options, parts.second, meeting));
  BRAID_RETURN_IF_ERROR(ReadVariable(options, "RANK", meeting.rank));
  BRAID_RETURN_IF_ERROR(ReadVariable(options, "WORLD_SIZE", meeting.world_size));
  if (meeting.rank.value < 0 || meeting.world_size.value < 0) {
    const bool is_rank = meeting.rank.value < 0;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s does not say the %s of this process, nor do InitOptions and the "
        "variable %s; file://%s?rank=R&world_size=N does",
        method, is_rank ? "rank" : "world_size", is_rank ? "RANK" : "WORLD_SIZE", meeting.file));
  }
  return meeting;
}

// What mpirun, mpiexec, srun or `braid launch` of nodes say, which set no RANK. None: a world of
// one.
absl::StatusOr<std::optional<Meeting>> MeetByLauncher(const InitOptions& options,
                                                      std::string& origin) {
  BRAID_ASSIGN_OR_RETURN(const std::optional<Launcher> launcher, FindLauncher(options.environment));
  if (!launcher.has_value() || !launcher->rank.has_value() || !launcher->size.has_value() ||
      launcher->size->value == 1) {
    const std::string warning = DescribeMissingSrun(options.environment);
    if (!warning.empty()) LOG(WARNING) << warning;
    return std::optional<Meeting>();
  }
  origin = launcher->origin;
  Meeting meeting;
  BRAID_ASSIGN_OR_RETURN(meeting.master, launcher->master);
  if (meeting.master.port == 0) meeting.master.port = launcher->default_port;
  if (meeting.master.port == 0) meeting.master.port = kDefaultGroupPort;
  meeting.rank = {launcher->rank->value, launcher->rank->variable};
  meeting.world_size = {launcher->size->value, launcher->size->variable};
  if (meeting.rank.value == 0) {
    BRAID_ASSIGN_OR_RETURN(const std::optional<int> control,
                           FindControlDescriptor(options.environment));
    meeting.control_descriptor = control.value_or(-1);
  }
  return std::optional<Meeting>(std::move(meeting));
}

}  // namespace

absl::StatusOr<std::optional<NetworkOptions>> FindWorld(const InitOptions& options) {
  std::string method = options.init_method;
  Meeting meeting;
  if (method.empty()) {
    const bool is_told =
        options.environment("RANK").has_value() || options.environment("WORLD_SIZE").has_value();
    if (is_told || options.rank > 0 || options.world_size > 1) method = "env://";
  }
  if (method.empty()) {
    BRAID_ASSIGN_OR_RETURN(const std::optional<Meeting> launched, MeetByLauncher(options, method));
    if (!launched.has_value()) return std::optional<NetworkOptions>();
    meeting = *launched;
  } else if (method == "env://") {
    BRAID_ASSIGN_OR_RETURN(meeting, MeetByEnvironment(options));
  } else if (method.starts_with(kTcp)) {
    BRAID_ASSIGN_OR_RETURN(meeting, MeetByAddress(options));
  } else if (method.starts_with(kFile)) {
    BRAID_ASSIGN_OR_RETURN(meeting, MeetByFile(options));
  } else {
    return absl::InvalidArgumentError(absl::StrFormat(
        "init_method is '%s'; env://, tcp://HOST:PORT?rank=R&world_size=N or file:///PATH was "
        "expected",
        method));
  }
  const auto& [rank, size] = std::pair(meeting.rank, meeting.world_size);
  if (size.value < 1 || size.value > std::numeric_limits<uint16_t>::max()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the world size is %d (%s); 1 to 65535 ranks were expected", size.value, size.origin));
  }
  if (rank.value >= size.value) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rank %d (%s) is out of range: the world has ranks 0 to %d (%s)",
                        rank.value, rank.origin, size.value - 1, size.origin));
  }
  BRAID_RETURN_IF_ERROR(CheckTransportNames("InitOptions::transport", options.transport));
  if (options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the timeout is %s; more than zero was expected", absl::FormatDuration(options.timeout)));
  }
  if (options.stall_timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the stall timeout is %s; zero or more was expected",
                        absl::FormatDuration(options.stall_timeout)));
  }
  NetworkOptions network;
  network.cluster.nodes.assign(size.value, {.host = {}, .devices = DeviceSpec()});
  network.cluster.nodes[0].host = meeting.master.host;
  network.cluster.nodes[0].port = meeting.master.port;
  network.cluster.rank = rank.value;
  network.cluster.origin = method;
  network.cluster.member_word = "rank";
  network.secret = options.secret;
  if (network.secret.empty()) {
    BRAID_ASSIGN_OR_RETURN(network.secret, ReadSecret("", options.environment));
  }
  network.is_insecure = options.is_insecure;
  network.interface = options.interface;
  network.transport = options.transport;
  network.rdma = {.device = options.rdma_device, .gid = options.rdma_gid};
  network.join_timeout = absl::ToInt64Nanoseconds(options.timeout);
  network.meeting_file = meeting.file;
  network.control_descriptor = meeting.control_descriptor;
  // Where nothing keeps others out, and nothing says which network they come by, they are of this
  // machine.
  if (!meeting.file.empty() && network.secret.empty() && !network.is_insecure &&
      network.interface.empty()) {
    network.cluster.nodes[0].host = "127.0.0.1";
  }
  return std::optional<NetworkOptions>(std::move(network));
}

}  // namespace braid::dist
