// What a session says while it stands still, and after a failure: in one process of several nodes.

#include <braid/braid.h>
#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// Who comes to it while it is shut waits until it opens.
class Gate {
 public:
  void Shut() { Set(true); }
  void Open() { Set(false); }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    waiting_ += is_shut_ ? 1 : 0;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_shut_; });
  }
  void AwaitWaiting() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }

 private:
  void Set(bool is_shut) {
    std::lock_guard<std::mutex> lock(mutex_);
    is_shut_ = is_shut;
    waiting_ = 0;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_shut_ = false;
  int waiting_ = 0;
};

// Reads at the offset of a file go through here: a disk that does not answer.
std::atomic<Gate*> disk{nullptr};

// What is logged as a warning.
class Warnings : public google::LogSink {
 public:
  Warnings() { google::AddLogSink(this); }
  ~Warnings() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity severity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message, size_t length) override {
    if (severity != google::GLOG_WARNING) return;
    std::lock_guard<std::mutex> lock(mutex_);
    messages_.emplace_back(message, length);
    changed_.notify_all();
  }
  std::string AwaitFirst() {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(30), [this] { return !messages_.empty(); });
    EXPECT_TRUE(came) << "nothing was logged";
    return came ? messages_[0] : "";
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> messages_;
};

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

class StallTest : public ::testing::Test {
 protected:
  // Two nodes. Operator "nap" copies; its kernel on node 1 does `nap` before.
  void StartSession(std::function<absl::Status(int64_t step)> nap, SessionOptions options = {}) {
    options.devices = {1, 1};
    options.progress = Progress::kOff;
    auto session = Session::Start(std::move(options));
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    ASSERT_TRUE(session_->operators()
                    .Register(OpDef("nap")
                                  .Rule("...->...")
                                  .NoGradient()
                                  .Sample({.inputs = {{DType::kF32, {3, 4}}}}))
                    .ok());
    class Nap final : public Kernel {
     public:
      Nap(const KernelSpec& spec, std::function<absl::Status(int64_t)> nap)
          : bytes_(spec.outputs[0].num_elements() * static_cast<int64_t>(sizeof(float))) {
        // The second half of the batch is node 1's.
        if (spec.outputs[0].region.offset[0] > 0) nap_ = std::move(nap);
      }
      absl::Status Run(const KernelRun& run) override {
        if (nap_) BRAID_RETURN_IF_ERROR(nap_(run.step));
        std::memcpy(run.outputs[0], run.inputs[0], static_cast<size_t>(bytes_));
        return absl::OkStatus();
      }

     private:
      const int64_t bytes_;
      std::function<absl::Status(int64_t)> nap_;
    };
    ASSERT_TRUE(
        session_->kernels()
            .Register("nap",
                      [nap](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                        return std::make_unique<Nap>(spec, nap);
                      })
            .ok());
  }

  void Compile(const DatasetSpec& data) {
    auto job = session_->Compile("train", [&](Job& job) {
      auto [image, label] = job.Read(data, {.batch = 16});
      const Tensor x = Apply("nap", {image});
      const Tensor hidden = Relu(Linear(x, 32, {.name = "hidden"}));
      const Tensor loss = Mean(SoftmaxCrossEntropy(Linear(hidden, 10, {.name = "out"}), label));
      job.Minimize(loss, Adam{.lr = 1e-3});
      job.Fetch("loss", loss);
    });
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = std::make_unique<CompiledJob>(*job);
  }

  // Runs beside the test.
  void Run(int64_t steps) {
    running_ = std::thread([this, steps] { result_ = job_->Run({.steps = steps}).status(); });
  }
  absl::Status AwaitRun() {
    running_.join();
    return result_;
  }

  std::unique_ptr<Session> session_;
  std::unique_ptr<CompiledJob> job_;
  std::thread running_;
  absl::Status result_;
};

TEST_F(StallTest, AKernelThatSleepsIsTheRoot) {
  Gate gate;
  gate.Shut();
  Warnings warnings;
  StartSession(
      [&gate](int64_t step) {
        if (step == 3) gate.Pass();
        return absl::OkStatus();
      },
      {.stall_timeout = kSecond});
  Compile(DrawnDigits({.count = 256}));
  Run(5);
  gate.AwaitWaiting();
  const std::string root =
      "everything waits for: node 1, device 0: nap 'nap[^']*' \\(stall_test.cc:[0-9]+\\) has been "
      "inside its kernel for [0-9.]+ s$";
  EXPECT_THAT(FirstLine(warnings.AwaitFirst()),
              ContainsRegex("^no act has ended for [12] s \\(--stall_timeout\\): " + root));
  const std::string text = session_->Describe();
  EXPECT_THAT(FirstLine(text), ContainsRegex("^" + root));
  EXPECT_THAT(text, AllOf(HasSubstr("\nhow it comes to that:\n  node 0, device 0"),
                          HasSubstr("the session is stepping job 'train', for "),
                          HasSubstr("node 1, device 0: the thread does not answer; it is inside "
                                    "nap")));
  gate.Open();
  EXPECT_EQ(AwaitRun(), absl::OkStatus());
  EXPECT_THAT(FirstLine(session_->Describe()),
              ContainsRegex("^no job runs: the session is waiting for the program, for 0"));
}

TEST_F(StallTest, AReaderThatBlocksIsTheRoot) {
  TempDir folder;
  ASSERT_TRUE(Array(DType::kF32, {64, 784}).WriteNpy(folder / "image.npy").ok());
  ASSERT_TRUE(Array(DType::kI32, {64}).WriteNpy(folder / "label.npy").ok());
  Warnings warnings;
  StartSession([](int64_t) { return absl::OkStatus(); }, {.stall_timeout = kSecond});
  Compile(NpyFiles({{"image", folder / "image.npy"}, {"label", folder / "label.npy"}}));
  Gate gate;
  gate.Shut();
  disk = &gate;
  Run(20);
  gate.AwaitWaiting();
  const std::string root =
      "wait(s|, wait) for: node [01], device 0 \\(input\\): read '[^']*' "
      "\\(stall_test.cc:[0-9]+\\) has been inside its kernel for [0-9.]+ s$";
  EXPECT_THAT(FirstLine(warnings.AwaitFirst()), ContainsRegex(root));
  EXPECT_THAT(FirstLine(session_->Describe()), ContainsRegex(root));
  gate.Open();
  EXPECT_EQ(AwaitRun(), absl::OkStatus());
  disk = nullptr;
}

TEST_F(StallTest, ASlowNodeIsNamed) {
  std::atomic<int64_t> steps{0};
  // Longer than the rest of a step under a sanitizer on a busy machine.
  StartSession([&steps](int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    ++steps;
    return absl::OkStatus();
  });
  Compile(DrawnDigits({.count = 256}));
  Run(60);
  while (steps < 50) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string text = session_->Describe();
  EXPECT_EQ(AwaitRun(), absl::OkStatus());
  EXPECT_THAT(FirstLine(text), ContainsRegex("^stepping job 'train', which advances; just now "));
  // The first row is the node that the others waited for most.
  EXPECT_THAT(
      text, ContainsRegex("\n  node +waited for  waits  busy  slowest\n"
                          "  node 1 +([6-9][0-9]|100) %.* nap 'nap[^\n]*: [6-9][0-9]\\.[0-9]+ ms"));
}

class EventDumpTest : public StallTest {
 protected:
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      files.push_back(entry.path());
    }
    return files;
  }
  // A run whose third step fails with `status`; the run's error.
  std::string RunThatFails(const absl::Status& status) {
    StartSession([status](int64_t step) { return step == 2 ? status : absl::OkStatus(); },
                 {.event_dump = folder_.path()});
    Compile(DrawnDigits({.count = 256}));
    const absl::Status failure = job_->Run({.steps = 5}).status();
    EXPECT_EQ(failure.code(), status.code());
    session_.reset();
    return std::string(failure.message());
  }
  TempDir folder_;
};

TEST_F(EventDumpTest, AFailureLeavesTheLastEventsWhereItSays) {
  const std::string error = RunThatFails(absl::DataLossError("the disk is wet"));
  const std::vector<std::string> files = Files();
  ASSERT_EQ(files.size(), 2u);  // each node's
  for (const std::string& file : files) {
    EXPECT_THAT(error, HasSubstr("its last events: " + file));
    const std::string text = GetFile(file);
    EXPECT_THAT(text, AllOf(HasSubstr("which was stepping job 'train' when it failed"),
                            HasSubstr("the disk is wet"), HasSubstr(" act 1 ")));
  }
  const std::string text = GetFile(files[0]) + GetFile(files[1]);
  EXPECT_THAT(text, ContainsRegex("act 2 (ended|began)"));
}

TEST_F(EventDumpTest, AUserWhoEndsTheRunGetsNone) {
  const std::string error = RunThatFails(absl::CancelledError("interrupted by SIGINT"));
  EXPECT_THAT(error, HasSubstr("interrupted by SIGINT"));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(EventDumpTest, SuccessLeavesNothing) {
  StartSession([](int64_t) { return absl::OkStatus(); }, {.event_dump = folder_.path()});
  Compile(DrawnDigits({.count = 256}));
  EXPECT_TRUE(job_->Run({.steps = 5}).ok());
  session_.reset();
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(EventDumpTest, AFolderThatCannotBeWrittenIsSaid) {
  std::filesystem::remove(folder_.path());
  const std::string error = RunThatFails(absl::DataLossError("the disk is wet"));
  EXPECT_THAT(error,
              AllOf(HasSubstr("the disk is wet"), HasSubstr("its last events could not be written"),
                    HasSubstr(folder_.path())));
}

}  // namespace
}  // namespace braid

// In place of the C library's.
extern "C" ssize_t pread(int descriptor, void* buffer, size_t bytes, off_t offset) {
  if (braid::Gate* gate = braid::disk) gate->Pass();
  return syscall(SYS_pread64, descriptor, buffer, bytes, offset);
}
