// Which nodes there are and which one this is: the order of the sources, and the rank in a list.
#include "comm/cluster/cluster.h"

#include "tests/comm/cluster_case.h"

namespace braid {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ClusterTest : public WithNodeFile {};

TEST_F(ClusterTest, FileSaysTheNodes) {
  const std::string path = File(
      "# host[:port]   [devices]\r\n"
      "10.0.0.1        cuda:4   # the master\r\n"
      "\r\n"
      "10.0.0.2:7000\r\n"
      "\t[fd00::3]:9988\tcpu:8#unequal\n"
      "node7.example.org cuda:2@0");
  const absl::StatusOr<Cluster> cluster =
      Find({.nodes_file = path, .devices_per_node = "cpu:2", .ctrl_port = 8000}, {});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->ToString(),
            "10.0.0.1:8000 cuda:4\n10.0.0.2:7000 cpu:2\n[fd00::3]:9988 cpu:8\n"
            "node7.example.org:8000 cuda:2@0\n");
  EXPECT_EQ(cluster->rank, 1);  // by address
  EXPECT_EQ(cluster->origin, path);
  EXPECT_TRUE(cluster->knows_all_hosts);
  EXPECT_EQ(cluster->nodes[3].devices, (DeviceSpec{.type = "cuda", .count = 2, .card = 0}));
}

TEST_F(ClusterTest, EveryoneWithTheSameListHasTheSameText) {
  const absl::StatusOr<Cluster> a =
      Find({.nodes_file = File("10.0.0.1\n10.0.0.2 cpu:1\n"), .node_rank = 0}, {});
  ASSERT_TRUE(a.ok()) << a.status();
  const absl::StatusOr<Cluster> b =
      Find({.nodes_file = File("\xef\xbb\xbf# the two\r\n 10.0.0.1:9988  cpu:1 \r\n10.0.0.2"),
            .node_rank = 1},
           {});
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(a->ToString(), b->ToString());
  EXPECT_EQ(a->ToString(), "10.0.0.1:9988 cpu:1\n10.0.0.2:9988 cpu:1\n");
}

TEST_F(ClusterTest, FileGoesBeforeCodeBeforeLauncher) {
  const ClusterOptions code = {.nodes = {{.host = "10.0.0.2", .devices = DeviceSpec{.count = 5}},
                                         {.host = "fd00::7", .port = 80}}};
  absl::StatusOr<Cluster> cluster = Find(code, {{"BRAID_NODE_LIST", "10.0.0.2 cpu:7"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->origin, "the program");
  EXPECT_EQ(cluster->ToString(), "10.0.0.2:9988 cpu:5\n[fd00::7]:80 cpu:1\n");

  ClusterOptions both = code;
  both.nodes_file = File("10.0.0.2 cpu:6");
  cluster = Find(both, {});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->origin, both.nodes_file);
  EXPECT_EQ(cluster->ToString(), "10.0.0.2:9988 cpu:6\n");
}

TEST(BraidNodeListTest, IsTheWholeList) {
  const Variables variables =
      Join(kBraidLaunch, {{"BRAID_NODE_LIST", "10.0.0.1:4711 cpu:2\n10.0.0.9:9988 cpu:3\n"}});
  absl::StatusOr<Cluster> cluster = Find({}, variables);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->origin, "braid launch");
  EXPECT_EQ(cluster->rank, 1);
  EXPECT_TRUE(cluster->knows_all_hosts);
  EXPECT_EQ(cluster->ToString(), variables.at("BRAID_NODE_LIST"));

  ExpectError(Find({}, Join({{"BRAID_NODE_LIST", "10.0.0.1\nx:y"}}, variables)).status(),
              {"BRAID_NODE_LIST:2: 'x:y'", "'y' is no port"});
  ExpectError(Find({}, Join({{"BRAID_NODE_LIST", ""}}, variables)).status(),
              {"BRAID_NODE_LIST lists no node"});
  ExpectError(Find({}, Join({{"BRAID_NUM_NODES", "3"}}, variables)).status(),
              {"BRAID_NODE_LIST has 2 nodes, but BRAID_NUM_NODES=3 (braid launch)"});
}

TEST(DevicesFlagTest, WrongDevicesAreErrors) {
  ExpectError(Find({.devices_per_node = "four"}, {}).status(),
              {"--devices: 'four' is no device list; cpu:N was expected, e.g. cpu:4"});
  // Which would have taken every processor.
  ExpectError(Find({.devices_per_node = "auto:4"}, {}).status(),
              {"--devices: 'auto:4' is no device list; auto alone was expected", "e.g. cpu:4"});
}

