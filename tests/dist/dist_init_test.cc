#include "api/dist_init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/multiprocess/program_run.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

dist::InitOptions With(std::map<std::string, std::string> variables) {
  dist::InitOptions options;
  options.environment = [variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  return options;
}

TEST(DistInitTest, FindsTheWorldInTheEnvironment) {
  const auto found = dist::FindWorld(With({{"RANK", "2"},
                                           {"WORLD_SIZE", "4"},
                                           {"MASTER_ADDR", "10.0.0.7"},
                                           {"MASTER_PORT", "4711"},
                                           {"BRAID_AUTH_TOKEN", "s3cret"}}));
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->has_value());
  const NetworkOptions& network = **found;
  EXPECT_EQ(network.cluster.rank, 2);
  ASSERT_EQ(network.cluster.nodes.size(), 4u);
  EXPECT_EQ(network.cluster.nodes[0].host, "10.0.0.7");
  EXPECT_EQ(network.cluster.nodes[0].port, 4711);
  EXPECT_EQ(network.secret, "s3cret");
  EXPECT_EQ(NodeName(network.cluster, 0), "rank 0 (10.0.0.7)");
}

TEST(DistInitTest, AnAddressSaysAll) {
  dist::InitOptions options = With({});
  options.init_method = "tcp://[::1]?world_size=3&rank=1";
  const auto found = dist::FindWorld(options);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->cluster.rank, 1);
  EXPECT_EQ((*found)->cluster.nodes.size(), 3u);
  EXPECT_EQ((*found)->cluster.nodes[0].host, "::1");
  EXPECT_EQ((*found)->cluster.nodes[0].port, 29500) << "as torch.distributed's";
}

TEST(DistInitTest, LaunchersThatSetNoRankAreUnderstood) {
  std::map<std::string, std::string> mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                                            {"OMPI_COMM_WORLD_SIZE", "2"},
                                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const auto found = dist::FindWorld(With(mpi));
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->cluster.rank, 1);
  EXPECT_EQ((*found)->cluster.nodes.size(), 2u);
  EXPECT_EQ((*found)->cluster.nodes[0].host, "127.0.0.1");
  EXPECT_EQ((*found)->cluster.nodes[0].port, 29500);
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_THAT(std::string(dist::FindWorld(With(mpi)).status().message()),
              HasSubstr("OMPI_COMM_WORLD_SIZE=2) and does not say on which host node 0 is"));

  const auto slurm = dist::FindWorld(With({{"SLURM_PROCID", "2"},
                                           {"SLURM_STEP_NUM_TASKS", "3"},
                                           {"SLURM_STEP_ID", "0"},
                                           {"SLURM_JOB_ID", "7"},
                                           {"SLURM_STEP_NODELIST", "n[1-3]"}}));
  ASSERT_TRUE(slurm.ok()) << slurm.status();
  EXPECT_EQ((*slurm)->cluster.rank, 2);
  EXPECT_EQ((*slurm)->cluster.nodes[0].host, "n1");
}

TEST(DistInitTest, NothingIsAWorldOfOne) {
  for (const auto& variables : {std::map<std::string, std::string>{},
                                {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}}) {
    const auto found = dist::FindWorld(With(variables));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_FALSE(found->has_value());
  }
}

TEST(DistInitTest, MistakesAreNamed) {
  const std::map<std::string, std::string> good = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}};
  const auto variables = [&](const std::string& name, const char* value) {
    auto changed = good;
    if (value == nullptr) changed.erase(name);
    if (value != nullptr) changed[name] = value;
    return With(changed);
  };
  const auto method = [](const std::string& text) {
    dist::InitOptions options = With({});
    options.init_method = text;
    return options;
  };
  const std::vector<std::pair<dist::InitOptions, std::string>> mistakes = {
      {variables("RANK", nullptr), "RANK is not set"},
      {variables("WORLD_SIZE", nullptr), "WORLD_SIZE is not set"},
      {variables("MASTER_ADDR", nullptr), "MASTER_ADDR is not set"},
      {variables("RANK", "first"), "RANK is 'first'; a number from 0 on was expected"},
      {variables("RANK", "-1"), "RANK is '-1'"},
      {variables("RANK", "2"), "rank 2 (RANK) is out of range: the world has ranks 0 to 1"},
      {variables("WORLD_SIZE", "0"), "the world size is 0 (WORLD_SIZE)"},
      {variables("MASTER_PORT", "70000"), "MASTER_PORT is 70000; a port from 1 to 65535"},
      {method("udp://a"), "init_method is 'udp://a'; env://, tcp://"},
      {method("tcp://a:1?rank=0"), "does not say the world_size"},
      {method("tcp://a:1?rank=0&size=2"), "size in tcp://a:1?rank=0&size=2 is not known"},
      {method("tcp://a:1?rank=x&world_size=2"), "rank in tcp://a:1?rank=x&world_size=2 is 'x'"},
  };
  for (const auto& [options, words] : mistakes) {
    const auto found = dist::FindWorld(options);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(words));
  }
}

// ---- Ranks of a machine ------------------------------------------------------------------------

// "RANK of SIZE", or the error.
std::string LocalPlaceOf(const std::map<std::string, std::string>& variables) {
  const auto place = FindLocalPlace(With(variables).environment);
  if (!place.ok()) return std::string(place.status().message());
  return absl::StrFormat("%d of %d", place->rank, place->size);
}

