#include "api/main.h"

#include <glog/logging.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

ABSL_FLAG(std::string, devices, "cpu:1", "Devices of this node, e.g. cpu:4");
ABSL_FLAG(std::string, simulate_nodes, "",
          "Several nodes inside this process: 2x4 is two nodes of four CPU devices, 1+2 one of one "
          "and one of two. Empty: one node with --devices");
ABSL_FLAG(int, threads_per_device, 1, "Threads that one CPU device computes with");
ABSL_FLAG(uint64_t, braid_seed, 0, "Seed of initial values, dropout and shuffling");
ABSL_FLAG(bool, dry_run, false, "Compile, print the plan's summary, and exit");
ABSL_FLAG(std::string, explain, "",
          "Write the whole plan to this file: ops, SBP, boxing, memory; as a graph if it ends in "
          ".dot");
ABSL_FLAG(std::string, metrics_json, "", "Write a JSON line per fetched scalar and step");
ABSL_FLAG(std::string, progress, "auto", "Progress bar: auto (on a terminal), on or off");

namespace braid {
namespace {

absl::StatusOr<int> ParseCount(const std::string& text, const std::string& flag) {
  int count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: '%s' is no count; a number of at least 1 was expected", flag, text));
  }
  return count;
}

absl::StatusOr<SessionOptions> OptionsOfFlags() {
  SessionOptions options;
  const std::string nodes = absl::GetFlag(FLAGS_simulate_nodes);
  if (nodes.empty()) {
    ASSIGN_OR_RETURN(const int devices, ParseDevices(absl::GetFlag(FLAGS_devices)));
    options.devices = {devices};
  } else {
    if (absl::GetFlag(FLAGS_devices) != "cpu:1") {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--simulate_nodes=%s says every node's devices and --devices=%s others; give one of them",
          nodes, absl::GetFlag(FLAGS_devices)));
    }
    ASSIGN_OR_RETURN(options.devices, ParseSimulatedNodes(nodes));
  }
  options.threads_per_device = absl::GetFlag(FLAGS_threads_per_device);
  if (options.threads_per_device < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--threads_per_device=%d; at least 1 was expected", options.threads_per_device));
  }
  options.seed = absl::GetFlag(FLAGS_braid_seed);
  options.dry_run = absl::GetFlag(FLAGS_dry_run);
  options.explain_path = absl::GetFlag(FLAGS_explain);
  options.metrics_path = absl::GetFlag(FLAGS_metrics_json);
  const std::string progress = absl::GetFlag(FLAGS_progress);
  if (progress == "auto") {
    options.progress = Progress::kAuto;
  } else if (progress == "on") {
    options.progress = Progress::kOn;
  } else if (progress == "off") {
    options.progress = Progress::kOff;
  } else {
    return absl::InvalidArgumentError(
        absl::StrFormat("--progress=%s; auto, on or off was expected", progress));
  }
  return options;
}

absl::Status RunProgram(const std::function<absl::Status(Session&)>& program) {
  ASSIGN_OR_RETURN(SessionOptions options, OptionsOfFlags());
  const bool dry_run = options.dry_run;
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Start(std::move(options)));
  const absl::Status status = program(*session);
  return dry_run && absl::IsCancelled(status) ? absl::OkStatus() : status;
}

}  // namespace

absl::StatusOr<int> ParseDevices(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 2 || parts[0] != "cpu") {
    return absl::InvalidArgumentError(
        absl::StrFormat("--devices=%s; cpu:N was expected, e.g. cpu:4 for four CPU devices", text));
  }
  return ParseCount(parts[1], "--devices=" + text);
}

absl::StatusOr<std::vector<int>> ParseSimulatedNodes(const std::string& text) {
  const std::string flag = "--simulate_nodes=" + text;
  const std::vector<std::string> product = absl::StrSplit(text, 'x');
  if (product.size() == 2) {
    ASSIGN_OR_RETURN(const int nodes, ParseCount(product[0], flag));
    ASSIGN_OR_RETURN(const int devices, ParseCount(product[1], flag));
    return std::vector<int>(nodes, devices);
  }
  std::vector<int> devices;
  for (const auto part : absl::StrSplit(text, '+')) {
    ASSIGN_OR_RETURN(devices.emplace_back(), ParseCount(std::string(part), flag));
  }
  return devices;
}

int Main(int argc, char** argv, const std::function<absl::Status(Session&)>& program) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = RunProgram(program);
  if (status.ok()) return 0;
  std::cout << std::flush;
  std::cerr << "error: " << status.message() << "\n";
  return 1;
}

}  // namespace braid
