// Training on several processes gives the same losses whichever transport they use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/multiprocess/program_run.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// The lines of a loss file without what the clock says.
std::vector<std::string> LossesIn(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> losses;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields = absl::StrSplit(line, ", ");
    std::erase_if(fields, [](const std::string& field) {
      return field.starts_with("\"time\"") || field.starts_with("\"samples_per_second\"");
    });
    losses.push_back(absl::StrJoin(fields, ", "));
  }
  return losses;
}

// Two processes of two devices, which say of each link what carries it: shm if no transport is
// named.
std::vector<std::string> Train(const std::string& transport, const std::string& parallel) {
  const TempDir folder;
  const std::string losses = absl::StrCat(folder.path(), "/losses");
  std::vector<std::string> command = {BRAID_TOOL,
                                      "launch",
                                      "--local=2",
                                      "--devices=cpu:2",
                                      "--",
                                      BRAID_MNIST,
                                      "--steps=20",
                                      "--dtype=f64",
                                      "--parallel=" + parallel,
                                      "--metrics_json=" + losses};
  if (!transport.empty()) command.push_back("--transport=" + transport);
  ProgramRun run(command, {.environment = {{"GLOG_v", "1"}, {"GLOG_logtostderr", "1"}}});
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  EXPECT_THAT(run.err(), HasSubstr(absl::StrCat("node 0 <-> node 1: ",
                                                transport.empty() ? "shm" : transport)));
  return LossesIn(losses);
}

class TransportsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TransportsTest, LossesAreTheSameBits) {
  const std::vector<std::string> losses = Train("tcp", GetParam());
  EXPECT_GE(losses.size(), 20u);
  EXPECT_THAT(losses, Contains(HasSubstr("\"loss\"")));
  EXPECT_EQ(Train("", GetParam()), losses);
}

INSTANTIATE_TEST_SUITE_P(All, TransportsTest,
                         ::testing::Values("data", "model", "hybrid", "pipeline"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid
