// Every launcher's environment: the cluster it says, the launcher that wins, and what is wrong with
// it.
#include "comm/cluster/launcher_environment.h"

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "tests/comm/cluster_case.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct LauncherCase {
  std::string name;
  Variables variables;
  ClusterOptions options = {};
  std::string cluster;  // "origin: rank of size, master host:port"
};

std::vector<LauncherCase> LauncherCases() {
  return {
      {"alone", {}, {}, "this machine alone: 0 of 1, master 127.0.0.1:9988"},
      {"alone, other port", {}, {.ctrl_port = 7}, "this machine alone: 0 of 1, master 127.0.0.1:7"},
      {"alone, rank 0", {}, {.node_rank = 0}, "this machine alone: 0 of 1, master 127.0.0.1:9988"},
      {"RANK and WORLD_SIZE are no node's",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "n0"}},
       {},
       "this machine alone: 0 of 1, master 127.0.0.1:9988"},

      {"braid launch", kBraidLaunch, {}, "braid launch: 1 of 2, master 127.0.0.1:4711"},
      {"braid launch, IPv6",
       {{"BRAID_NODE_RANK", "0"}, {"BRAID_NUM_NODES", "2"}, {"BRAID_MASTER", "[::1]:4711"}},
       {},
       "braid launch: 0 of 2, master [::1]:4711"},
      {"BRAID_MASTER's port goes before --ctrl_port",
       kBraidLaunch,
       {.ctrl_port = 5},
       "braid launch: 1 of 2, master 127.0.0.1:4711"},
      {"braid launch, no port",
       {{"BRAID_NODE_RANK", "0"}, {"BRAID_NUM_NODES", "2"}, {"BRAID_MASTER", "n0"}},
       {.ctrl_port = 5},
       "braid launch: 0 of 2, master n0:5"},
      {"braid launch, rank by flag",
       {{"BRAID_NUM_NODES", "2"}, {"BRAID_MASTER", "n0"}},
       {.node_rank = 1},
       "braid launch: 1 of 2, master n0:9988"},

      {"Slurm", SlurmTask("2"), {}, "Slurm job 12, step 1: 2 of 3, master n2:9988"},
      {"Slurm, other port",
       SlurmTask("0"),
       {.ctrl_port = 7000},
       "Slurm job 12, step 1: 0 of 3, master n2:7000"},
      {"Slurm: without the step's variables the job's count",
       Without(SlurmTask("3"), {"SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"}),
       {},
       "Slurm job 12, step 1: 3 of 4, master n0:9988"},
      {"Slurm: the oldest name of the list",
       Join(Without(SlurmTask("1"), {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}),
            {{"SLURM_NODELIST", "old[07-09]"}}),
       {},
       "Slurm job 12, step 1: 1 of 3, master old07:9988"},
      {"Slurm, one host: no name needs to resolve",
       SlurmTask("1", {{"SLURM_STEP_NODELIST", "n2"}}),
       {},
       "Slurm job 12, step 1: 1 of 3, master 127.0.0.1:9988"},
      {"Slurm, one host, any order of tasks",
       SlurmTask("1", {{"SLURM_STEP_NODELIST", "n2"}, {"SLURM_DISTRIBUTION", "arbitrary"}}),
       {},
       "Slurm job 12, step 1: 1 of 3, master 127.0.0.1:9988"},
      {"Slurm, rank by flag",
       SlurmTask("1"),
       {.node_rank = 2},
       "Slurm job 12, step 1: 2 of 3, master n2:9988"},
      {"Slurm, rank by BRAID_NODE_RANK",
       SlurmTask("1", {{"BRAID_NODE_RANK", "0"}}),
       {},
       "Slurm job 12, step 1: 0 of 3, master n2:9988"},
      {"a batch script is no step",
       BatchScript(),
       {},
       "this machine alone: 0 of 1, master 127.0.0.1:9988"},
      {"the shell of salloc is no step",
       SlurmTask("0", {{"SLURM_STEP_ID", "4294967290"}}),
       {},
       "this machine alone: 0 of 1, master 127.0.0.1:9988"},

      {"Open MPI",
       Join(kOpenMpi, {{"MASTER_ADDR", "n0"}}),
       {},
       "mpirun (Open MPI): 1 of 4, master n0:9988"},
      {"Open MPI, MASTER_PORT",
       Join(kOpenMpi, {{"MASTER_ADDR", "fd00::3"}, {"MASTER_PORT", "29500"}}),
       {},
       "mpirun (Open MPI): 1 of 4, master [fd00::3]:29500"},
      {"--ctrl_port goes before MASTER_PORT",
       Join(kOpenMpi, {{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}}),
       {.ctrl_port = 5},
       "mpirun (Open MPI): 1 of 4, master n0:5"},
      {"Open MPI on one host",
       {{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
       {},
       "mpirun (Open MPI): 3 of 4, master 127.0.0.1:9988"},
      {"Open MPI, one process",
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
       {},
       "mpirun (Open MPI): 0 of 1, master 127.0.0.1:9988"},
      {"MPICH",
       Join(kMpich, {{"MASTER_ADDR", "10.0.0.1"}}),
       {},
       "mpiexec (PMI): 2 of 4, master 10.0.0.1:9988"},
      {"MPICH on one host",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}},
       {},
       "mpiexec (PMI): 1 of 2, master 127.0.0.1:9988"},

      {"NODE_RANK", kHandMade, {}, "NODE_RANK/NNODES: 1 of 2, master n0:9988"},
      {"NODE_RANK, MASTER_PORT",
       Join(kHandMade, {{"MASTER_PORT", "29500"}}),
       {},
       "NODE_RANK/NNODES: 1 of 2, master n0:29500"},
      {"NODE_RANK, one node",
       {{"NODE_RANK", "0"}, {"NNODES", "1"}},
       {},
       "NODE_RANK/NNODES: 0 of 1, master 127.0.0.1:9988"},
      {"NNODES, rank by flag",
       {{"NNODES", "2"}, {"MASTER_ADDR", "n0"}},
       {.node_rank = 1},
       "NODE_RANK/NNODES: 1 of 2, master n0:9988"},
      {"NODE_RANK in a batch script",
       Join(BatchScript(), kHandMade),
       {},
       "NODE_RANK/NNODES: 1 of 2, master n0:9988"},

      // One launcher inside the other.
      {"mpirun in salloc",
       Join(Join(Without(BatchScript(), {"SLURM_PROCID"}), kOpenMpi), {{"MASTER_ADDR", "n0"}}),
       {},
       "mpirun (Open MPI): 1 of 4, master n0:9988"},
      {"mpirun's daemons are a Slurm step",
       Join(SlurmTask("0", {{"MASTER_ADDR", "n0"}}), kOpenMpi),
       {},
       "mpirun (Open MPI): 1 of 4, master n0:9988"},
      {"mpiexec's daemons are a Slurm step",
       SlurmTask("0", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}),
       {},
       "mpiexec (PMI): 1 of 2, master 127.0.0.1:9988"},
      {"srun --mpi=pmi2 is Slurm",
       SlurmTask("2", {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MASTER_ADDR", "elsewhere"}}),
       {},
       "Slurm job 12, step 1: 2 of 3, master n2:9988"},
      {"Slurm goes before NODE_RANK",
       Join(SlurmTask("0"), kHandMade),
       {},
       "Slurm job 12, step 1: 0 of 3, master n2:9988"},
      {"braid launch goes before all",
       Join(Join(Join(SlurmTask("2"), kOpenMpi), kHandMade), kBraidLaunch),
       {},
       "braid launch: 1 of 2, master 127.0.0.1:4711"},
  };
}

