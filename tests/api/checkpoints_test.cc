// What a checkpoint is called, what loading one takes, and what a bad one changes: nothing.

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::UnorderedElementsAre;

namespace fs = std::filesystem;

std::string EmptyFolder() {
  const std::string path = TestFolder() + "/checkpoints";
  fs::remove_all(path);
  return path;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// Two variables of 4 numbers; `a` learns, both can be fetched.
void RecordTraining(Job& job) {
  const Tensor a = Variable(job.graph(), {.name = "a", .shape = {4}});
  const Tensor b = Variable(job.graph(), {.name = "b", .shape = {4}, .trainable = false});
  const Tensor loss = Mean(Square(a - b));
  job.Minimize(loss, Sgd{.lr = 0.1});
  job.Fetch("loss", loss);
}

void RecordLook(Job& job) {
  job.Fetch("a", Mean(Variable(job.graph(), {.name = "a", .shape = {4}})));
}

class CheckpointsTest : public ::testing::Test {
 protected:
  CheckpointsTest() : session_(StartOrDie({.devices = {2}})) { CompileTrain(); }

  void CompileTrain() {
    auto train = session_->Compile("train", RecordTraining);
    ASSERT_TRUE(train.ok()) << train.status().message();
    train_ = *train;
  }
  void Train(int64_t steps) {
    const auto result = train_->Run({.steps = steps});
    ASSERT_TRUE(result.ok()) << result.status().message();
  }
  std::string Save(const SaveOptions& options = {}) {
    absl::Status saved = session_->Save(folder_, options);
    saved.Update(session_->FinishSave());
    return std::string(saved.message());
  }
  std::string Load(const std::string& path) { return std::string(session_->Load(path).message()); }
  float First(const std::string& variable) {
    const auto value = session_->Get(variable);
    EXPECT_TRUE(value.ok()) << value.status().message();
    return value->data<float>()[0];
  }
  void SetAll(const std::string& variable, float value) {
    const absl::Status set =
        session_->Set(variable, Array::FromVector<float>({4}, std::vector<float>(4, value)));
    ASSERT_TRUE(set.ok()) << set.message();
  }

  const std::string folder_ = EmptyFolder();
  std::unique_ptr<Session> session_;
  std::optional<CompiledJob> train_;
};

TEST_F(CheckpointsTest, AreNamedByHowFarTrainingHasCome) {
  auto evaluate = session_->Compile("evaluate", RecordLook);
  ASSERT_TRUE(evaluate.ok()) << evaluate.status().message();
  Train(7);
  ASSERT_TRUE(evaluate->Run({.steps = 54}).ok());
  EXPECT_EQ(Save(), "");
  Train(2);
  ASSERT_TRUE(evaluate->Run({.steps = 54}).ok());
  EXPECT_EQ(Save(), "");
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("latest", "lock", "step-7", "step-9"));

  // Who only evaluates what was trained adds nothing to it.
  const auto other = StartOrDie({});
  auto job = other->Compile("look", RecordLook);
  ASSERT_TRUE(job.ok()) << job.status().message();
  ASSERT_TRUE(other->Load(folder_ + "/step-7").ok());
  ASSERT_TRUE(job->Run({.steps = 20}).ok());
  const std::string copy = folder_ + "/copy";
  ASSERT_TRUE(other->Save(copy).ok());
  ASSERT_TRUE(other->FinishSave().ok());
  EXPECT_THAT(NamesIn(copy), UnorderedElementsAre("latest", "lock", "step-7"));
}

TEST_F(CheckpointsTest, TheLastFewAreKept) {
  EXPECT_EQ(Save({.name = "start"}), "");
  for (int i = 0; i < 5; ++i) {
    Train(10);
    EXPECT_EQ(Save({.keep = 3}), "");
  }
  EXPECT_THAT(NamesIn(folder_),
              UnorderedElementsAre("latest", "lock", "start", "step-30", "step-40", "step-50"));
  EXPECT_EQ(Save({.name = "best", .keep = 1}), "");
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("latest", "lock", "start", "best", "step-50"));
  EXPECT_THAT(Save({.name = "../best"}), HasSubstr("cannot be called '../best'"));
  EXPECT_THAT(Save({.keep = -1}), HasSubstr("keep is -1"));
}

