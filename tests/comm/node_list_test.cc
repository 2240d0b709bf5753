// Node lists in files and code: every form of a line, every wrong one, any bytes; and how two lists
// are compared.
#include "comm/cluster/node_list.h"

#include <sys/stat.h>

#include <random>

#include "tests/comm/cluster_case.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NodeListTest : public WithNodeFile {};

TEST_F(NodeListTest, WrongLinesAreErrorsWithFileLineAndWhatWasExpected) {
  const std::string kForm = "host[:port] [devices] was expected";
  const std::vector<std::pair<std::string, Words>> cases = {
      {"n0:0", {"'0' is no port", "1 to 65535"}},
      {"n0:65536", {"'65536' is no port"}},
      {"n0:", {"'' is no port"}},
      {"n0:-1", {"'-1' is no port"}},
      {"n0:99x", {"'99x' is no port"}},
      {"[fd00::3]:x cpu:1", {"'x' is no port"}},
      {"n0 cpu", {"'cpu' is no device list; cpu:N was expected, e.g. cpu:4"}},
      {"n0 cpu:", {"'cpu:' is no device list"}},
      {"n0 cpu:0", {"'cpu:0'", "1 to 4096 devices"}},
      {"n0 cpu:4097", {"'cpu:4097'", "1 to 4096 devices"}},
      {"n0 cpu:-1", {"'cpu:-1'", "cpu:N was expected"}},
      {"n0 cpu:4@0", {"'cpu:4@0'", "cpu:N was expected"}},
      {"n0 cuda:x", {"'cuda:x'", "cuda:N or cuda:N@CARD was expected"}},
      {"n0 cuda:2@", {"'cuda:2@'", "cuda:N@CARD"}},
      {"n0 TPU:1", {"'TPU:1' is no device list"}},
      {"n0 4", {"'4' is no device list"}},
      {"n0 cpu:1 cuda:1", {"'cuda:1' is one word too many", kForm}},
      {"[fd00::3", {"'[fd00::3' has no closing bracket"}},
      {"fd00::3]:9988", {"a bracket that none opened"}},
      {"[fd00::3]9988", {"goes on after its bracket", "[fd00::3]:9988 was expected"}},
      {"[n0]:9988", {"no IPv6 address in its brackets"}},
      {"[]", {"no IPv6 address in its brackets"}},
      {"fd00::3", {"'fd00::3' has several colons", "in brackets", "[fd00::3]:9988"}},
      {"n0:1:2", {"'n0:1:2' has several colons"}},
      {":9988", {"'' is no host name or address"}},
      {"-oProxy", {"'-oProxy' is no host name or address"}},
      {"n$0", {"'n$0' is no host name or address"}},
      {"10.0.0.256", {"'10.0.0.256' is no IPv4 address", "up to 255"}},
      {"10.0.1", {"'10.0.1' is no IPv4 address"}},
      {"10.0.0.1:9988 cpu:9", {"10.0.0.1:9988 is already node 0", "nodes.txt:2", "ports"}},
      {std::string(254, 'a'), {"is no host name or address"}},
      {std::string("n\0", 2), {"'n\\x00' is no host name"}},
      {"n\xff", {"'n\\xff' is no host name"}},
      {"n0 #" + std::string(1021, '-'), {"1028 bytes; at most 1024"}},
  };
  for (const auto& [line, words] : cases) {
    SCOPED_TRACE(line);
    const std::string path = File("# list\n10.0.0.1 cpu:1\n" + line + "  \r\nn9\n");
    const absl::Status status = Find({.nodes_file = path, .node_rank = 0}, {}).status();
    ExpectError(status, words);
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(path + ":3: '"));
  }
}

TEST_F(NodeListTest, WrongFilesAreErrors) {
  ExpectError(Find({.nodes_file = dir_ / "none.txt"}, {}).status(),
              {"none.txt'", "No such file or directory"});
  ExpectError(Find({.nodes_file = dir_.path()}, {}).status(), {dir_.path(), "no regular file"});
  ASSERT_EQ(mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  ExpectError(Find({.nodes_file = dir_ / "pipe"}, {}).status(), {"pipe'", "no regular file"});
  for (const std::string text : {"", "\n", "# only comments\r\n\t \r\n"}) {
    ExpectError(Find({.nodes_file = File(text)}, {}).status(),
                {"nodes.txt lists no node", "host[:port] [devices] was expected"});
  }
  ExpectError(Find({.nodes_file = File(std::string((16 << 20) + 1, '\n'))}, {}).status(),
              {"nodes.txt has over 16777216 bytes"});
}

TEST_F(NodeListTest, HoldsAsManyNodesAsThereCanBe) {
  std::string text;
  for (int i = 0; i < kMaxNodes; ++i) text += "n" + std::to_string(i) + "\n";
  const absl::StatusOr<Cluster> cluster = Find({.nodes_file = File(text), .node_rank = 65534}, {});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->nodes.back().host, "n65534");
  ExpectError(Find({.nodes_file = File(text + "x"), .node_rank = 0}, {}).status(),
              {"nodes.txt:65536: 'x'", "at most 65535 nodes"});
}

