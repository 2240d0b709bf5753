#include "graph/logical_graph.h"

#include <memory>

#include "graph/op_def.h"
#include "graph/op_registry.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

absl::StatusOr<std::vector<TensorType>> FromAttrs(const OpContext& context) {
  return std::vector<TensorType>{{context.attrs.Type("dtype"), Shape(context.attrs.Ints("shape"))}};
}

absl::StatusOr<std::vector<TensorType>> Nothing(const OpContext&) {
  return std::vector<TensorType>();
}

// A handful of operators; the graph does not depend on the built-in ones.
const OpRegistry& Registry() {
  static const OpRegistry& registry = *[] {
    auto* ops = new OpRegistry;
    TensorType matrix = {DType::kF32, {2, 2}};
    for (OpDef& def : std::vector<OpDef>{
             OpDef("input").Infer(FromAttrs).NoGradient().External(),
             OpDef("variable").Infer(FromAttrs).NoGradient().External(),
             OpDef("matmul").Rule("ik,kj->ij").NoGradient().Sample({.inputs = {matrix, matrix}}),
             OpDef("relu").Rule("...->...").NoGradient().Sample({.inputs = {matrix}}),
             OpDef("add").Rule("...,...->...").NoGradient().Sample({.inputs = {matrix, matrix}}),
             OpDef("rows").Rule("nc->nc,n").NoGradient().Sample({.inputs = {matrix}}),
             OpDef("sum").Rule("...->").NoGradient().Sample({.inputs = {matrix}}),
             OpDef("update").Infer(Nothing).NoGradient().Mutates({0}).Sample(
                 {.inputs = {matrix, matrix}})}) {
      EXPECT_TRUE(ops->Register(std::move(def)).ok());
    }
    return ops;
  }();
  return registry;
}

Attrs Typed(std::vector<int64_t> shape) {
  return {{"shape", std::move(shape)}, {"dtype", DType::kF32}};
}

Tensor Source(LogicalGraph& graph, std::string name, std::vector<int64_t> shape,
              std::string_view type = "input") {
  return graph.Append1(type, {}, {.name = std::move(name), .attrs = Typed(std::move(shape))});
}

Tensor Apply(LogicalGraph& graph, std::string_view type, std::vector<Tensor> inputs,
             std::string name = "") {
  return graph.Append1(type, inputs, {.name = std::move(name)});
}

LogicalGraph ParseOrDie(std::string_view text) {
  auto graph = LogicalGraph::Parse(text, &Registry());
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? *std::move(graph) : LogicalGraph(&Registry());
}

TEST(LogicalGraphTest, AppendInfersTypes) {
  LogicalGraph graph(&Registry());
  Tensor x = Source(graph, "x", {64, 784});
  Tensor w = Source(graph, "w", {784, 10}, "variable");
  Tensor y = Apply(graph, "matmul", {x, w}, "fc1");
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(y.shape(), Shape({64, 10}));
  EXPECT_EQ(y.dtype(), DType::kF32);
  EXPECT_EQ(graph.producer(y.id()).name, "fc1");
  EXPECT_EQ(graph.FindOp("fc1"), 2);
  EXPECT_EQ(graph.FindOp("fc2"), std::nullopt);
  std::vector<Tensor> in = {y};
  std::vector<Tensor> rows = graph.Append("rows", in, {});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].type().ToString(), "f32[64]");
  EXPECT_EQ(graph.tensor(rows[1].id()).output, 1);
  auto consumers = graph.Consumers();
  EXPECT_EQ(consumers[w.id()], (std::vector<std::pair<OpId, int>>{{2, 1}}));
  EXPECT_EQ(consumers[y.id()], (std::vector<std::pair<OpId, int>>{{3, 0}}));
  EXPECT_TRUE(consumers[rows[0].id()].empty());
}

TEST(LogicalGraphTest, TheFirstErrorIsKeptWithTheUsersLine) {
  LogicalGraph graph(&Registry());
  Tensor x = Source(graph, "x", {64, 784});
  Tensor w = Source(graph, "w", {512, 10});
  std::vector<Tensor> inputs = {x, w};
  Tensor y =
      graph.Append1("matmul", inputs, {.name = "fc1", .location = {"/home/user/train.cc", 12}});
  EXPECT_FALSE(y.valid());
  EXPECT_EQ(y.graph(), &graph);
  constexpr char kMessage[] =
      "matmul 'fc1': a is [64, 784], b is [512, 10]; axis 0 of b must be 784, as axis 1 of a "
      "(train.cc:12)";
  EXPECT_EQ(graph.status(), absl::InvalidArgumentError(kMessage));
  // Ops on its tensors do nothing, and give as many tensors as they would.
  std::vector<Tensor> bad = {y};
  std::vector<Tensor> rows = graph.Append("rows", bad, {});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_FALSE(rows[0].valid() || rows[1].valid());
  EXPECT_EQ(graph.ops().size(), 2u);
  EXPECT_EQ(graph.status().message(), kMessage);
}