TEST(LauncherTest, SaysTheClusterAndTheRank) {
  for (const LauncherCase& c : LauncherCases()) {
    SCOPED_TRACE(c.name);
    ClusterOptions options = c.options;
    options.devices_per_node = "cpu:3";
    const absl::StatusOr<Cluster> cluster = Find(options, c.variables);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const std::vector<ClusterNode>& nodes = cluster->nodes;
    EXPECT_EQ(absl::StrFormat("%s: %d of %d, master %s", cluster->origin, cluster->rank,
                              nodes.size(), FormatHostAndPort({nodes[0].host, nodes[0].port})),
              c.cluster);
    EXPECT_EQ(cluster->knows_all_hosts, cluster->origin == "this machine alone");
    const DeviceSpec devices{.count = 3};
    EXPECT_EQ(nodes[0].devices, devices);
    for (size_t i = 1; i < nodes.size(); ++i) {
      EXPECT_EQ(nodes[i], (ClusterNode{.devices = devices}));
    }
  }
}

TEST(LauncherTest, TextLeavesOutHosts) {
  const absl::StatusOr<Cluster> cluster = Find({.devices_per_node = "cpu:2"}, kHandMade);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->ToString(), "* cpu:2\n* cpu:2\n");
}

struct LauncherErrorCase {
  Variables variables;
  Words words;
  ClusterOptions options = {};
};

