// What users do wrong, and what was always refused: each mistake is an error of the next call that
// returns one, with the user's line where there is one. Those that were not are in mistakes_test.

#include <braid/braid.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "tests/api/mistake.h"

namespace braid {
namespace {

constexpr char kRefusalsLine[] = "refusals_test.cc:";

std::vector<Mistake> RefusedOfTensors() {
  return {
      Recorded("operator on one and none", [](Job& job) { job.Fetch("y", Of(job) + Tensor()); },
               {"add", "input 1 is no tensor"}),
  };
}

std::vector<Mistake> RefusedOfPlacements() {
  return {
      Recorded(
          "a split of an axis that is not there",
          [](Job& job) { job.Fetch("y", Linear(Of(job), 4, {.name = "fc", .weight = sbp::S(5)})); },
          {"S(5)"}),
  };
}

std::vector<Mistake> RefusedOfLayers() {
  return {
      Recorded("a linear layer of a number",
               [](Job& job) { job.Fetch("y", Linear(job.Input("x", {}), 4)); }, {"linear", "[]"}),
      Recorded("heads that do not divide",
               [](Job& job) {
                 job.Fetch("y", Attention(job.Input("x", {1, 2, 5}), {.heads = 2}));
               },
               {"attention", "[1, 2, 5] with 2 heads"}),
      Recorded("groups that do not divide",
               [](Job& job) {
                 job.Fetch("y", ConvLayer(job.Input("x", {1, 3, 8, 8}), 4, {.groups = 2}));
               },
               {"conv", "2 groups"}),
      Recorded("embedding of floats",
               [](Job& job) { job.Fetch("y", EmbeddingLayer(Of(job), 10, 4)); }, {"f32[2, 3]"}),
      Recorded("no layers",
               [](Job& job) {
                 job.Fetch("y", LstmLayer(job.Input("x", {1, 2, 3}), 4, {.layers = 0}).outputs);
               },
               {"0 layers"}),
  };
}

std::vector<Mistake> RefusedOfVariables() {
  const auto variable = [](VariableOptions options) {
    return [options](Job& job) { job.Fetch("v", Variable(job.graph(), options)); };
  };
  return {
      Recorded("a negative size", variable({.name = "v", .shape = {-2}}), {"-2"}),
      Recorded("two variables of a name",
               [](Job& job) {
                 const Tensor v = Variable(job.graph(), {.name = "v", .shape = {2}});
                 job.Fetch("v", v + Variable(job.graph(), {.name = "v", .shape = {2}}));
               },
               {"variable 'v' is there already"}),
      Recorded("assigning to no variable", [](Job& job) { Assign(Of(job), Of(job)); },
               {"assign", "must be a variable"}),
  };
}

std::vector<Mistake> RefusedOfTraining() {
  const auto minimize = [](const OptimizerSpec& optimizer, MinimizeOptions options = {}) {
    return [=](Job& job) {
      job.Minimize(Mean(Square(Linear(Of(job), 2, {.name = "fc"}))), optimizer, options);
    };
  };
  return {
      Recorded("no micro-batches", minimize(Sgd{.lr = 0.1}, {.micro_batches = 0}),
               {"micro_batches is 0"}),
      Recorded("a loss that is no scalar",
               [](Job& job) {
                 job.Minimize(Square(Linear(Of(job), 2, {.name = "fc"})), Sgd{.lr = 0.1});
               },
               {"f32[2, 2]"}),
      Recorded("a loss without variables",
               [](Job& job) { job.Minimize(Mean(Of(job)), Sgd{.lr = 0.1}); },
               {"does not depend on any variable"}),
      Recorded("training what is no variable",
               [](Job& job) {
                 const Tensor x = Of(job);
                 job.Minimize(Mean(x), Sgd{.lr = 0.1}, {.variables = {x}});
               },
               {".variables holds a tensor that is no variable"}),
      Recorded("two fetches of a name",
               [](Job& job) {
                 job.Fetch("y", Of(job));
                 job.Fetch("y", job.Input("z", {1}));
               },
               {"fetch 'y'", "already"}),
      {"two jobs of a name",
       [] {
         const auto session = StartOnTwoDevices();
         const auto record = [](Job& job) { job.Fetch("y", Of(job)); };
         BRAID_RETURN_IF_ERROR(session->Compile("job", record).status());
         return session->Compile("job", record).status();
       },
       {"a job 'job' is compiled already"}},
  };
}

std::vector<Mistake> OfOperators() {
  return {
      Recorded("products that do not fit",
               [](Job& job) {
                 job.Fetch("y", MatMul(Of(job), job.Input("w", {4, 5})));
               },
               {"matmul", "[2, 3]", "[4, 5]"}),
      Recorded("sums that do not fit",
               [](Job& job) { job.Fetch("y", Of(job) + job.Input("w", {4})); },
               {"add", "[2, 3]", "[4]"}),
      Recorded("a reshape that does not fit",
               [](Job& job) {
                 job.Fetch("y", Reshape(Of(job), {4, 2}));
               },
               {"[2, 3]", "[4, 2]"}),
      Recorded("concatenation that does not fit",
               [](Job& job) {
                 job.Fetch("y", Concat({Of(job), job.Input("w", {2})}, 0));
               },
               {"concat"}),
      Recorded("an axis that is too large",
               [](Job& job) { job.Fetch("y", ReduceSum(Of(job), {.axes = {2}})); }, {"axis is 2"}),
      Recorded(
          "labels that are floats",
          [](Job& job) { job.Fetch("y", SoftmaxCrossEntropy(Of(job), job.Input("label", {2}))); },
          {"softmax_cross_entropy", "b is [2]"}),
      Recorded("all dropped", [](Job& job) { job.Fetch("y", Dropout(Of(job), 1.5)); }, {"1.5"}),
      Recorded("an operator that there is not",
               [](Job& job) { job.Fetch("y", Apply("relo", {Of(job)})); },
               {"relo", "no operator of this type"}),
  };
}

std::vector<Mistake> RefusedOfData() {
  const auto read = [](const DatasetSpec& data, BatchOptions options) {
    return [=](Job& job) { job.Fetch("x", job.ReadFields(data, options)[0]); };
  };
  return {
      Recorded("a batch of nothing", read(DrawnDigits({.count = 8}), {.batch = 0}), {"batch is 0"}),
      Recorded("a file that is not there", read(TextFile("/no/such.txt", {.context = 4}), {}),
               {"/no/such.txt"}),
      Recorded("fields that are not two",
               [](Job& job) { job.Fetch("x", job.Read(NpyFiles({}), {.batch = 2})[0]); }, {"read"}),
  };
}

std::vector<Mistake> RefusedOfRuns() {
  const auto run = [](RunOptions options) {
    return [options](Session&, CompiledJob& job) { return job.Run(options).status(); };
  };
  return {
      Used("an input that there is not", run({.feeds = {{"z", Two()}}}), {"no input 'z'", "x"}),
      Used("another shape", run({.feeds = {{"x", Array(DType::kF32, {3})}}}),
           {"f32[2]", "f32[3]", kRefusalsLine}),
      Used("another element type", run({.feeds = {{"x", Array(DType::kF64, {2})}}}),
           {"f32[2]", "f64[2]", kRefusalsLine}),
      Used("nothing fed", run({}), {"input 'x'", "was not fed", kRefusalsLine}),
      Used("no steps", run({.steps = 0, .feeds = {{"x", Two()}}}), {"steps is 0"}),
      Used("after Unload",
           [](Session&, CompiledJob& job) {
             job.Unload();
             return RunOf(job).status();
           },
           {"was unloaded"}),
  };
}

std::vector<Mistake> RefusedOfSessions() {
  return {
      {"no devices", [] { return Session::Start({.devices = {0}}).status(); }, {"0 devices"}},
      {"no nodes", [] { return Session::Start({.devices = {}}).status(); }, {"at least one node"}},
      Used("a variable that there is not",
           [](Session& session, CompiledJob&) { return session.Get("w").status(); }, {"'w'", "v"}),
      Used("a variable's other shape",
           [](Session& session, CompiledJob&) { return session.Set("v", Array(DType::kF32, {3})); },
           {"f32[2]", "f32[3]"}),
      Used("a checkpoint that is not there",
           [](Session& session, CompiledJob&) { return session.Load("/no/such/folder"); },
           {"/no/such/folder"}),
      Used("a folder that cannot be made",
           [](Session& session, CompiledJob&) { return session.Save("/proc/here"); },
           {"/proc/here"}),
  };
}

class RefusalsTest : public testing::TestWithParam<Mistake> {};

TEST_P(RefusalsTest, IsAnError) { ExpectItsError(GetParam()); }

std::vector<Mistake> AllRefusals() {
  std::vector<Mistake> all;
  for (const auto& some : {RefusedOfTensors(), RefusedOfPlacements(), RefusedOfLayers(),
                           RefusedOfVariables(), RefusedOfTraining(), OfOperators(),
                           RefusedOfData(), RefusedOfRuns(), RefusedOfSessions()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Users, RefusalsTest, testing::ValuesIn(AllRefusals()), NameOfMistake);

}  // namespace
}  // namespace braid