TEST(DistInitTest, LaunchersSayTheLocalRank) {
  const std::map<std::string, std::string> slurm = {
      {"SLURM_PROCID", "3"},  {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
      {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"},  {"SLURM_STEP_NUM_TASKS", "5"}};
  const auto in_slurm = [&](std::map<std::string, std::string> variables) {
    variables.insert(slurm.begin(), slurm.end());
    return LocalPlaceOf(variables);
  };
  EXPECT_EQ(LocalPlaceOf({}), "0 of 1");
  EXPECT_EQ(LocalPlaceOf({{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "4"}}), "2 of 4");
  EXPECT_EQ(LocalPlaceOf({{"LOCAL_RANK", "2"}}), "2 of 0") << "as many scripts set it";
  EXPECT_EQ(LocalPlaceOf({{"LOCAL_WORLD_SIZE", "4"}}), "0 of 1");
  EXPECT_EQ(LocalPlaceOf(VariablesOfRank({.world_size = 8, .first = 4, .count = 4}, 3)), "3 of 4");
  EXPECT_EQ(
      LocalPlaceOf({{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}),
      "1 of 3");
  EXPECT_EQ(LocalPlaceOf({{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}}), "0 of 2");
  EXPECT_EQ(in_slurm({}), "1 of 2");
  EXPECT_EQ(in_slurm({{"SLURM_NODEID", "2"}, {"SLURM_LOCALID", "0"}}), "0 of 1");
  EXPECT_EQ(in_slurm({{"SLURM_STEP_ID", "4294967290"}}), "0 of 1") << "the shell of salloc";
  // One launcher inside the other.
  EXPECT_EQ(in_slurm({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "8"}}), "0 of 8");
  EXPECT_EQ(in_slurm({{"OMPI_COMM_WORLD_LOCAL_RANK", "5"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "6"}}),
            "5 of 6");
  EXPECT_EQ(in_slurm({{"BRAID_NUM_NODES", "2"}, {"BRAID_NODE_RANK", "1"}}), "0 of 1");
}

TEST(DistInitTest, MistakesOfLocalRanksAreNamed) {
  const auto local = [](const std::string& rank, const std::string& size) {
    return LocalPlaceOf({{"LOCAL_RANK", rank}, {"LOCAL_WORLD_SIZE", size}});
  };
  EXPECT_EQ(local("first", "2"),
            "environment variable LOCAL_RANK='first'; a number from 0 to 65534 was expected");
  EXPECT_THAT(local("-1", "2"), HasSubstr("LOCAL_RANK='-1'; a number from 0"));
  EXPECT_THAT(local("0", "0"), HasSubstr("LOCAL_WORLD_SIZE='0'; a number from 1 to 65535"));
  EXPECT_EQ(
      local("2", "2"),
      "environment variable LOCAL_RANK=2 is out of range: LOCAL_WORLD_SIZE=2, so this machine "
      "has the local ranks 0 to 1; give each process of a machine its own");
  for (const char* const list : {"", "two", "2(x", "2(x2", "2(x2)x", "0", "1,", "2(x1)"}) {
    EXPECT_THAT(LocalPlaceOf({{"SLURM_PROCID", "1"},
                              {"SLURM_STEP_ID", "0"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_NODEID", "1"},
                              {"SLURM_STEP_TASKS_PER_NODE", list}}),
                AllOf(HasSubstr(absl::StrFormat("SLURM_STEP_TASKS_PER_NODE='%s'", list)),
                      HasSubstr("host 1 (SLURM_NODEID)"), HasSubstr("2(x3),1 were expected")));
  }
}

TEST(DistInitTest, AWorldHasTheLocalRank) {
  const auto world = dist::World::Init(With({{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "4"}}));
  ASSERT_TRUE(world.ok()) << world.status();
  EXPECT_EQ((*world)->local_rank(), 2);
  EXPECT_EQ((*world)->local_size(), 4);
  const auto alone = dist::World::Init(With({}));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ((*alone)->local_rank(), 0);
  EXPECT_EQ((*alone)->local_size(), 1);
  const absl::Status wrong = dist::World::Init(With({{"LOCAL_RANK", "two"}})).status();
  EXPECT_TRUE(absl::IsInvalidArgument(wrong)) << wrong;
}

// ---- Meeting -----------------------------------------------------------------------------------

// What only shows when ranks meet is said on all that came.
TEST(DistInitTest, RanksThatDoNotFitAreToldSo) {
  const int port = FreePort();
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&statuses, port, i] {
      dist::InitOptions options;
      options.init_method =
          absl::StrFormat("tcp://127.0.0.1:%d?rank=%d&world_size=3", port, i == 2 ? 1 : i);
      options.timeout = absl::Seconds(20);
      statuses[i] = dist::World::Init(options).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("joining: rank 1 is taken twice"),
                                                     HasSubstr("give every process its own RANK")));
  }
}

TEST(DistInitTest, ARankThatDoesNotComeIsNamed) {
  dist::InitOptions options;
  options.init_method = absl::StrFormat("tcp://127.0.0.1:%d?rank=0&world_size=2", FreePort());
  options.timeout = absl::Seconds(1);
  const absl::Status status = dist::World::Init(options).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank 1 did not join within 1.0 s (InitOptions::timeout)"),
                    HasSubstr("with the same WORLD_SIZE")));
}

}  // namespace
}  // namespace braid