TEST_F(CheckpointsTest, ANameAgainReplacesAndStillMeansIt) {
  for (float value : {1.0f, 2.0f, 3.0f}) {
    SetAll("b", value);
    EXPECT_EQ(Save({.name = "best"}), "");
    SetAll("b", 0);
    EXPECT_EQ(Load(folder_ + "/best"), "");
    EXPECT_EQ(First("b"), value);
    EXPECT_EQ(NamesIn(folder_).size(), 3) << "latest, lock and one of best";
  }
}

TEST_F(CheckpointsTest, OneThatIsDamagedChangesNothing) {
  // Of 64 MiB, so that `a` would long be read when the damage is found.
  auto large = session_->Compile("large", [](Job& job) {
    job.Fetch("z", Mean(Variable(job.graph(), {.name = "z", .shape = {16 << 20}})));
  });
  ASSERT_TRUE(large.ok()) << large.status().message();
  for (int i = 0; i < 2; ++i) {
    Train(1);
    EXPECT_EQ(Save(), "");
  }
  const float trained = First("a");
  const std::string file = folder_ + "/step-2/model-00001-of-00001.safetensors";
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
      << "x";
  SetAll("a", 11);
  SetAll("b", 12);
  EXPECT_THAT(Load(folder_), AllOf(HasSubstr(file), HasSubstr("is damaged in block")));
  EXPECT_EQ(First("a"), 11);
  EXPECT_EQ(First("b"), 12);
  EXPECT_EQ(train_->step(), 2);
  // The program can go on, with an older one.
  EXPECT_EQ(Load(folder_ + "/step-1"), "");
  EXPECT_EQ(train_->step(), 1);
  Train(1);
  EXPECT_EQ(First("a"), trained);
}

TEST_F(CheckpointsTest, AFolderIsOneSessionsAtATime) {
  EXPECT_EQ(Save(), "");
  EXPECT_EQ(Save(), "");
  {
    const auto other = StartOrDie({});
    auto job = other->Compile("train", RecordTraining);
    ASSERT_TRUE(job.ok()) << job.status().message();
    EXPECT_THAT(std::string(other->Save(folder_).message()),
                AllOf(HasSubstr(folder_), HasSubstr(absl::StrFormat("process %d of ", getpid()))));
    session_.reset();
    EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("latest", StartsWith("step-0")));
    EXPECT_EQ(std::string(other->Save(folder_).message()), "");
  }
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("latest", StartsWith("step-0")));
}

TEST_F(CheckpointsTest, TwoJobsOfOneNameAreAnError) {
  EXPECT_THAT(std::string(session_->Compile("train", RecordLook).status().message()),
              HasSubstr("'train' is compiled already"));
  Train(3);
  train_->Unload();
  EXPECT_THAT(std::string(train_->Run().status().message()), HasSubstr("'train' was unloaded"));
  EXPECT_EQ(Save(), "");
  EXPECT_TRUE(fs::exists(folder_ + "/step-3")) << "its variables stay";
  CompileTrain();
  EXPECT_EQ(Load(folder_), "");
  EXPECT_EQ(train_->step(), 3);
  Train(1);
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// 1.5 MiB, of which no device has more than 1 MiB, and no node all.
std::function<void(Job&)> HalvesATable(const std::optional<NdSbp>& sbp) {
  return [sbp](Job& job) {
    const Tensor table = Variable(
        job.graph(),
        {.name = "table", .shape = {1536, 256}, .init = "normal", .stddev = 1, .sbp = sbp});
    Assign(table, table * 0.5);
  };
}

TEST(CheckpointSaveTest, ATableLargerThanADevice) {
  const std::string folder = EmptyFolder();
  struct Case {
    std::string name;
    std::vector<int> devices;
    std::optional<NdSbp> sbp;
    int64_t memory;
  };
  std::vector<std::string> files;
  for (const Case& layout :
       {Case{"one", {1}, std::nullopt, 0}, Case{"rows", {4, 4}, sbp::S(0), 1 << 20},
        Case{"columns", {5, 2}, sbp::S(1), 1 << 20}}) {
    SCOPED_TRACE(layout.name);
    const auto session =
        StartOrDie({.devices = layout.devices, .device_memory_bytes = layout.memory});
    auto train = session->Compile("train", HalvesATable(layout.sbp));
    ASSERT_TRUE(train.ok()) << train.status().message();
    // The last goes on where the one before it was.
    if (layout.name == "columns") {
      ASSERT_EQ(session->Load(folder + "/rows"), absl::OkStatus());
      EXPECT_EQ(train->step(), 2);
    } else {
      ASSERT_TRUE(train->Run({.steps = 2}).ok());
    }
    ASSERT_EQ(session->Save(folder, {.name = layout.name}), absl::OkStatus());
    ASSERT_EQ(session->FinishSave(), absl::OkStatus());
    const std::string saved = folder + "/" + layout.name;
    EXPECT_THAT(NamesIn(saved),
                UnorderedElementsAre("model-00001-of-00001.safetensors", "checksums.json",
                                     "model.safetensors.index.json", "state.json"));
    files.push_back(Contents(saved + "/model-00001-of-00001.safetensors"));
  }
  EXPECT_GT(files[0].size(), 1536 * 256 * sizeof(float));
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(files[1], files[2]);
}

rusage Usage() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

// Nobody would ever say that all of it is written.
TEST(CheckpointLoadTest, ThereIsNothingToSaveWithoutVariables) {
  const auto session = StartOrDie({.devices = {1}});
  const auto job =
      session->Compile("none", [](Job& job) { job.Fetch("y", Mean(job.Input("x", {4}))); });
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(session->Save(EmptyFolder()).message(),
            "Save: no compiled job has variables; compile first");
  EXPECT_EQ(session->FinishSave(), absl::OkStatus());
}

// A reader for each variable and device took 11 GB and 4,800 descriptors here.
TEST(CheckpointLoadTest, ManyVariablesOnManyDevicesTakeLittle) {
  const std::string folder = EmptyFolder();
  const auto record = [](Job& job) {
    Tensor sum = Variable(job.graph(), {.name = "v", .shape = {1024}});
    for (int i = 0; i < 600; ++i) {
      sum = sum + Variable(job.graph(), {.name = absl::StrFormat("v%d", i), .shape = {1024}});
    }
    job.Fetch("sum", Mean(sum));
  };
  const auto session = StartOrDie({.devices = {8}});
  auto job = session->Compile("many", record);
  ASSERT_TRUE(job.ok()) << job.status().message();
  ASSERT_EQ(session->Set("v599", Array::FromVector<float>({1024}, std::vector<float>(1024, 2))),
            absl::OkStatus());
  const auto before = job->Run();
  ASSERT_TRUE(before.ok()) << before.status().message();
  ASSERT_EQ(session->Save(folder), absl::OkStatus());
  ASSERT_EQ(session->Set("v599", Array(DType::kF32, {1024})), absl::OkStatus());

  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{64, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int64_t peak_before = Usage().ru_maxrss;
  const absl::Status loaded = session->Load(folder);
  const int64_t peak_after = Usage().ru_maxrss;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(loaded, absl::OkStatus());
  EXPECT_LT((peak_after - peak_before) / 1024, 200) << "MiB";
  const auto after = job->Run();
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_EQ(after->Scalars("sum"), before->Scalars("sum"));
}

}  // namespace
}  // namespace braid
