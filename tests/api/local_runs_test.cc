// Runs that the program's own thread works off, and others beside them: where kernels run, and what
// is the same nevertheless.

#include <braid/braid.h>
#include <omp.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSize = 4;

class CallingKernel final : public Kernel {
 public:
  CallingKernel(std::unique_ptr<Kernel> kernel, std::function<absl::Status(const KernelRun&)> call)
      : kernel_(std::move(kernel)), call_(std::move(call)) {}
  absl::Status Run(const KernelRun& run) override {
    const absl::Status status = call_(run);
    return status.ok() ? kernel_->Run(run) : status;
  }

 private:
  const std::unique_ptr<Kernel> kernel_;
  const std::function<absl::Status(const KernelRun&)> call_;
};

// A session in which `call` comes before each softmax.
std::unique_ptr<Session> Calling(SessionOptions options,
                                 std::function<absl::Status(const KernelRun&)> call) {
  std::unique_ptr<Session> session = StartOrDie(std::move(options));
  session->kernels().WrapAll([call](const KernelSpec& spec, std::unique_ptr<Kernel> kernel) {
    if (spec.op == "softmax") kernel = std::make_unique<CallingKernel>(std::move(kernel), call);
    return kernel;
  });
  return session;
}

CompiledJob CompileOrDie(Session& session, const std::function<void(Job&, Tensor y)>& end) {
  auto job = session.Compile("job", [&](Job& job) {
    const Tensor w = Variable(job.graph(), {.name = "w", .shape = {kSize}, .init = "ones"});
    end(job, Softmax(job.Input("x", {kSize, kSize}) * w));
  });
  EXPECT_TRUE(job.ok()) << job.status().message();
  return *std::move(job);
}

const Array kX = Array::FromVector({kSize, kSize}, std::vector<float>(kSize* kSize, 1));

void Fetch(Job& job, Tensor y) { job.Fetch("y", y); }
void Train(Job& job, Tensor y) { job.Minimize(Mean(Square(y)), Sgd{.lr = 0.1}); }

TEST(LocalRunsTest, OneDeviceWorksOnTheProgramsThread) {
  struct Case {
    std::vector<int> devices;
    bool is_trained = false, is_local = false;
  };
  for (const auto& [devices, is_trained, is_local] :
       {Case{{1}, false, true}, Case{{1}, true, true}, Case{{2}, false, false},
        Case{{1, 1}, false, false}}) {
    SCOPED_TRACE(testing::PrintToString(devices));
    std::set<std::thread::id> threads;  // a lock would be needed if they ran at the same time
    Mutex mutex;
    const auto session = Calling({.devices = devices}, [&](const KernelRun&) {
      const MutexLock lock(mutex);
      threads.insert(std::this_thread::get_id());
      return absl::OkStatus();
    });
    CompiledJob job = CompileOrDie(*session, is_trained ? Train : Fetch);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(job.Run({.steps = 2, .feeds = {{"x", kX}}}).ok());
    if (is_local) {
      EXPECT_THAT(threads, ElementsAre(std::this_thread::get_id()));
    } else {
      EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
    }
  }
}

TEST(LocalRunsTest, AFailureEndsTheSessionInTheSameWords) {
  std::vector<std::string> messages;
  for (const int threads : {1, 2}) {  // with more it is the device's thread
    const auto session =
        Calling({.devices = {1}, .threads_per_device = threads}, [](const KernelRun& run) {
          return run.step < 3 ? absl::OkStatus() : absl::AbortedError("enough");
        });
    CompiledJob job = CompileOrDie(*session, Fetch);
    ASSERT_TRUE(job.Run({.steps = 3, .feeds = {{"x", kX}}}).ok());
    const auto failed = job.Run({.feeds = {{"x", kX}}});
    EXPECT_EQ(failed.status().code(), absl::StatusCode::kAborted);
    messages.emplace_back(failed.status().message());
    EXPECT_EQ(job.Run({.feeds = {{"x", kX}}}).status(), failed.status());
  }
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_THAT(messages[0], AllOf(HasSubstr("stepping job 'job'"), HasSubstr("enough")));
}

