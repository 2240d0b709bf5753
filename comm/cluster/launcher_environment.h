// What the program that started this process left in the environment: how many nodes there are,
// which of them this is, and where the master is.
//
// Several launchers may have been here, one inside the other: mpirun starts its daemons through
// Slurm, and `braid launch` runs anywhere. The innermost knows best, so they are asked in this
// order:
//   1. braid launch: BRAID_NODE_RANK, BRAID_NUM_NODES, BRAID_MASTER=host:port.
//   2. Open MPI: OMPI_COMM_WORLD_RANK/SIZE; MPICH and Intel MPI: PMI_RANK/PMI_SIZE. The master is
//   at
//      MASTER_ADDR (MASTER_PORT); if all ranks are on one host, at 127.0.0.1 without asking.
//      (srun --mpi=pmi2 sets PMI_*, too: if they say what the Slurm step says, the step is it.)
//   3. A Slurm step, one task a node: SLURM_PROCID, SLURM_STEP_NUM_TASKS; the master is at the
//   first
//      host of SLURM_STEP_NODELIST. A batch script and the shell of salloc are no steps.
//   4. By hand: NODE_RANK/NNODES with MASTER_ADDR (MASTER_PORT).
// RANK and WORLD_SIZE belong to process groups and never mean a node.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "comm/cluster/host_and_port.h"

namespace braid {

// The value of a variable, or none if it is not set.
using EnvironmentVariables = std::function<std::optional<std::string>(const std::string& name)>;
// This process's own.
std::optional<std::string> EnvironmentVariable(const std::string& name);

// A number with the variable that it comes from, for messages.
struct EnvironmentNumber {
  std::string variable;
  int value = 0;

  bool operator==(const EnvironmentNumber&) const = default;
  std::string ToString() const;  // "NNODES=4"
};

struct Launcher {
  std::string origin;  // "Slurm job 12, step 0"
  // One of them may be missing where users set the variables themselves (1 and 4).
  std::optional<EnvironmentNumber> rank;
  std::optional<EnvironmentNumber> size;
  std::string size_variable;  // the variable to set where size is missing
  // Or what to do so that it is known; port 0: the default. Asked only if nobody lists the nodes.
  absl::StatusOr<HostAndPort> master = HostAndPort();
  uint16_t default_port = 0;  // MASTER_PORT; 0: not given
};

// None if no launcher was here. A value that is no number is an error with the variable, the value
// and what was expected.
absl::StatusOr<std::optional<Launcher>> FindLauncher(const EnvironmentVariables& env);

// BRAID_NODE_RANK, which goes before what other launchers say.
absl::StatusOr<std::optional<EnvironmentNumber>> FindBraidNodeRank(const EnvironmentVariables& env);

// BRAID_CTRL_DESCRIPTOR, by which `braid launch` gives the first node the socket that it listens
// at: nobody else can take its port meanwhile.
absl::StatusOr<std::optional<int>> FindControlDescriptor(const EnvironmentVariables& env);

// A process among those of its machine that one launcher started.
struct LocalPlace {
  int rank = 0;
  int size = 1;  // 0: only the rank is known
};
// LOCAL_RANK and, which scripts may leave out, LOCAL_WORLD_SIZE; else what Open MPI, MPICH, Intel
// MPI or a Slurm step say, unless `braid launch` started nodes inside of it; 0 of 1 if nothing
// does. An error has the variable, its value and what was expected.
absl::StatusOr<LocalPlace> FindLocalPlace(const EnvironmentVariables& env);

// "" or, for a process alone in a Slurm job of several tasks that srun did not start (a batch
// script runs its commands once, not once a node), what its user should know.
std::string DescribeMissingSrun(const EnvironmentVariables& env);

// The ranks of a world that one program starts on a machine.
struct LocalRanks {
  HostAndPort master;
  int world_size = 1;
  int first = 0;  // the rank of the first of them
  int count = 1;
  std::string secret;  // "": none
};
// What the `local`-th of them, from 0, finds in its environment, as torch.distributed's do.
std::map<std::string, std::string> VariablesOfRank(const LocalRanks& ranks, int local);

// The first of Slurm's host list: node03 of "node[03-05,9],gpu1", a1b3 of "a[1-2]b[3-4]".
absl::StatusOr<std::string> FirstSlurmHost(std::string_view list);

}  // namespace braid
