// Machines, environments and errors for the tests of which nodes there are and which one this is.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/cluster/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/temp_dir.h"

namespace braid {

using Variables = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

inline void ExpectError(const absl::Status& status, const Words& words) {
  ASSERT_FALSE(status.ok());
  const std::string message(status.message());
  for (const std::string& word : words) EXPECT_THAT(message, ::testing::HasSubstr(word));
}

inline EnvironmentVariables EnvironmentOf(Variables variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
}

// FindCluster on a machine with two addresses, 10.0.0.2 and fd00::2, besides a loopback one.
inline absl::StatusOr<Cluster> Find(const ClusterOptions& options, const Variables& variables) {
  const auto local_addresses = [] {
    std::vector<SocketAddress> addresses;
    for (const char* address : {"127.0.0.1:0", "10.0.0.2:0", "[fd00::2]:0"}) {
      addresses.push_back(*SocketAddress::Parse(address));
    }
    return absl::StatusOr<std::vector<SocketAddress>>(addresses);
  };
  return FindCluster(options, EnvironmentOf(variables), local_addresses);
}

class WithNodeFile : public ::testing::Test {
 protected:
  // The path of a file nodes.txt with this text.
  std::string File(const std::string& text) {
    PutFile(dir_ / "nodes.txt", text);
    return dir_ / "nodes.txt";
  }

  TempDir dir_;
};

// What a task of `srun -N2 -n3` sees in Slurm 22.05.
inline Variables SlurmTask(const std::string& rank, const Variables& others = {}) {
  Variables variables = {{"SLURM_JOB_ID", "12"},
                         {"SLURM_JOB_NODELIST", "n[0-3]"},
                         {"SLURM_JOB_NUM_NODES", "4"},
                         {"SLURM_NTASKS", "4"},
                         {"SLURM_PROCID", rank},
                         {"SLURM_STEP_ID", "1"},
                         {"SLURM_STEP_NODELIST", "n[2-3]"},
                         {"SLURM_STEP_NUM_TASKS", "3"}};
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

// The variables without some of them.
inline Variables Without(Variables variables, const Words& names) {
  for (const std::string& name : names) variables.erase(name);
  return variables;
}

// A batch script's own shell: a rank, but no step.
inline Variables BatchScript() {
  return Without(SlurmTask("0"), {"SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"});
}

inline const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
inline const Variables kMpich = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}};
inline const Variables kHandMade = {{"NODE_RANK", "1"}, {"NNODES", "2"}, {"MASTER_ADDR", "n0"}};
inline const Variables kBraidLaunch = {
    {"BRAID_NODE_RANK", "1"}, {"BRAID_NUM_NODES", "2"}, {"BRAID_MASTER", "127.0.0.1:4711"}};

// What `a` and `b` say; `a` where both say something.
inline Variables Join(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

}  // namespace braid