TEST(LocalRunsTest, ARequestToEndIsHeardInTheMiddle) {
  Interruption interruption;
  const auto session =
      Calling({.devices = {1}, .interruption = &interruption}, [&](const KernelRun& run) {
        if (run.step == 2) interruption.Raise(absl::CancelledError("that will do"));
        return absl::OkStatus();
      });
  CompiledJob job = CompileOrDie(*session, Fetch);
  const auto result =
      job.Run({.steps = int64_t{1} << 30, .feeds = {{"x", kX}}, .keep = Keep::kLast});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(result.status().message(), HasSubstr("that will do"));
}

// Also after pauses in which nobody drives the device's loop, and beside Runs of all devices.
TEST(LocalRunsTest, BetweenRunsOfOtherKinds) {
  const auto session = StartOrDie({.devices = {2}});
  std::vector<CompiledJob> jobs;
  for (int devices : {1, 2}) {
    auto job = session->Compile("on " + std::to_string(devices), [&](Job& job) {
      const Placement placement = job.devices().Slice(0, devices);
      const Tensor x = job.Input("x", {kSize, kSize});
      job.Fetch("y", job.On(placement, [&] { return x + Cast(Step(job.graph()), DType::kF32); }));
    });
    ASSERT_TRUE(job.ok()) << job.status().message();
    jobs.push_back(*std::move(job));
  }
  int64_t steps[] = {0, 0};
  for (int i = 0; i < 60; ++i) {
    const int which = i % 7 % 2;
    const auto result = jobs[which].Run({.steps = 1 + i % 3, .feeds = {{"x", kX}}});
    ASSERT_TRUE(result.ok()) << result.status().message();
    steps[which] += 1 + i % 3;
    EXPECT_EQ(result->Last("y").data<float>()[0], static_cast<float>(steps[which]));
    if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  jobs[0].Unload();
  EXPECT_FALSE(jobs[0].Run({.feeds = {{"x", kX}}}).ok());
  EXPECT_TRUE(jobs[1].Run({.feeds = {{"x", kX}}}).ok());
}

TEST(LocalRunsTest, OnStepRunsNothing) {
  for (const int devices : {1, 2}) {
    const auto session = StartOrDie({.devices = {devices}});
    CompiledJob job = CompileOrDie(*session, Fetch);
    absl::Status inside, got;
    const auto result = job.Run({.feeds = {{"x", kX}}, .on_step = [&](int64_t, const StepValues&) {
                                   inside = job.Run({.feeds = {{"x", kX}}}).status();
                                   got = session->Get("w").status();
                                   return absl::OkStatus();
                                 }});
    EXPECT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(inside.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(inside.message(), HasSubstr("Run of job 'job' inside a Run"));
    EXPECT_EQ(got.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(job.Run({.feeds = {{"x", kX}}}).ok());
  }
}

TEST(LocalRunsTest, TheProgramKeepsItsOpenMpThreads) {
  const auto session = StartOrDie({.devices = {1}});
  auto job = session->Compile("job", [](Job& job) {
    const Tensor w = Variable(job.graph(), {.name = "w", .shape = {64, 64}, .init = "ones"});
    job.Fetch("y", MatMul(job.Input("x", {64, 64}), w));
  });
  ASSERT_TRUE(job.ok()) << job.status().message();
  const int before = omp_get_max_threads();
  omp_set_num_threads(3);
  const Array x = Array(DType::kF32, {64, 64});
  EXPECT_TRUE(job->Run({.feeds = {{"x", x}}}).ok());
  EXPECT_EQ(omp_get_max_threads(), 3);
  omp_set_num_threads(before);
}

}  // namespace
}  // namespace braid