TEST(LogicalGraphTest, Mistakes) {
  auto error_of = [](auto record) {
    LogicalGraph graph(&Registry());
    record(graph);
    return std::string(graph.status().message());
  };
  EXPECT_EQ(error_of([](LogicalGraph& graph) { Apply(graph, "frobnicate", {}, "x"); }),
            "frobnicate 'x': no operator of this type is registered");
  EXPECT_EQ(error_of([](LogicalGraph& graph) { Apply(graph, "relu", {Tensor()}); }),
            "relu 'relu': input 0 is no tensor");
  EXPECT_EQ(error_of([](LogicalGraph& graph) {
              LogicalGraph other(&Registry());
              Apply(graph, "relu", {Source(other, "x", {2})});
            }),
            "relu 'relu': input 0 belongs to another job");
  EXPECT_EQ(error_of([](LogicalGraph& graph) {
              Tensor x = Source(graph, "x", {2});
              Apply(graph, "update", {x, x});
            }),
            "update 'update': input 0 is overwritten and must be a variable, but is input 'x'");
  EXPECT_EQ(error_of([](LogicalGraph& graph) {
              std::vector<Tensor> x = {Source(graph, "x", {2})};
              graph.Append1("relu", x, {.hints = {std::nullopt, NdSbp(sbp::B)}});
            }),
            "relu 'relu': there are 2 SBP hints for 1 outputs");
}

TEST(LogicalGraphTest, ATensorKnowsWhenItsGraphIsGone) {
  auto graph = std::make_unique<LogicalGraph>(&Registry());
  const Tensor x = Source(*graph, "x", {2}), same(graph.get(), x.id());
  EXPECT_TRUE(x.valid());
  EXPECT_EQ(x, same);
  const LogicalGraph copy = *graph;
  graph.reset();
  EXPECT_FALSE(x.valid());
  EXPECT_FALSE(x.is_none());
  EXPECT_EQ(x.graph(), nullptr);
  EXPECT_EQ(x.type(), TensorType());
}

TEST(LogicalGraphTest, NamesAreUniqueAndNest) {
  LogicalGraph graph(&Registry());
  Tensor x = Source(graph, "x", {2});
  auto name = [&graph](Tensor tensor) { return graph.producer(tensor.id()).name; };
  EXPECT_EQ(name(Apply(graph, "relu", {x})), "relu");
  EXPECT_EQ(graph.UniqueName("relu"), "relu_1");
  EXPECT_EQ(name(Apply(graph, "relu", {x})), "relu_1");
  EXPECT_EQ(name(Apply(graph, "relu", {x}, "relu_2")), "relu_2");
  EXPECT_EQ(name(Apply(graph, "relu", {x})), "relu_3");
  EXPECT_EQ(name(Apply(graph, "relu", {x})), "relu_4");
  EXPECT_EQ(name(Apply(graph, "relu", {x}, "relu_1")), "relu_1_1");
  graph.PushScope("h.0");
  graph.PushScope("attn");
  EXPECT_EQ(name(Apply(graph, "relu", {x})), "h.0.attn.relu");
  EXPECT_EQ(name(Apply(graph, "relu", {x})), "h.0.attn.relu_1");
  graph.PopScope();
  EXPECT_EQ(name(Apply(graph, "relu", {x})), "h.0.relu");
  graph.PopScope();
  EXPECT_EQ(name(Apply(graph, "add", {x, x})), "add");
}

TEST(LogicalGraphTest, PlacementAndForwardOfNewOps) {
  LogicalGraph graph(&Registry());
  Placement outer("cpu", {{0, 0}, {1, 0}}), inner("cpu", {{1, 0}}), own("cpu", {{2, 0}});
  Tensor x = Source(graph, "x", {2});
  graph.PushPlacement(outer);
  Tensor y = Apply(graph, "relu", {x});
  graph.PushPlacement(inner);
  Tensor z = Apply(graph, "relu", {y});
  std::vector<Tensor> inputs = {z};
  Tensor placed = graph.Append1("relu", inputs, {.placement = own});
  graph.PopPlacement();
  graph.set_current_forward(1);
  Tensor back = Apply(graph, "relu", {placed});
  EXPECT_EQ(graph.producer(x.id()).placement, std::nullopt);
  EXPECT_EQ(graph.producer(y.id()).placement, outer);
  EXPECT_EQ(graph.producer(z.id()).placement, inner);
  EXPECT_EQ(graph.producer(placed.id()).placement, own);
  EXPECT_EQ(graph.producer(back.id()).placement, outer);
  EXPECT_EQ(graph.producer(back.id()).forward, 1);
  EXPECT_EQ(graph.producer(y.id()).forward, kNone);
}

