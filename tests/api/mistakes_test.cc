// What users do wrong, and what once ended the process by a signal, passed without a word, gave an
// error without the user's line or the words that help, or could not even be written: each mistake
// is an error of the next call that returns one, with the user's line where there is one.

#include <braid/braid.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "tests/api/mistake.h"

namespace braid {
namespace {

constexpr char kMistakesLine[] = "mistakes_test.cc:";

// A Tensor whose job was compiled long ago.
Tensor KeptTooLong() {
  Tensor kept;
  EXPECT_TRUE(StartOnTwoDevices()
                  ->Compile("first",
                            [&](Job& job) {
                              kept = Of(job);
                              job.Fetch("x", kept);
                            })
                  .ok());
  return kept;
}

std::vector<Mistake> OfTensors() {
  return {
      Recorded("fetch of none", [](Job& job) { job.Fetch("loss", Tensor()); },
               {"fetch 'loss'", "no tensor"}),
      Recorded("operator on none", [](Job& job) { job.Fetch("y", Relu(Tensor())); },
               {"fetch 'y'", "no tensor", "an operator before had none"}),
      Recorded("minimize none", [](Job& job) { job.Minimize(Tensor(), Sgd{.lr = 0.1}); },
               {"Minimize", "no tensor"}),
      Recorded("rows written of none",
               [](Job& job) {
                 const Tensor v = Variable(job.graph(), {.name = "v", .shape = {2, 3}});
                 WriteRows(v, Tensor(), Constant(job.graph(), 0, {.dtype = DType::kI64}), 0);
                 job.Fetch("v", v);
               },
               {"an operand is no tensor"}),
      Recorded("fetch of another job's", [](Job& job) { job.Fetch("y", KeptTooLong()); },
               {"fetch 'y'", "another job"}),
      Recorded("operator on another job's", [](Job& job) { job.Fetch("y", Relu(KeptTooLong())); },
               {"fetch 'y'", "another job"}),
      Recorded("operator on one and another job's",
               [](Job& job) { job.Fetch("y", Of(job) + KeptTooLong()); },
               {"add", "input 1 belongs to another job"}),
      Recorded("layer on another job's", [](Job& job) { job.Fetch("y", Linear(KeptTooLong(), 3)); },
               {"fetch 'y'", "another job"}),
      Recorded("minimize another job's",
               [](Job& job) { job.Minimize(KeptTooLong(), Sgd{.lr = 0.1}); },
               {"Minimize", "another job"}),
      Recorded("a rate of another job",
               [](Job& job) {
                 job.Minimize(Mean(Linear(Of(job), 1)), Sgd{.lr = LearningRate(KeptTooLong())});
               },
               {"learning rate", "another job"}),
      Recorded("the shape of none",
               [](Job& job) {
                 job.Fetch("y", Reshape(Of(job), {Tensor().shape()[0], 2}));
               },
               {"reshape", "an axis that is not there"}),
      Recorded("an axis that is not there",
               [](Job& job) { job.Fetch("y", Linear(Of(job), Of(job).shape()[2])); },
               {"[3, (of an axis that is not there)]"}),
      Recorded("an axis of a shape that is not there",
               [](Job& job) {
                 Shape shape = Of(job).shape();
                 job.Fetch("y", BroadcastTo(Of(job), {shape[-1], 2, 3}));
               },
               {"broadcast_to", "an axis that is not there"}),
      Recorded("shapes after an error",
               [](Job& job) {
                 const Tensor wrong = MatMul(Of(job), job.Input("w", {4, 5}));
                 job.Fetch("y", Reshape(wrong, {wrong.shape()[0], wrong.shape()[1]}));
               },
               {"matmul", "[2, 3]", "[4, 5]"}),
  };
}

std::vector<Mistake> OfPlacements() {
  const auto fetch = [](Job& job) { job.Fetch("y", Relu(Of(job))); };
  return {
      Recorded("a node that is not there",
               [=](Job& job) { job.On(job.devices().node(1), [&] { fetch(job); }); },
               {"no devices", "cpu[2]{0.0 0.1}"}),
      Recorded("a hierarchy that does not fit",
               [=](Job& job) {
                 job.On(job.devices().WithHierarchy({2, 2}), [&] { fetch(job); });
               },
               {"[2, 2] does not hold 2 devices"}),
      Recorded("a slice that is not there",
               [=](Job& job) { job.On(job.devices().Slice(1, 2), [&] { fetch(job); }); },
               {"a slice has 2 devices from rank 1 on, of 2", "cpu[2]{0.0 0.1}"}),
      Recorded("a part of a slice that is not there",
               [=](Job& job) {
                 job.On(job.devices().Slice(-1, 1).node(0).WithHierarchy({1}), [&] { fetch(job); });
               },
               {"a slice has 1 devices from rank -1 on, of 2"}),
      Recorded("devices of another cluster",
               [=](Job& job) {
                 job.On(Placement("cpu", std::vector<DeviceId>{{.node = 3, .device = 0}}),
                        [&] { fetch(job); });
               },
               {"3.0"}),
  };
}

std::vector<Mistake> OfLayers() {
  return {
      Recorded("two layers of a name",
               [](Job& job) {
                 const Tensor x = Linear(Of(job), 3, {.name = "fc"});
                 job.Fetch("y", Linear(x, 3, {.name = "fc"}));
               },
               {"linear 'fc'", "a layer of that name is at mistakes_test.cc:", ".share"}),
      Recorded("sharing with nothing",
               [](Job& job) {
                 const Tensor x = Linear(Of(job), 3, {.name = "first"});
                 job.Fetch("y", Linear(x, 3, {.name = "fist", .share = true}));
               },
               {"linear 'fist'", "the nearest of 1: first"}),
      Recorded("sharing without a name",
               [](Job& job) { job.Fetch("y", Linear(Of(job), 3, {.share = true})); },
               {".name is not given"}),
      Recorded("sharing another size",
               [](Job& job) {
                 const Tensor x = Linear(Of(job), 4, {.name = "fc"});
                 job.Fetch("y", Linear(x, 4, {.name = "fc", .share = true}));
               },
               {"fc.weight", "[3, 4]", "[4, 4]"}),
  };
}

std::vector<Mistake> OfVariables() {
  const auto variable = [](VariableOptions options) {
    return [options](Job& job) { job.Fetch("v", Variable(job.graph(), options)); };
  };
  return {
      Recorded("stddev without normal", variable({.name = "v", .shape = {2}, .stddev = 0.1}),
               {"variable 'v'", ".stddev", "\"normal\"", "\"zeros\""}),
      Recorded("value without constant", variable({.name = "v", .shape = {2}, .value = 1}),
               {".value", "\"constant\""}),
      Recorded("bounds without uniform",
               variable({.name = "v", .shape = {2}, .init = "normal", .high = 1, .stddev = 1}),
               {".high", "\"uniform\"", "\"normal\""}),
      Recorded("an init that there is not", variable({.name = "v", .shape = {2}, .init = "xavier"}),
               {"xavier"}),
  };
}

std::vector<Mistake> OfTraining() {
  const auto minimize = [](const OptimizerSpec& optimizer, MinimizeOptions options = {}) {
    return [=](Job& job) {
      job.Minimize(Mean(Square(Linear(Of(job), 2, {.name = "fc"}))), optimizer, options);
    };
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {
      Recorded("a negative rate", minimize(Sgd{.lr = -0.1}), {"learning rate is -0.1"}),
      Recorded("a rate that is no number", minimize(Adam{.lr = nan}), {"learning rate is nan"}),
      Recorded("a schedule of negative rates",
               [](Job& job) {
                 job.Minimize(Mean(Linear(Of(job), 1)),
                              Sgd{.lr = WarmupCosine(job.graph(), {.peak = -0.1})});
               },
               {"WarmupCosine", "-0.1"}),
      Recorded("a group of no variables",
               minimize(Sgd{.lr = 0.1}, {.groups = {{.names = "cf.*", .rate = 0.5}}}),
               {"group 'cf.*'", "the nearest: fc."}),
      Recorded("a group at a negative rate",
               minimize(Sgd{.lr = 0.1}, {.groups = {{.names = "fc.*", .rate = -1}}}),
               {"group 'fc.*'", "rate -1"}),
      Recorded("all frozen",
               minimize(Sgd{.lr = 0.1}, {.groups = {{.names = "*", .is_frozen = true}}}),
               {"nothing to train"}),
      Recorded("an average that never moves", minimize(Sgd{.lr = 0.1}, {.ema = Ema{.decay = 1}}),
               {"decay of .ema is 1"}),
      Recorded("averages that nothing keeps",
               [](Job& job) {
                 job.Fetch("y", Linear(Of(job), 1));
                 job.UseAverages();
               },
               {"UseAverages of job 'job'", ".ema = braid::Ema{}"}),
      Recorded("a norm under a name that is taken",
               [](Job& job) {
                 const Tensor loss = Mean(Linear(Of(job), 1));
                 job.Fetch("norm", loss);
                 job.Minimize(loss, Sgd{.lr = 0.1}, {.norms = "norm"});
               },
               {"as 'norm'", "another name"}),
      {"a job that does nothing",
       [] { return StartOnTwoDevices()->Compile("job", [](Job& job) { Relu(Of(job)); }).status(); },
       {"job 'job' fetches nothing", "job.Fetch"}},
  };
}

std::vector<Mistake> OfData() {
  const auto read = [](const DatasetSpec& data, BatchOptions options) {
    return [=](Job& job) { job.Fetch("x", job.ReadFields(data, options)[0]); };
  };
  return {
      Recorded("a batch of more than there is", read(DrawnDigits({.count = 8}), {.batch = 9}),
               {"read 'read'", "batch is 9, and the dataset has 8 samples"}),
  };
}

struct Thrown {};

// Runs a job with an operator of the user's, whose kernel comes from `factory`.
absl::Status RunUnlucky(KernelFactory factory) {
  const auto session = StartOnTwoDevices();
  BRAID_RETURN_IF_ERROR(session->operators().Register(
      OpDef("unlucky").Rule("...->...").NoGradient().Sample({.inputs = {{DType::kF32, {3, 4}}}})));
  BRAID_RETURN_IF_ERROR(session->kernels().Register("unlucky", std::move(factory)));
  BRAID_ASSIGN_OR_RETURN(CompiledJob job, session->Compile("job", [](Job& job) {
    job.Fetch("y", Apply("unlucky", {job.Input("x", {2})}));
  }));
  return RunOf(job).status();
}

std::vector<Mistake> OfExceptions() {
  using Made = absl::StatusOr<std::unique_ptr<Kernel>>;
  class Throws final : public Kernel {
   public:
    absl::Status Run(const KernelRun&) override { throw std::runtime_error("no luck"); }
  };
  return {
      {"a job's function throws",
       [] {
         return StartOnTwoDevices()
             ->Compile("job", [](Job&) { std::vector<int>().at(3); })
             .status();
       },
       {"the function that records job 'job' threw std::out_of_range: "}},
      {"a job's function throws something",
       [] { return StartOnTwoDevices()->Compile("job", [](Job&) { throw Thrown(); }).status(); },
       {"threw", "Thrown"}},
      {"a kernel throws",
       [] {
         return RunUnlucky([](const KernelSpec&) -> Made { return std::make_unique<Throws>(); });
       },
       {"unlucky", "threw std::runtime_error: no luck", kMistakesLine}},
      {"what makes a kernel throws",
       [] {
         return RunUnlucky(
             [](const KernelSpec&) -> Made { throw std::runtime_error("none left"); });
       },
       {"unlucky", "threw std::runtime_error: none left", kMistakesLine}},
  };
}

std::vector<Mistake> OfRuns() {
  const auto run = [](RunOptions options) {
    return [options](Session&, CompiledJob& job) { return job.Run(options).status(); };
  };
  return {
      Used("too few values",
           [](Session&, CompiledJob& job) {
             return job.Run({.feeds = {{"x", Array::FromVector<float>({2}, {1})}}}).status();
           },
           {"input 'x' of job 'job'", "1 values were given for an Array [2], which has 2",
            kMistakesLine}),
      Used("an array of a negative size",
           [](Session&, CompiledJob& job) {
             return job.Run({.feeds = {{"x", Array(DType::kF32, {-2})}}}).status();
           },
           {"input 'x' of job 'job'", "[-2]"}),
      Used("an array filled as another type",
           [](Session&, CompiledJob& job) {
             Array x(DType::kF32, {2});
             x.mutable_data<double>()[1] = 1;
             return job.Run({.feeds = {{"x", x}}}).status();
           },
           {"input 'x' of job 'job'", "an Array f32[2] was asked for elements of f64",
            kMistakesLine}),
      Used("epochs of nothing", run({.epochs = 1, .feeds = {{"x", Two()}}}),
           {"epochs is 1, and the job reads nothing"}),
  };
}

std::vector<Mistake> OfResults() {
  using Look = std::function<void(const RunResult& result)>;
  // What follows, after the first: Run, Compile, Save or Close.
  const auto then_run = [](Session&, CompiledJob& job) { return RunOf(job).status(); };
  const auto after = [=](const std::string& name, Look look, std::vector<std::string> says,
                         std::function<absl::Status(Session&, CompiledJob&)> next) {
    says.push_back(kMistakesLine);
    return Used(
        name,
        [=](Session& session, CompiledJob& job) -> absl::Status {
          BRAID_ASSIGN_OR_RETURN(const RunResult result, RunOf(job));
          look(result);
          const absl::Status said = next(session, job);
          EXPECT_TRUE(session.Close(absl::OkStatus()).ok()) << "it is said once";
          return said;
        },
        std::move(says));
  };
  const std::vector<std::string> no_summ = {"nothing named 'summ'", "the nearest of 2: sum, y"};
  const Look mean = [](const RunResult& result) { EXPECT_TRUE(std::isnan(result.Mean("summ"))); };
  return {
      after("a mean of nothing", mean, no_summ, then_run),
      after("a mean of nothing, said by Compile", mean, no_summ,
            [](Session& session, CompiledJob&) {
              return session.Compile("next", [](Job& job) { job.Fetch("y", Of(job)); }).status();
            }),
      after("a mean of nothing, said by Save", mean, no_summ,
            [](Session& session, CompiledJob&) { return session.Save("/proc/here"); }),
      after("a mean of nothing, said by Get", mean, no_summ,
            [](Session& session, CompiledJob&) { return session.Get("v").status(); }),
      after("a mean of nothing, said at the end", mean, no_summ,
            [](Session& session, CompiledJob&) { return session.Close(absl::OkStatus()); }),
      after(
          "the last of nothing",
          [](const RunResult& result) {
            EXPECT_TRUE(std::isnan(result.Last("summ").data<float>()[0]));
          },
          no_summ, then_run),
      after(
          "values of nothing",
          [](const RunResult& result) { EXPECT_TRUE(result.Values("summ").empty()); }, no_summ,
          then_run),
      after(
          "numbers that are arrays",
          [](const RunResult& result) { EXPECT_TRUE(std::isnan(result.Scalars("y").at(0))); },
          {"Scalars", "'y' is f32[2]"}, then_run),
      after(
          "elements of another type",
          [](const RunResult& result) {
            const auto numbers = result.Last("y").data<double>();
            EXPECT_EQ(numbers.size(), 2u);
            EXPECT_EQ(numbers[0] + numbers[1], 0);
          },
          {"an Array f32[2] was asked for elements of f64"}, then_run),
  };
}

std::vector<Mistake> OfSessions() {
  return {
      Used("a variable set by too few values",
           [](Session& session, CompiledJob&) {
             return session.Set("v", Array::FromVector<float>({2}, {1}));
           },
           {"variable 'v'", "1 values", kMistakesLine}),
  };
}

class MistakesTest : public testing::TestWithParam<Mistake> {};

TEST_P(MistakesTest, IsAnError) { ExpectItsError(GetParam()); }

std::vector<Mistake> AllMistakes() {
  std::vector<Mistake> all;
  for (const auto& some : {OfTensors(), OfPlacements(), OfLayers(), OfVariables(), OfTraining(),
                           OfData(), OfExceptions(), OfRuns(), OfResults(), OfSessions()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Users, MistakesTest, testing::ValuesIn(AllMistakes()), NameOfMistake);

// What a program may rely on.
TEST(LayerNamesTest, ThoseWithoutANameHaveTheirOwn) {
  const auto session = StartOnTwoDevices();
  ASSERT_TRUE(session
                  ->Compile("job",
                            [](Job& job) {
                              Tensor x = Linear(Of(job), 4);
                              x = Linear(x, 4, {.name = "linear_1"});
                              x = LayerNormLayer(Linear(x, 4));
                              x = Linear(x, 4, {.name = "linear_1", .share = true});
                              job.Fetch("y", x);
                            })
                  .ok());
  EXPECT_EQ(
      session->variables(),
      (std::vector<std::string>{"linear.bias", "linear.weight", "linear_1.bias", "linear_1.weight",
                                "linear_2.bias", "linear_2.weight", "norm.beta", "norm.gamma"}));
}

}  // namespace
}  // namespace braid
