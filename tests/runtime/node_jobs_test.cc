// The jobs of a node without its links and its control plane: what the master would order is called
// here.
#include "runtime/node_jobs.h"

#include <glog/logging.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/compile.h"
#include "compiler/plan/expand.h"
#include "compiler/plan/plan_codec.h"
#include "gmock/gmock.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "gtest/gtest.h"
#include "runtime/base/simulation.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/device_kinds.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

constexpr int kDevices = 2;

// An all_reduce of the node's two devices.
compiler::PhysicalGraph SumGraph() {
  static const OpRegistry& operators = *new OpRegistry(BuiltinOps());
  LogicalGraph graph(&operators);
  const Tensor x = ToSbp(RandomNormal(graph, {2, 4}), {sbp::S(1)});
  const Tensor w = ToSbp(RandomNormal(graph, {4, 4}), {sbp::S(0)});
  Fetch(Relu(ToSbp(MatMul(x, w), {sbp::B})), "y");
  compiler::CompileOptions options;
  options.job = "sum";
  options.all_devices = Placement("cpu", {{0, 0}, {0, 1}});
  options.master = options.all_devices.Slice(0, 1);
  auto compiled = compiler::Compile(std::move(graph), options);
  CHECK(compiled.ok()) << compiled.status();
  return std::move(compiled->physical);
}

class NodeJobsTest : public ::testing::Test {
 protected:
  NodeJobsTest() : variables_(&devices_), control_(environment_.StartReactor("node 0")) {
    for (int i = 0; i < kDevices; ++i) {
      devices_.push_back(MakeCpuDevice({.index = i,
                                        .devices = kDevices,
                                        .environment = &environment_,
                                        .cpu_kernels = &kernels_}));
    }
    jobs_ = std::make_unique<NodeJobs>(NodeJobs::Options{
        .environment = &environment_,
        .control = control_.get(),
        .devices = &devices_,
        .variables = &variables_,
        .datasets = &datasets_,
        .collectives = &collectives_,
        .on_loaded = [this](JobId, const absl::Status& status,
                            const std::optional<NodeSummary>&) { loaded_.push_back(status); },
        .on_run_done = {},
        .on_saved = {},
        .on_failure = [](const absl::Status& cause) { ADD_FAILURE() << cause; }});
  }

  ~NodeJobsTest() override {
    jobs_->StopLoading();
    control_.reset();
  }

  void On(const std::function<void()>& fn) {
    control_->Post(fn);
    Pass();
  }
  void Pass() {
    const std::unique_ptr<Event> never = environment_.MakeEvent();
    environment_.Await(*never, kSecond).IgnoreError();
  }

  const std::unique_ptr<Simulation> simulation_ = MakeSimulation(1);
  Environment& environment_ = simulation_->AddProcess("a process");
  const KernelRegistry kernels_ = CpuKernels();
  Devices devices_;
  VariableStore variables_;
  DatasetCache datasets_;
  CollectiveHub collectives_{0};
  std::vector<absl::Status> loaded_;
  std::unique_ptr<Reactor> control_;
  std::unique_ptr<NodeJobs> jobs_;
};

// The links go when the jobs have closed, and a collective uses them until it is destroyed.
TEST_F(NodeJobsTest, AreClosedOnlyWhenWhatAFailedLoadHadMadeIsGone) {
  const compiler::PhysicalGraph graph = SumGraph();
  const auto part = compiler::ExpandPlan(graph, 0);
  ASSERT_TRUE(part.ok()) << part.status();
  // The member of the second device is there already: that of the first is made, and it is not.
  std::unique_ptr<Collective> second;
  On([&] {
    for (const plan::Task& task : part->tasks) {
      if (!std::holds_alternative<plan::Collective>(task.work) || task.device != 1) continue;
      auto made = collectives_.Create(CollectiveSpecOf(*part, task), *control_,
                                      MemoryOf(*devices_[1], MemoryKind::kPinned));
      ASSERT_TRUE(made.ok()) << made.status();
      second = *std::move(made);
    }
  });
  ASSERT_NE(second, nullptr);
  simulation_->HoldPosts(0, "node 0 t");
  const std::string plan = compiler::EncodePlan(graph);
  On([&] {
    const absl::Status status = jobs_->Load({.job = 1,
                                             .plan = std::make_shared<const std::string>(plan),
                                             .fingerprint = compiler::PlanFingerprint(plan)});
    EXPECT_TRUE(status.ok()) << status;
  });
  ASSERT_EQ(loaded_.size(), 1u);
  EXPECT_THAT(std::string(loaded_[0].message()), HasSubstr("member 1 was created twice"));
  bool is_closed = false;
  On([&] { jobs_->Close(absl::CancelledError("over"), [&] { is_closed = true; }); });
  EXPECT_FALSE(is_closed) << "the threads that destroy them have not come to it";
  simulation_->ReleasePosts(0);
  Pass();
  EXPECT_TRUE(is_closed);
  On([&] { second.reset(); });
}

}  // namespace
}  // namespace braid