TEST(LauncherTest, ErrorsNameTheVariableBothValuesAndTheRemedy) {
  const std::vector<LauncherErrorCase> cases = {
      // Numbers.
      {SlurmTask("x"), {"SLURM_PROCID='x'", "a number from 0 to 65534"}},
      {SlurmTask("-1"), {"SLURM_PROCID='-1'", "a number from 0"}},
      {SlurmTask(""), {"SLURM_PROCID=''", "a number from 0"}},
      {SlurmTask(" 1"), {"SLURM_PROCID=' 1'"}},
      {SlurmTask("+1"), {"SLURM_PROCID='+1'"}},
      {SlurmTask("1e0"), {"SLURM_PROCID='1e0'"}},
      {SlurmTask("99999999999999999999"), {"SLURM_PROCID='99999999999999999999'"}},
      {SlurmTask("3"), {"SLURM_PROCID=3, but SLURM_STEP_NUM_TASKS=3", "from 0 to 2"}},
      {SlurmTask("0", {{"SLURM_STEP_NUM_TASKS", "0"}}),
       {"SLURM_STEP_NUM_TASKS='0'", "a number from 1 to 65535"}},
      {SlurmTask("0", {{"SLURM_STEP_NUM_TASKS", "65536"}}), {"SLURM_STEP_NUM_TASKS='65536'"}},
      {Join({{"OMPI_COMM_WORLD_RANK", "4"}}, kOpenMpi),
       {"OMPI_COMM_WORLD_RANK=4, but OMPI_COMM_WORLD_SIZE=4", "from 0 to 3"}},
      {Join({{"PMI_SIZE", "two"}}, kMpich), {"PMI_SIZE='two'"}},
      {Join({{"MPI_LOCALNRANKS", "?"}}, kMpich), {"MPI_LOCALNRANKS='?'"}},
      {Join({{"NODE_RANK", "2"}}, kHandMade), {"NODE_RANK=2, but NNODES=2", "from 0 to 1"}},
      {Join({{"NNODES", "-2"}}, kHandMade), {"NNODES='-2'", "a number from 1 to 65535"}},
      {Join({{"MASTER_PORT", "0"}}, kHandMade), {"MASTER_PORT='0'", "a number from 1 to 65535"}},
      {Join({{"MASTER_PORT", "70000"}}, kHandMade), {"MASTER_PORT='70000'"}},
      {Join({{"BRAID_NODE_RANK", "2"}}, kBraidLaunch),
       {"BRAID_NODE_RANK=2, but BRAID_NUM_NODES=2", "from 0 to 1"}},
      {Join({{"BRAID_NODE_RANK", "one"}}, kBraidLaunch), {"BRAID_NODE_RANK='one'"}},
      {kBraidLaunch, {"--node_rank=2, but BRAID_NUM_NODES=2", "from 0 to 1"}, {.node_rank = 2}},
      {kBraidLaunch, {"--node_rank=-3, but BRAID_NUM_NODES=2"}, {.node_rank = -3}},
      {SlurmTask("1", {{"BRAID_NODE_RANK", "7"}}),
       {"BRAID_NODE_RANK=7, but SLURM_STEP_NUM_TASKS=3"}},
      {{}, {"--node_rank=1", "this machine is alone", "--nodes"}, {.node_rank = 1}},

      // Where the master is.
      {kOpenMpi, {"mpirun (Open MPI)", "4 processes", "MASTER_ADDR", "mpirun -x MASTER_ADDR=HOST"}},
      {Without(kOpenMpi, {"OMPI_COMM_WORLD_LOCAL_SIZE"}), {"mpirun -x MASTER_ADDR=HOST"}},
      {kMpich, {"mpiexec (PMI)", "4 processes", "mpiexec -genv MASTER_ADDR HOST"}},
      {SlurmTask("0", {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}), {"MASTER_ADDR"}},
      {Without(kHandMade, {"MASTER_ADDR"}), {"NNODES=2 is set and MASTER_ADDR is not"}},
      {Join({{"MASTER_ADDR", ""}}, kHandMade), {"MASTER_ADDR: '' is no host"}},
      {Join({{"MASTER_ADDR", "n0:29500"}}, kHandMade), {"MASTER_ADDR: 'n0:29500'", "MASTER_PORT"}},
      {Join({{"MASTER_ADDR", "10.0.1"}}, kHandMade), {"'10.0.1' is no IPv4 address"}},
      {Join({{"BRAID_MASTER", "n0:x"}}, kBraidLaunch),
       {"BRAID_MASTER", "'x' is no port", "from 1 to 65535", "host:port was expected"}},
      {Join({{"BRAID_MASTER", "::1:80"}}, kBraidLaunch), {"BRAID_MASTER", "in brackets"}},
      {SlurmTask("0", {{"SLURM_STEP_NODELIST", "n[0-3"}}),
       {"SLURM_STEP_NODELIST", "'n[0-3' has no closing bracket"}},
      {SlurmTask("0", {{"SLURM_DISTRIBUTION", "arbitrary"}}),
       {"--distribution=arbitrary", "SLURM_STEP_NODELIST=n[2-3]", "--nodes"}},
      {Without(SlurmTask("0"), {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}),
       {"SLURM_STEP_NODELIST is not set", "--nodes"}},

      // Half of what is needed.
      {{{"OMPI_COMM_WORLD_RANK", "1"}},
       {"OMPI_COMM_WORLD_RANK=1 is set and OMPI_COMM_WORLD_SIZE is not"}},
      {{{"PMI_SIZE", "2"}}, {"PMI_SIZE=2 is set and PMI_RANK is not"}},
      {Without(SlurmTask("1"), {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}),
       {"SLURM_PROCID=1 is set and SLURM_STEP_NUM_TASKS is not"}},
      {{{"NODE_RANK", "1"}}, {"NODE_RANK=1", "number of nodes", "set NNODES", "--nodes"}},
      {{{"NNODES", "2"}, {"MASTER_ADDR", "n0"}}, {"NNODES=2", "--node_rank", "BRAID_NODE_RANK"}},
      {{{"BRAID_NODE_RANK", "0"}},
       {"BRAID_NODE_RANK=0", "--nodes", "BRAID_NUM_NODES and BRAID_MASTER"}},
      {Without(kBraidLaunch, {"BRAID_NUM_NODES"}), {"BRAID_NODE_RANK=1", "set BRAID_NUM_NODES"}},
      {Without(kBraidLaunch, {"BRAID_MASTER"}), {"BRAID_NUM_NODES=2 is set and BRAID_MASTER"}},
      {Without(kBraidLaunch, {"BRAID_NODE_RANK"}),
       {"BRAID_NUM_NODES=2", "--node_rank", "BRAID_NODE_RANK"}},
  };
  for (const LauncherErrorCase& c : cases) {
    SCOPED_TRACE(c.words[0]);
    ExpectError(Find(c.options, c.variables).status(), c.words);
  }
}