TEST_F(ClusterTest, RankOfAListIsFound) {
  struct Case {
    std::string name;
    int flag;
    Variables variables;
    int rank;
  };
  const Variables braid = {{"BRAID_NODE_RANK", "2"}};
  const std::vector<Case> cases = {
      {"address", -1, {}, 1},
      {"flag", 0, Join(braid, SlurmTask("1")), 0},
      {"flag, whatever the launcher says", 0, SlurmTask("junk"), 0},
      {"BRAID_NODE_RANK", -1, Join(braid, SlurmTask("0")), 2},
      {"BRAID_NODE_RANK, another launcher's size", -1, Join(braid, kOpenMpi), 2},
      {"Slurm", -1, SlurmTask("2"), 2},
      {"mpirun: MASTER_ADDR is not asked for",
       -1,
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}},
       0},
      {"NODE_RANK needs no NNODES", -1, {{"NODE_RANK", "2"}}, 2},
      {"NNODES alone says nothing", -1, {{"NNODES", "7"}}, 1},
      {"a batch script", -1, BatchScript(), 1},
      {"process groups", -1, {{"RANK", "0"}, {"WORLD_SIZE", "3"}}, 1},
  };
  const std::string path = File("10.0.0.1\n10.0.0.2\n10.0.0.3\n");
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const absl::StatusOr<Cluster> cluster =
        Find({.nodes_file = path, .node_rank = c.flag}, c.variables);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_EQ(cluster->rank, c.rank);
  }
}

TEST_F(ClusterTest, WrongRankOfAListIsAnError) {
  const std::string path = File("10.0.0.1\n10.0.0.2\n10.0.0.3\n");
  ExpectError(Find({.nodes_file = path, .node_rank = 3}, {}).status(),
              {"--node_rank=3", "nodes.txt has 3 nodes", "0 to 2"});
  ExpectError(Find({.nodes_file = path}, {{"BRAID_NODE_RANK", "3"}}).status(),
              {"BRAID_NODE_RANK=3", "nodes.txt has 3 nodes", "0 to 2"});
  ExpectError(Find({.nodes_file = path}, {{"NODE_RANK", "3"}}).status(),
              {"NODE_RANK=3", "nodes.txt has 3 nodes", "0 to 2"});
  ExpectError(Find({.nodes_file = path}, kOpenMpi).status(),
              {"nodes.txt has 3 nodes, but OMPI_COMM_WORLD_SIZE=4 (mpirun (Open MPI))",
               "as many processes as there are nodes", "--node_rank"});
}

TEST_F(ClusterTest, AddressesOfAllKindsAreFound) {
  for (const std::string mine :
       {"10.0.0.2", "[fd00::2]", "127.0.0.1", "127.9.9.9", "[::1]", "localhost", "10.0.0.2:77"}) {
    SCOPED_TRACE(mine);
    const absl::StatusOr<Cluster> cluster =
        Find({.nodes_file = File("10.0.0.1\n[fd00::1]\n" + mine + "\n")}, {});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_EQ(cluster->rank, 2);
  }
}

TEST_F(ClusterTest, NoLineOrSeveralAreErrorsThatListWhatWasTried) {
  // .invalid never resolves (RFC 6761).
  ExpectError(
      Find({.nodes_file = File("10.0.0.1\n\nhost.invalid cpu:4\n[fd00::1]:77\n")}, {}).status(),
      {"which node of", "none of its 3 nodes has an address of this machine",
       "(127.0.0.1, 10.0.0.2, fd00::2)", "--node_rank or BRAID_NODE_RANK, from 0 to 2",
       "nodes.txt:1: 10.0.0.1: 10.0.0.1 is another machine",
       "nodes.txt:3: host.invalid: ", "nodes.txt:4: fd00::1: fd00::1 is another machine"});
  ExpectError(Find({.nodes_file = File("10.0.0.1\n10.0.0.2:1\n10.0.0.2:2\n")}, {}).status(),
              {"2 of its 3 nodes have", "--node_rank", "nodes.txt:1: 10.0.0.1: 10.0.0.1 is another",
               "nodes.txt:2: 10.0.0.2: 10.0.0.2 is this machine",
               "nodes.txt:3: 10.0.0.2: 10.0.0.2 is this machine"});
  ExpectError(
      Find({.nodes = {{.host = "10.0.0.7"}}}, {}).status(),
      {"which node of the program", "node 0 of the program: 10.0.0.7: 10.0.0.7 is another"});
}

TEST_F(ClusterTest, LongListsAreCutInErrors) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "10.1.0." + std::to_string(i) + "\n";
  const absl::Status status = Find({.nodes_file = File(text)}, {}).status();
  ExpectError(status, {"none of its 100 nodes", "nodes.txt:20: 10.1.0.19", "and 80 more"});
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("10.1.0.20")));
}

TEST_F(ClusterTest, MachineWithoutAddressesIsAnError) {
  ExpectError(FindCluster({.nodes_file = File("10.0.0.1\n")}, EnvironmentOf({}),
                          [] { return absl::UnavailableError("no interface is up"); })
                  .status(),
              {"no interface is up", "--node_rank", "nodes.txt"});
}

}  // namespace
}  // namespace braid