TEST(LogicalGraphTest, HereIsTheCallersLine) {
  auto where = [](SourceLocation location = Here()) { return location.ToString(); };
  int line = __LINE__ + 1;
  EXPECT_EQ(where(), "logical_graph_test.cc:" + std::to_string(line));
  EXPECT_EQ((SourceLocation{"a/b c.cc", 3}).ToString(), "b c.cc:3");
  EXPECT_EQ(SourceLocation().ToString(), "");
}

constexpr char kEverything[] =
    R"(%0:f32[64, 784] = input "x" () {dtype=f32 shape=[64, 784]} on=cpu[2, 2]{0.0 0.1 1.0 1.1} acts_per_step=4 sbp=()->([S(0), B]) hint=([S(0), B]) at train.cc:7
%1:f32[784, 10] = variable "fc \"1\".weight" () {dtype=f32 shape=[784, 10]} hint=(S(1))
%2:f32[64, 10] = matmul "fc1" (%0, %1) on=cpu[1]{0.0} acts_per_step=4 micro_batches=(S(0), B)->(S(0)) sbp=(S(0), B)->(S(0)) at my train.cc:12
%3:f32[64, 10], %4:f32[64] = rows "rows" (%2) hint=(-, P(max))
%5:f32[] = sum "loss" (%4)
%6:f32[784, 10] = relu "gradient" (%1) fwd="fc1"
%7:f32[] = input "lr" () {dtype=f32 shape=[]}
update "update" (%1, %6) at train.cc:30
@minimize loss=%5 optimizer="adam_update" {beta1=0.9 exact=true} lr=%7 variables=("fc \"1\".weight") clip=1.0 micro_batches=4 groups=({frozen=true names="stem.*" rate=1.0}, {frozen=false names="*.bias" rate=0.5 weight_decay=0.0}) first_bucket=64 bucket=5000000000 at train.cc:20
@minimize loss=%5 optimizer="sgd_update"
@gradient %0 = %6
@gradient %1 = %6
@training
)";