// What goes to the log while it lives.
class CapturedLog : public google::LogSink {
 public:
  CapturedLog() { google::AddLogSink(this); }
  ~CapturedLog() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity severity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message, size_t length) override {
    if (severity == google::GLOG_WARNING) warnings += std::string(message, length) + "\n";
  }
  std::string warnings;
};

TEST(LauncherTest, WhoForgetsSrunIsTold) {
  const std::vector<std::pair<Variables, bool>> cases = {
      {BatchScript(), true},
      {Without(BatchScript(), {"SLURM_PROCID"}), true},
      {Without(BatchScript(), {"SLURM_NTASKS"}), true},  // -N4 alone
      {SlurmTask("0", {{"SLURM_STEP_ID", "4294967290"}}), true},
      {SlurmTask("0"), false},
      {Join({{"SLURM_NTASKS", "1"}}, BatchScript()), false},
      {{}, false},
  };
  for (const auto& [variables, is_told] : cases) {
    CapturedLog log;
    ASSERT_TRUE(Find({}, variables).ok());
    if (is_told) {
      EXPECT_THAT(log.warnings, AllOf(HasSubstr("Slurm job 12 has 4 tasks"),
                                      HasSubstr("one node alone"), HasSubstr("srun")));
    } else {
      EXPECT_THAT(log.warnings, IsEmpty());
    }
  }
}

TEST(SlurmHostListTest, GivesTheFirstHost) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"n0", "n0"},
      {"n0,n1", "n0"},
      {"node[03-05,9],gpu1", "node03"},
      {"node[9,03-05]", "node9"},
      {"node[7]", "node7"},
      {"a[1-2]b[3-4]", "a1b3"},
      {"a[1-2]b[3-4]c,d", "a1b3c"},
      {"rack[0001-0010]-gpu.example.org,x", "rack0001-gpu.example.org"},
      {"10.0.0.[5-7]", "10.0.0.5"},
      {"gpu1,node[3-4]", "gpu1"},
  };
  for (const auto& [list, host] : cases) {
    const absl::StatusOr<std::string> first = FirstSlurmHost(list);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(*first, host);
  }
}

TEST(SlurmHostListTest, WrongListsAreErrors) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"n[0-3", "no closing bracket"},
      {"n0]", "a bracket that none opened"},
      {"n[]", "no number"},
      {"n[a-b]", "no number"},
      {"n[-3]", "no number"},
      {"n[3x]", "no number"},
      {"n[[1]]", "no number"},
      {"", "does not begin with a host"},
      {",n1", "does not begin"},
      {"n 1", "does not begin"},
      {"(null)", "does not begin"},
  };
  for (const auto& [list, words] : cases) {
    ExpectError(FirstSlurmHost(list).status(), {"'" + list + "'", words, "node[03-05,9],gpu1"});
  }
}

}  // namespace
}  // namespace braid
