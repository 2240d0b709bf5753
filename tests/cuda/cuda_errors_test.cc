// What a program says of a machine that lacks something for --devices=cuda:N: one line, exit 1.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string text;
};

std::string BinFolder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }

Outcome RunMnist(const std::string& environment, const std::string& flags) {
  // Only what hangs comes to its end: under a sanitizer a card on the host takes minutes.
  const std::string command = environment + " timeout 300 " + BinFolder() + "/mnist --steps=20 " +
                              "--progress=off --event_dump=none " + flags + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (const size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.text.append(buffer.data(), got);
  }
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

std::string OnHost() { return " --cuda_module=" + BinFolder() + "/braid_cuda_on_host.so "; }

void ExpectError(const Outcome& outcome, const testing::Matcher<std::string>& matcher) {
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, matcher);
  EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
}

TEST(CudaErrors, NoModule) {
  ExpectError(RunMnist("", "--devices=cuda:1 --cuda_module=/nowhere/braid_cuda.so"),
              AllOf(HasSubstr("/nowhere/braid_cuda.so"), HasSubstr("--devices=cpu:1 works here")));
}

TEST(CudaErrors, AnotherFile) {
  ExpectError(RunMnist("", "--devices=cuda:1 --cuda_module=/usr/lib/x86_64-linux-gnu/libz.so.1"),
              AllOf(HasSubstr("libz.so.1"), HasSubstr("is no module of Braid")));
}

TEST(CudaErrors, AnotherBuild) {
  ExpectError(RunMnist("BRAID_FAKE_BUILD=0.0.1-of-old", "--devices=cuda:1" + OnHost()),
              AllOf(HasSubstr("0.0.1-of-old"), HasSubstr("same sources")));
}

TEST(CudaErrors, NoDriver) {
  ExpectError(RunMnist("BRAID_FAKE_DRIVER=0", "--devices=cuda:1" + OnHost()),
              AllOf(HasSubstr("no driver is installed"), HasSubstr("--devices=cpu:1 works here")));
}

TEST(CudaErrors, ADriverThatIsTooOld) {
  ExpectError(RunMnist("BRAID_FAKE_DRIVER=12040", "--devices=cuda:1" + OnHost()),
              AllOf(HasSubstr("12.4"), HasSubstr("13.0"), HasSubstr("install a newer driver")));
}

TEST(CudaErrors, NoCard) {
  ExpectError(RunMnist("BRAID_FAKE_CARDS=0", "--devices=cuda:1" + OnHost()),
              AllOf(HasSubstr("cudaErrorNoDevice"), HasSubstr("--devices=cpu:1 works here")));
}

TEST(CudaErrors, TooFewCards) {
  ExpectError(RunMnist("", "--devices=cuda:8" + OnHost()),
              AllOf(HasSubstr("cuda:8 wants 8 cards, and this machine has 2"),
                    HasSubstr("cuda:8@0 puts all devices on card 0")));
}

TEST(CudaErrors, ACardThatIsNotThere) {
  ExpectError(RunMnist("", "--devices=cuda:1@5" + OnHost()),
              AllOf(HasSubstr("cuda:1@5 wants card 5, and this machine has 2"),
                    HasSubstr("cuda:1@0 works here")));
}

TEST(CudaErrors, ACardThatIsTooOld) {
  ExpectError(RunMnist("BRAID_FAKE_CAPABILITY=7", "--devices=cuda:1" + OnHost()),
              AllOf(HasSubstr("compute capability 7.0"), HasSubstr("8.0 or newer")));
}

TEST(CudaErrors, NumbersAreCheckedOnCpusOnly) {
  ExpectError(RunMnist("", "--devices=cuda:1 --check_numerics" + OnHost()),
              AllOf(HasSubstr("--check_numerics"), HasSubstr("--devices=cpu:1")));
}

// What a kernel works in is taken when the job is loaded, beside what the plan has.
TEST(CudaErrors, ACardThatHasNoMemoryForAKernel) {
  const Outcome outcome = RunMnist("BRAID_FAKE_MEMORY=30000000", "--devices=cuda:1" + OnHost());
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("cuda 0 (card 0, a card on the host) has no"),
                                  HasSubstr("take a smaller batch"), HasSubstr("mnist_model.cc")));
}

// All is over within seconds, and the message names the work.
TEST(CudaErrors, ACardIsLostWhileItWorks) {
  const Outcome outcome = RunMnist("BRAID_FAKE_FAILS_AFTER=300", "--devices=cuda:2@0" + OnHost());
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("cudaErrorIllegalAddress"), HasSubstr("it was at work"),
                                  HasSubstr("(card 0)")));
}

// The program is whole without the module's file.
// Two nodes, of which this is what the first one says.
Outcome RunTwoNodes(const std::string& environment, const std::string& other) {
  const std::string folder = testing::TempDir() + "/braid_cuda_nodes";
  std::filesystem::create_directories(folder);
  const std::string list = folder + "/nodes";
  // Ports of this process's own, as tests run beside each other.
  const int port = 20000 + getpid() % 10000 * 2;
  std::ofstream(list) << "127.0.0.1:" << port << " cuda:1\n127.0.0.1:" << port + 1 << " cuda:1\n";
  const std::string flags = "--nodes=" + list + OnHost() + "--node_rank=";
  Outcome there;
  std::thread node([&] { there = RunMnist("BRAID_AUTH_TOKEN=test " + other, flags + "1"); });
  Outcome here = RunMnist("BRAID_AUTH_TOKEN=test " + environment, flags + "0");
  node.join();
  EXPECT_EQ(there.exit_code, here.exit_code) << there.text;
  return here;
}

TEST(CudaErrors, NodesWithTwoVersionsOfNccl) {
  ExpectError(
      RunTwoNodes("BRAID_FAKE_NVRTC=1 BRAID_FAKE_NCCL=22809",
                  "BRAID_FAKE_NVRTC=1 BRAID_FAKE_NCCL=22703"),
      AllOf(HasSubstr("node 0 has NCCL 2.28.9 and node 1 NCCL 2.27.3"), HasSubstr("--nccl=false")));
}

TEST(CudaErrors, ANodeWithoutNcclTrains) {
  const Outcome outcome = RunTwoNodes("BRAID_FAKE_NCCL=22809", "");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("accuracy "));
}

TEST(CudaErrors, TrainsOnTwoPartsOfACard) {
  const Outcome outcome = RunMnist("", "--devices=cuda:2@0" + OnHost());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  // What it has no compiler for runs kernel by kernel, which is said once.
  const size_t said =
      outcome.text.find("libnvrtc.so.13 was looked for; kernels that could be one run one by one");
  EXPECT_NE(said, std::string::npos) << outcome.text;
  EXPECT_EQ(outcome.text.find("libnvrtc", said + 1), std::string::npos) << outcome.text;
}

}  // namespace