TEST(LogicalGraphTextTest, RoundTripIsExact) {
  LogicalGraph graph = ParseOrDie(kEverything);
  EXPECT_EQ(graph.ToString(), kEverything);

  // Each part is where it belongs.
  const Op& x = graph.op(0);
  EXPECT_EQ(x.placement->hierarchy(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(x.acts_per_step, 4);
  EXPECT_EQ(x.output_sbp, std::vector<NdSbp>{NdSbp({sbp::S(0), sbp::B})});
  EXPECT_EQ(x.hints, std::vector<std::optional<NdSbp>>{NdSbp({sbp::S(0), sbp::B})});
  EXPECT_EQ(x.location.line, 7);
  EXPECT_EQ(graph.op(1).name, "fc \"1\".weight");
  EXPECT_EQ(graph.op(2).input_micro_batch_sbp, (std::vector<Sbp>{sbp::S(0), sbp::B}));
  EXPECT_EQ(graph.op(2).output_micro_batch_sbp, (std::vector<Sbp>{sbp::S(0)}));
  EXPECT_EQ(graph.op(2).input_sbp, (std::vector<NdSbp>{sbp::S(0), sbp::B}));
  EXPECT_EQ(graph.op(2).location.file, "my train.cc");
  EXPECT_EQ(graph.op(3).hints, (std::vector<std::optional<NdSbp>>{std::nullopt, sbp::Pmax}));
  EXPECT_EQ(graph.op(4).hints, (std::vector<std::optional<NdSbp>>{std::nullopt}));
  EXPECT_EQ(graph.op(5).forward, 2);
  EXPECT_TRUE(graph.op(7).outputs.empty());
  ASSERT_EQ(graph.minimize().size(), 2u);
  const MinimizeRequest& request = graph.minimize()[0];
  EXPECT_EQ(request.loss, 5);
  EXPECT_EQ(request.optimizer, "adam_update");
  EXPECT_EQ(request.attrs, (Attrs{{"beta1", 0.9}, {"exact", true}}));
  EXPECT_EQ(request.learning_rate, 7);
  EXPECT_EQ(request.variables, std::vector<OpId>{1});
  EXPECT_EQ(request.clip_global_norm, 1.0);
  EXPECT_EQ(request.micro_batches, 4);
  EXPECT_EQ(request.first_bucket_bytes, 64);
  EXPECT_EQ(request.bucket_bytes, 5'000'000'000);
  EXPECT_EQ(request.location.line, 20);
  EXPECT_EQ(graph.gradients(), (std::map<TensorId, TensorId>{{0, 6}, {1, 6}}));
  EXPECT_TRUE(graph.training);
}

TEST(LogicalGraphTextTest, FileNamesOutliveTextAndOriginal) {
  LogicalGraph copy(&Registry());
  {
    std::string text = kEverything;
    LogicalGraph graph = ParseOrDie(text);
    copy = graph;
    text.assign(text.size(), '#');
  }
  EXPECT_EQ(copy.ToString(), kEverything);
}

TEST(LogicalGraphTextTest, ARecordedGraphReadsBack) {
  LogicalGraph graph(&Registry());
  Tensor x = Source(graph, "x", {4, 4});
  Tensor y = graph.Append1("relu", std::vector<Tensor>{x}, {.location = Here()});
  Apply(graph, "add", {x, y});
  std::string text = graph.ToString();
  LogicalGraph parsed = ParseOrDie(text);
  EXPECT_EQ(parsed.ToString(), text);
  // And goes on where it stopped.
  Tensor z = Apply(parsed, "relu", {Tensor(&parsed, y.id())});
  EXPECT_EQ(parsed.producer(z.id()).name, "relu_1");
}

TEST(LogicalGraphTextTest, CommentsAndLaterLines) {
  LogicalGraph graph = ParseOrDie(R"(
      # rewired by a pass: the consumer comes first
      %1:f32[2] = relu "y" (%0) fwd="x"
      %0:f32[2] = input "x" () {dtype=f32 shape=[2]}
  )");
  EXPECT_EQ(graph.op(0).forward, 1);
  graph.SortTopologically();
  EXPECT_EQ(
      graph.ToString(),
      "%0:f32[2] = input \"x\" () {dtype=f32 shape=[2]}\n%1:f32[2] = relu \"y\" (%0) fwd=\"x\"\n");
}

TEST(LogicalGraphTextTest, ErrorsNameTheLine) {
  auto message = [](std::string_view text) {
    auto graph = LogicalGraph::Parse(text, &Registry());
    return graph.ok() ? std::string("parsed") : std::string(graph.status().message());
  };
  const std::string x = "%0:f32[2] = input \"x\" () {dtype=f32 shape=[2]}\n";
  EXPECT_EQ(message(x + "%1:f32[2] = relu \"y\" (%7)"), "line 2: there is no %7");
  EXPECT_EQ(message(x + "%1:f32[3] = relu \"y\" (%0)"),
            "line 2: relu 'y': the outputs are (f32[2]), the text says (f32[3])");
  EXPECT_EQ(message(x + "%1:f32[2] = gelu \"y\" (%0)"), "line 2: no operator 'gelu' is registered");
  EXPECT_EQ(message(x + "%1:f32[2] = relu \"x\" (%0)"), "line 2: there are two ops named \"x\"");
  EXPECT_EQ(message(x + "%0:f32[2] = relu \"y\" (%0)"),
            "line 2: %0 comes twice, or the tensors are not numbered from 0");
  EXPECT_EQ(message(x + "%1:f32[2] = relu \"y\" (%0) fwd=\"z\""), "line 2: there is no op \"z\"");
  EXPECT_EQ(message(x + "%1:f31[2] = relu \"y\" (%0)"), "line 2: 'f31' is no element type");
  EXPECT_EQ(message(x + "%1:f32[2] = relu \"y\" (%0) acts_per_step=0"), "line 2: 0 is no count");
  EXPECT_EQ(message(x + "%1:f32[2] = relu \"y\" (%0) what"),
            "line 2: expected {, on=, acts_per_step=, micro_batches=, sbp=, hint=, fwd=, block=, "
            "again or at, found "
            "'what'");
  EXPECT_EQ(message(x + "@gradient %0 = %3"), "line 2: there is no %3");
  EXPECT_EQ(message(x + "@minimize loss=%0 bucket=0"), "line 2: 0 is no number of bytes");
  EXPECT_EQ(message(x + "@minimize loss=%0 variables=(\"w\")"), "line 2: there is no op \"w\"");
}

TEST(LogicalGraphTest, PruneRenumbersEverything) {
  LogicalGraph graph = ParseOrDie(R"(
      %0:f32[2] = input "unused" () {dtype=f32 shape=[2]}
      %1:f32[2] = variable "v" () {dtype=f32 shape=[2]}
      %2:f32[2] = variable "w" () {dtype=f32 shape=[2]}
      %3:f32[2] = relu "gone" (%0)
      %4:f32[] = sum "loss" (%2)
      %5:f32[] = input "lr" () {dtype=f32 shape=[]}
      %6:f32[2] = relu "g" (%2) fwd="loss"
      %7:f32[2] = relu "h" (%2) fwd="gone"
      @minimize loss=%4 optimizer="a" lr=%5 variables=("v", "w")
      @minimize loss=%4 optimizer="b" lr=%5 variables=("v")
      @minimize loss=%4 optimizer="c" lr=%5
      @minimize loss=%3 optimizer="d" lr=%5
      @gradient %2 = %6
      @gradient %1 = %6
      @gradient %4 = %3
  )");
  graph.set_current_forward(4);
  graph.Prune({false, false, true, false, true, true, true, true});
  EXPECT_EQ(graph.ToString(), R"(%0:f32[2] = variable "w" () {dtype=f32 shape=[2]}
%1:f32[] = sum "loss" (%0)
%2:f32[] = input "lr" () {dtype=f32 shape=[]}
%3:f32[2] = relu "g" (%0) fwd="loss"
%4:f32[2] = relu "h" (%0)
@minimize loss=%1 optimizer="a" lr=%2 variables=("w")
@minimize loss=%1 optimizer="c" lr=%2
@gradient %0 = %3
)");
  for (size_t id = 0; id < graph.tensors().size(); ++id) {
    const TensorInfo& info = graph.tensors()[id];
    EXPECT_EQ(graph.op(info.producer).id, info.producer);
    EXPECT_EQ(graph.op(info.producer).outputs[info.output], static_cast<TensorId>(id));
  }
  Tensor x = Source(graph, "unused", {2});
  EXPECT_EQ(graph.producer(x.id()).name, "unused_1");  // names stay taken
  EXPECT_EQ(graph.producer(x.id()).forward, 1);
}

TEST(LogicalGraphDeathTest, PruneKeepsProducers) {
  LogicalGraph graph(&Registry());
  Apply(graph, "relu", {Source(graph, "x", {2})}, "y");
  EXPECT_DEATH(graph.Prune({false, true}), "y is kept, the producer of %0 is not");
}

TEST(LogicalGraphTest, SortIsStableAndRenumbers) {
  constexpr char kText[] = R"(%0:f32[2] = input "a" () {dtype=f32 shape=[2]}
%1:f32[2] = relu "b" (%4)
%2:f32[2] = relu "c" (%0)
%3:f32[2] = add "d" (%1, %1) fwd="b"
%4:f32[2] = variable "e" () {dtype=f32 shape=[2]}
%5:f32[2] = relu "f" (%0) fwd="e"
@minimize loss=%3 optimizer="a" variables=("e")
@gradient %4 = %5
)";
  LogicalGraph graph = ParseOrDie(kText);
  graph.SortTopologically();
  constexpr char kSorted[] = R"(%0:f32[2] = input "a" () {dtype=f32 shape=[2]}
%2:f32[2] = relu "c" (%0)
%4:f32[2] = variable "e" () {dtype=f32 shape=[2]}
%1:f32[2] = relu "b" (%4)
%3:f32[2] = add "d" (%1, %1) fwd="b"
%5:f32[2] = relu "f" (%0) fwd="e"
@minimize loss=%3 optimizer="a" variables=("e")
@gradient %4 = %5
)";
  EXPECT_EQ(graph.ToString(), kSorted);
  for (OpId id = 0; id < 6; ++id) {
    EXPECT_EQ(graph.op(id).id, id);
    for (TensorId output : graph.op(id).outputs) EXPECT_EQ(graph.tensor(output).producer, id);
  }
  graph.SortTopologically();
  EXPECT_EQ(graph.ToString(), kSorted);
}

TEST(LogicalGraphDeathTest, SortRefusesCycles) {
  LogicalGraph graph = ParseOrDie("%0:f32[2] = relu \"a\" (%1)\n%1:f32[2] = relu \"b\" (%0)\n");
  EXPECT_DEATH(graph.SortTopologically(), "cycle");
}

}  // namespace
}  // namespace braid
