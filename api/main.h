// The entry of a Braid program: flags, cluster, session or service, and what goes wrong, said once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/session.h"
#include "comm/cluster/cluster.h"
#include "graph/op_registry.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/device/device_kinds.h"
#include "runtime/kernels/kernel.h"

namespace braid {

struct MainOptions {
  // What --help says that the program does.
  std::string about = "A program of Braid: one device's program, run by all that the flags name.";
  ClusterOptions cluster = {};    // flags override it
  DeviceKinds device_kinds = {};  // that --devices and node lists may name
  // That the program's readers may name, in every process of the cluster.
  DatasetKinds dataset_kinds = {};
  // The program's own operators and kernels. Called in every process of the cluster, since the
  // nodes run kernels of operators that only the master records.
  std::function<absl::Status(OpRegistry& operators, KernelRegistry& kernels)> extend = {};
};

// Parses the command line (Abseil flags; --help lists them, other words are an error) and finds out
// which node of which cluster this process is. On the master (also if it is alone) starts a
// Session, calls `program` and ends everything; on any other node serves until the session ends.
// Returns the process's exit code: 0; 1 after printing the error, also if standard output could not
// be written; 128 + the signal if SIGINT or SIGTERM ended it.
//
// A failure anywhere ends the process at most 3 s after it is known, also while `program` computes.
int Main(int argc, char** argv, const MainOptions& options,
         const std::function<absl::Status(Session&)>& program);
int Main(int argc, char** argv, const std::function<absl::Status(Session&)>& program);

// "2x3" -> {3, 3}; "1+2" -> {1, 2}: CPU devices of each node.
absl::StatusOr<std::vector<int>> ParseSimulatedNodes(const std::string& text);

}  // namespace braid