TEST(CodeListTest, WrongNodesAreErrors) {
  const auto status_of = [](const ClusterNode& node) {
    return Find({.nodes = {{.host = "n0"}, node}, .node_rank = 0}, {}).status();
  };
  ExpectError(status_of({}), {"node 1 of the program", "'' is no host name"});
  ExpectError(status_of({.host = "n1:80"}), {"node 1 of the program", "'n1:80'", "port"});
  ExpectError(status_of({.host = "[::1]"}), {"'[::1]'", "no brackets"});
  ExpectError(status_of({.host = "n0", .port = 9988}), {"n0:9988 is already node 0"});
  ExpectError(status_of({.host = "n1", .devices = DeviceSpec{.count = 0}}), {"'cpu:0'"});
  ExpectError(status_of({.host = "n1", .devices = DeviceSpec{.type = "TPU"}}), {"'TPU:1'"});
}

TEST(NodeListDifferenceTest, NamesTheLineAndBothValues) {
  const std::string master = "n0:9988 cpu:1\nn1:9988 cpu:4\n";
  EXPECT_EQ(DescribeDifference(master, master), "the node lists are equal");
  EXPECT_EQ(DescribeDifference(master, "n0:9988 cpu:1\nn1:9988 cpu:2\n"),
            "line 2 of the node list (node 1) is 'n1:9988 cpu:4' in the master's list and "
            "'n1:9988 cpu:2' in the joining node's");
  EXPECT_THAT(DescribeDifference(master, "n0:9988 cpu:1\n"),
              AllOf(HasSubstr("line 2"), HasSubstr("'n1:9988 cpu:4' in the master's"),
                    HasSubstr("missing in the joining node's")));
  EXPECT_THAT(DescribeDifference(master, master + "n2:1 cpu:1\n"),
              AllOf(HasSubstr("line 3"), HasSubstr("missing in the master's"),
                    HasSubstr("'n2:1 cpu:1' in the joining node's")));
  EXPECT_THAT(DescribeDifference("", "n0"), HasSubstr("missing in the master's"));
  // It comes from the network.
  const std::string flood = DescribeDifference(master, std::string(100000, '\xff'));
  EXPECT_THAT(flood, HasSubstr("\\xff"));
  EXPECT_LT(flood.size(), 1000u);
}

// Lines put together at random from pieces that mean something: either an error that names a line,
// or a list whose canonical text reads back as the same list.
TEST_F(NodeListTest, AnyBytesGiveAListOrAnError) {
  const Words pieces = {"10.0.0.1",
                        "n1",
                        "n2",
                        "[fd00::3]",
                        "fe80::1%eth0",
                        "[",
                        "]",
                        ":",
                        "9988",
                        "0",
                        " ",
                        "\t",
                        "#",
                        "\n",
                        "\r\n",
                        "cpu",
                        "cpu:4",
                        "cuda:2@0",
                        "@",
                        "-",
                        "\xef\xbb\xbf",
                        "%",
                        "x"};
  int lists = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    for (uint32_t left = random() % 12; left > 0; --left) {
      text += random() % 8 == 0 ? std::string(1, static_cast<char>(random()))
                                : pieces[random() % pieces.size()];
    }
    const absl::StatusOr<NodeList> list = ParseNodeList(text, "fuzz", {});
    if (!list.ok()) {
      EXPECT_THAT(std::string(list.status().message()), testing::StartsWith("fuzz"));
      continue;
    }
    ++lists;
    const absl::StatusOr<NodeList> again = ParseNodeList(NodeListText(list->nodes), "again", {});
    ASSERT_TRUE(again.ok()) << again.status() << " from " << text;
    EXPECT_EQ(again->nodes, list->nodes);
  }
  EXPECT_GT(lists, 1000);
}

TEST(DeviceSpecTest, ReadsBackWhatItWrites) {
  for (const std::string text : {"cpu:1", "cpu:4096", "cuda:4", "cuda:2@0", "cuda:1@7", "auto"}) {
    const absl::StatusOr<DeviceSpec> spec = ParseDeviceSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->ToString(), text);
  }
}

}  // namespace
}  // namespace braid
