// Writes the seeds of the corpus that are made, not written: `make_fuzz_seeds CORPUS_FOLDER`. Plans
// are those of small jobs, as the master would send them; every operator's sample is in one.
#include <glog/logging.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "actor/message.h"
#include "api/job.h"
#include "api/layers.h"
#include "api/object_format.h"
#include "api/optimizers.h"
#include "comm/collective/collective_frame.h"
#include "comm/join.pb.h"
#include "comm/joining/node_greeting.h"
#include "compiler/compile.h"
#include "compiler/plan/plan.pb.h"
#include "compiler/plan/plan_codec.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "runtime/control.pb.h"
#include "tests/fuzz/group_seeds.h"
#include "tests/fuzz/input_reader.h"
#include "tests/fuzz/onnx_seeds.h"

namespace braid::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path corpus;

void Write(const std::string& target, const std::string& name, const std::string& bytes) {
  fs::create_directories(corpus / target);
  std::ofstream(corpus / target / name, std::ios::binary) << bytes;
}

// A literal with zeros in it.
template <size_t size>
std::string Raw(const char (&literal)[size]) {
  return std::string(literal, size - 1);
}

// ---- plans
// ---------------------------------------------------------------------------------------

// A perceptron with one hidden layer, trained on a few drawn digits.
void TrainPerceptron(Job& job, int micro_batches) {
  auto [image, label] = job.Read(DrawnDigits({.count = 8}), {.batch = 8});
  Tensor hidden = Relu(Linear(image, 4, {.name = "fc1"}));
  Tensor logits = Linear(hidden, 10, {.name = "fc2"});
  Tensor loss = ReduceMean(SoftmaxCrossEntropy(logits, label));
  job.Minimize(loss, Sgd{.lr = 0.1}, {.micro_batches = micro_batches});
  job.Fetch("loss", loss);
}

Placement Devices(const std::vector<int>& devices_of_nodes) {
  std::vector<DeviceId> devices;
  for (size_t node = 0; node < devices_of_nodes.size(); ++node) {
    for (int device = 0; device < devices_of_nodes[node]; ++device) {
      devices.push_back({static_cast<int>(node), device});
    }
  }
  return Placement("cpu", std::move(devices));
}

// The plan as the master would send it.
std::string Compile(const std::string& name, const std::vector<int>& devices_of_nodes,
                    const std::function<void(Job&)>& record) {
  const OpRegistry operators = BuiltinOps();
  DatasetCache datasets;
  const Placement devices = Devices(devices_of_nodes);
  LogicalGraph graph(&operators);
  Job job(&graph, devices, &datasets);
  record(job);
  CHECK(graph.status().ok()) << graph.status();
  graph.training = true;
  compiler::CompileOptions options;
  options.job = name;
  options.all_devices = devices;
  options.master = devices.Slice(0, 1);
  options.num_nodes = static_cast<int>(devices_of_nodes.size());
  options.seed = 1;
  const auto compiled = compiler::Compile(std::move(graph), options);
  CHECK(compiled.ok()) << compiled.status();
  return compiler::EncodePlan(compiled->physical);
}

compiler::TensorLayout OnOneDevice(const TensorType& type) { return {type, sbp::B}; }

// Every sample of every operator as a kernel of its own, on scratch, a few to a plan.
std::vector<std::string> SamplePlans() {
  constexpr int kKernels = 12;
  const OpRegistry operators = BuiltinOps();
  std::vector<compiler::TaskGroup> groups;
  int left = 0;
  for (const auto& [name, op] : operators.ops()) {
    for (const OpSample& sample : op.samples()) {
      if (left-- == 0) {
        left = kKernels - 1;
        groups.emplace_back().placement = Devices({1});
        groups.back().name = "samples";
      }
      auto& compute = std::get<compiler::Compute>(groups.back().work);
      compiler::KernelCall& call = compute.kernels.emplace_back();
      call.op = name;
      call.name = name;
      call.attrs = sample.attrs;
      const auto add = [&compute](const TensorType& type, std::vector<compiler::OperandRef>& refs,
                                  std::vector<compiler::TensorLayout>& layouts) {
        refs.push_back(
            {compiler::OperandRef::Source::kScratch, static_cast<int>(compute.scratch.size()), 0});
        layouts.push_back(OnOneDevice(type));
        compute.scratch.push_back({OnOneDevice(type), 0});
      };
      const auto outputs = op.InferTypes({.attrs = sample.attrs, .inputs = sample.inputs});
      CHECK(outputs.ok()) << outputs.status();
      for (const TensorType& type : sample.inputs) add(type, call.inputs, call.input_layouts);
      for (const TensorType& type : *outputs) add(type, call.outputs, call.output_layouts);
    }
  }
  std::vector<std::string> plans;
  for (compiler::TaskGroup& group : groups) {
    compiler::PhysicalGraph graph;
    graph.job = "samples";
    graph.AddGroup(std::move(group));
    plans.push_back(compiler::EncodePlan(graph));
  }
  return plans;
}

// A comparison of whole tensors whose result is split over two devices.
std::string LocalShapesDiffer() {
  compiler::TaskGroup group;
  auto& compute = group.work.emplace<compiler::Compute>();
  group.name = "compare";
  group.placement = Devices({2});
  compiler::KernelCall& call = compute.kernels.emplace_back();
  call.op = call.name = "greater_equal";
  const TensorType type = {DType::kF32, {5, 6}};
  for (int i = 0; i < 2; ++i) {
    call.inputs.push_back({compiler::OperandRef::Source::kScratch, i, 0});
    call.input_layouts.push_back({type, sbp::B});
  }
  call.outputs.push_back({compiler::OperandRef::Source::kScratch, 2, 0});
  call.output_layouts.push_back({{DType::kBool, {5, 6}}, sbp::S(1)});
  for (const auto* layouts : {&call.input_layouts, &call.output_layouts}) {
    for (const compiler::TensorLayout& layout : *layouts) compute.scratch.push_back({layout, 0});
  }
  compiler::PhysicalGraph graph;
  graph.job = "samples";
  graph.AddGroup(std::move(group));
  return compiler::EncodePlan(graph);
}

// Two kernels, the second of which finds parts of what the first one makes where the first part is.
std::string KernelsTakeTurns() {
  compiler::TaskGroup group;
  auto& compute = group.work.emplace<compiler::Compute>();
  group.name = "turns";
  group.placement = Devices({1});
  const compiler::TensorLayout layout = {{DType::kF32, {256}}, sbp::B};
  for (int i = 0; i < 3; ++i) compute.scratch.push_back({layout, 1024 * i});
  for (int i = 0; i < 2; ++i) {
    compiler::KernelCall& call = compute.kernels.emplace_back();
    call.op = call.name = i == 0 ? "relu" : "tanh";
    call.inputs.push_back({compiler::OperandRef::Source::kScratch, i, 0});
    call.outputs.push_back({compiler::OperandRef::Source::kScratch, i + 1, 0});
    call.input_layouts = call.output_layouts = {layout};
  }
  compute.turns.push_back({.begin = 0, .end = 2, .part = 64, .staying = {1}});
  compiler::PhysicalGraph graph;
  graph.job = "turns";
  graph.AddGroup(std::move(group));
  return compiler::EncodePlan(graph);
}

// The first byte says which node reads it.
void WritePlans() {
  const auto write = [](const std::string& name, int node, const std::string& plan) {
    Write("plan", absl::StrFormat("%s_node%d", name, node),
          std::string(1, static_cast<char>(node)) + plan);
  };
  int number = 0;
  for (const std::string& plan : SamplePlans()) {
    write(absl::StrFormat("samples_%02d", number++), 0, plan);
  }
  const auto train = [](Job& job) { TrainPerceptron(job, 1); };
  write("one_device", 0, Compile("one", {1}, train));
  write("two_devices", 0, Compile("two", {2}, train));
  for (int node : {0, 1}) write("two_nodes", node, Compile("nodes", {1, 1}, train));
  write("micro_batches", 0, Compile("micro", {1}, [](Job& job) { TrainPerceptron(job, 2); }));
  // Micro-batches along an axis that no tensor has, and shapes that differ on the devices only.
  plan::Plan broken;
  CHECK(broken.ParseFromString(SamplePlans()[0]));
  broken.mutable_layouts(0)->set_micro_batch_sbp(8u << 28);
  broken.mutable_layouts(0)->set_micro_batches(2);
  write("crash_micro_batch_axis", 0, broken.SerializeAsString());
  write("crash_local_shapes_differ", 0, LocalShapesDiffer());
  write("turns", 0, KernelsTakeTurns());
  write("kept", 0, Compile("infer", {2}, [](Job& job) {
          const Tensor w = Scale(Variable(job.graph(), {.name = "w", .shape = {8, 4}}), 2);
          job.Fetch("y", MatMul(job.Input("x", {2, 4}), Transpose(w, {1, 0})));
        }));
  // One layer a node: transfers and copies.
  const std::string stages = Compile("stages", {1, 2}, [](Job& job) {
    const Placement first = job.devices().Slice(0, 1), second = job.devices().Slice(1, 2);
    auto [image, label] =
        job.On(first, [&] { return job.Read(DrawnDigits({.count = 8}), {.batch = 8}); });
    const Tensor hidden =
        job.On(first, [x = image] { return Relu(Linear(x, 4, {.name = "fc1"})); });
    job.On(second, [&] { job.Fetch("mean", ReduceMean(Linear(hidden, 4))); });
  });
  for (int node : {0, 1}) write("stages", node, stages);
  // An asynchronous server and two workers, one of them on its node.
  const std::string served = Compile("served", {1, 2}, [](Job& job) {
    job.On(job.devices().Slice(0, 2), [&] {
      auto [image, label] = job.Read(DrawnDigits({.count = 8}), {.batch = 8});
      const Tensor logits = Linear(ToSbp(image, sbp::S(0)), 10, {.name = "fc"});
      job.Minimize(ReduceMean(SoftmaxCrossEntropy(logits, label)), Sgd{.lr = 0.1},
                   {.server = Server{.placement = job.devices().Slice(2, 1),
                                     .max_staleness = 2,
                                     .staleness = "staleness"}});
    });
  });
  for (int node : {0, 1}) write("served", node, served);
}

// ---- control messages
// ----------------------------------------------------------------------------

void WriteControl() {
  using control::ControlMessage;
  const auto message = [](const std::function<void(ControlMessage&)>& fill) {
    ControlMessage message;
    fill(message);
    return PieceOf(message.SerializeAsString());
  };
  const auto load = [&](uint64_t job, const std::string& plan) {
    return message([&](ControlMessage& m) {
      m.mutable_load()->set_job(job);
      m.mutable_load()->set_plan(plan);
      m.mutable_load()->set_fingerprint(compiler::PlanFingerprint(plan));
      m.mutable_load()->set_wants_summary(true);
    });
  };
  const auto run = [&](uint64_t job, int64_t steps) {
    return message([&](ControlMessage& m) {
      m.mutable_run()->set_job(job);
      m.mutable_run()->set_steps(steps);
    });
  };
  const std::string unload = message([](ControlMessage& m) { m.mutable_unload()->set_job(1); });
  const std::string status = message([](ControlMessage& m) { m.mutable_status(); });
  const std::string failure = message([](ControlMessage& m) {
    m.mutable_failure()->set_code(13);
    m.mutable_failure()->set_message("it broke");
  });
  const std::string close = message([](ControlMessage& m) { m.mutable_close()->mutable_cause(); });
  const std::string peers = message([](ControlMessage& m) {
    for (int node = 0; node < 2; ++node) {
      control::Hello& hello = *m.mutable_peers()->add_nodes();
      hello.set_node(node);
      hello.add_transports("loopback");
      hello.add_addresses("here");
    }
  });
  const auto one = Compile("one", {1}, [](Job& job) { TrainPerceptron(job, 1); });
  const auto two = Compile("two", {2}, [](Job& job) { TrainPerceptron(job, 2); });
  const auto nodes = Compile("nodes", {1, 1}, [](Job& job) {
    job.Fetch("x", job.On(job.devices().Slice(1, 1),
                          [&job] { return Constant(job.graph(), 1.0, {.shape = {4}}); }));
  });
  Write("control", "one_device", Raw("\0") + load(1, one) + run(1, 2) + status + unload + close);
  Write("control", "two_devices", Raw("\0") + peers + load(1, two) + run(1, 1) + run(1, 1));
  Write("control", "two_nodes", Raw("\0") + peers + load(1, nodes) + run(1, 1) + close);
  Write("control", "twice", "\1" + load(1, one) + load(1, one) + run(1, 1) + unload);
  Write("control", "early", Raw("\0") + run(1, 1) + unload + status + failure);
  Write("control", "bytes", Raw("\0") + PieceOf("no message"));
}

// ---- frames
// --------------------------------------------------------------------------------------

template <typename Range>
std::string BytesOf(const Range& range) {
  return std::string(reinterpret_cast<const char*>(range.data()), range.size());
}

void WriteFrames() {
  const auto piece = [](const std::string& frame) {
    return std::string(1, static_cast<char>(frame.size() - 1)) + frame;
  };
  const auto actor = [&](const Message& message) {
    return piece(Raw("\1\0\0") + BytesOf(Encode(message)));
  };
  const ActorId reader{0, 0, 1}, writer{0, 0, 2}, peer{1, 0, 3};
  const std::string ready = actor({.src = peer, .dst = reader, .reg = 7});
  Write("frames", "actor",
        "\1" + ready + actor({.src = peer, .dst = reader, .reg = 7, .slot = 1, .piece = 1}) +
            actor({.src = peer, .dst = writer, .reg = 8, .kind = MessageKind::kAck}));
  Write(
      "frames", "actor_run",
      "\2" + ready +
          actor({.src = peer, .dst = {0, 0, kWholeThread}, .kind = MessageKind::kRun, .piece = 2}) +
          actor({.src = peer, .dst = {0, 0, kWholeThread}, .kind = MessageKind::kDone}));
  std::string collective = "\3";
  for (uint32_t id = 0; id < 3; ++id) {
    CollectiveSpec spec;
    spec.id = id;
    spec.kind = id == 0   ? CollectiveKind::kAllReduce
                : id == 1 ? CollectiveKind::kAllGather
                          : CollectiveKind::kAllToAll;
    spec.members = {{.node = 0}, {.node = 1}};
    spec.element_size = 4;
    spec.counts.assign(NumCounts(spec.kind, 2), id == 0 ? 6 : 3);
    if (id == 2) spec.receives = spec.counts;
    spec.chunk_bytes = 8;
    if (id == 0) spec.algorithm = CollectiveAlgorithm::kExchange;
    using Type = CollectiveFrame::Type;
    const auto add = [&](const CollectiveFrame& frame) {
      collective += piece(BytesOf(EncodedCollectiveFrame(frame).bytes()));
    };
    add({.type = Type::kKey,
         .collective = id,
         .from = 1,
         .to = 0,
         .slot = id == 2 ? 2u : 4u,
         .bytes = 8,
         .key = {.token = 1, .bytes = id == 2 ? 16u : 32u},
         .fingerprint = HopFingerprint(CollectiveFingerprint(spec), id == 2 ? 3 : 0)});
    add({.type = Type::kChunk, .collective = id, .from = 1, .to = 0, .bytes = 8});
    for (const Type type : {Type::kAck, Type::kOffer, Type::kLent, Type::kStand, Type::kRing})
      add({.type = type, .collective = id, .from = 1, .to = 0, .bytes = 8});
  }
  Write("frames", "collective", collective);

  const NodeGreeting greeting{.stage = NodeGreeting::Stage::kHello, .from = 0, .to = 1};
  Write("tcp", "greeting",
        std::string(1, '\0') + BytesOf(EncodeNodeGreeting(greeting)) +
            "000102030405060708090a0b0c0d0e0f@10.0.0.1:4711,[fd00::2]:4712");
  // How, token, offset, bytes, frame: as tcp_target.cc reads them.
  Write("tcp", "frames", Raw("\1\x12\4abcd\x12\1a"));
  Write("tcp", "write", Raw("\1\x20\1\2\0\4\0\1ppay!\x22\2\0\0\1\0\1qx"));
  Write("tcp", "close", Raw("\1\x32\5that!"));
  Write("tcp", "raw", Raw("\1\3\6what??"));

  // How, bytes, entry: as shm_target.cc reads them.
  const std::string places(6, '\0'), zeros(40, '\0');
  Write("shm", "frame", Raw("\1\1\x32\1\2") + places + zeros + "ab");
  Write("shm", "write",
        Raw("\1\1\x31\3\1") + places + Raw("\1\0\0\0\0\0\0\0") + Raw("\0\0\0\0\0\0\0\0") +
            Raw("\5\0\0\0\0\0\0\0") + Raw("\0\0\0\0\0\0\0\0") + Raw("\5\0\0\0\0\0\0\0") + "a");
  Write("shm", "many", Raw("\1\xff\1\1"));
  // Token, which, its place and size, the write's offset and bytes.
  const std::string zero(8, '\0');
  Write("shm", "grant", Raw("\2\7\2") + zero + Raw("\100\0\0\0\0\0\0\0") + zero + Raw("\20"));
  Write("shm", "grant_outside", Raw("\2\7\2\0\1\0\0\0\0\0\0\0\40\0\0\0\0\0\0") + zero + Raw("\20"));
  Write("shm", "bell", Raw("\0\7\2\0\0\0\3\0\4\0\3that"));
  // A greeting and that it is ready; its end; a frame of two bytes; a write.
  Write("rdma", "hello",
        Raw("\0\x2b\1\0\x28\0BRDM\1\0\0\0\x11\0\0\0\5\0\0\0\0\4\0\0\0\1\0\0") +
            std::string(16, 'g') + Raw("\3\2\0\0\0"));
  Write("rdma", "reason", Raw("\0\7\4\0\4\0that"));
  Write("rdma", "frame", Raw("\1\1\2\0\0") + std::string(28, '\0') + "ab");
  Write("rdma", "write", Raw("\1\2\1\1\0\3\0\0\0\7\0\0\0\0\0\0\0") + std::string(16, '\0') + "a");
}

// ---- joining
// -------------------------------------------------------------------------------------

void WriteJoin() {
  const auto frame = [](const std::string& payload) { return "\2" + PieceOf(payload); };
  join::Opening opening;
  join::JoinRequest& request = *opening.mutable_join();
  request.set_node(1);
  request.set_num_nodes(3);
  request.set_build("build");
  request.set_agreed("a:1 cpu:1\nb:1 cpu:1\nc:1 cpu:1\n");
  request.set_devices("cpu:1");
  request.set_host("host");
  Write("join", "join", "\1" + frame(opening.SerializeAsString()));
  request.set_agreed("a:1 cpu:1\nb:2 cpu:1\n");
  Write("join", "other_list", "\1" + frame(opening.SerializeAsString()));
  opening.mutable_status();
  Write("join", "status", "\1" + frame(opening.SerializeAsString()));
  Write("join", "heartbeat", "\1" + Raw("\x11\0\0") + frame(""));
  Write("join", "closing", "\1" + Raw("\x19\4\0gone"));
  Write("join", "stranger", Raw("\0GET / HTTP/1.1\r\n\r\n"));
  Write("join", "greeting", Raw("\0BRAIDCTL\1\0\0\0\0\0\0\0") + std::string(64, 'n'));
  join::Answer answer;
  answer.mutable_waiting()->add_missing("node 2");
  std::string answers = "\3" + frame(answer.SerializeAsString());
  answer.mutable_complete();
  Write("join", "complete", answers + frame(answer.SerializeAsString()));
  answer.mutable_refused()->set_message("no");
  Write("join", "refused", answers + frame(answer.SerializeAsString()));
}

// ---- files
// ---------------------------------------------------------------------------------------

std::string Gzip(const std::string& bytes) {
  std::string out(bytes.size() + 100, '\0');
  z_stream stream{};
  CHECK(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Safetensors(const std::string& json, size_t data_bytes) {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(json.size());
  return bytes + json + std::string(data_bytes, 'd');
}

void WriteFiles() {
  const std::string tensors =
      Safetensors(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                  R"("b":{"dtype":"U8","shape":[],"data_offsets":[24,25]}})",
                  25);
  Write("checkpoint", "safetensors", "s" + tensors);
  Write("checkpoint", "safetensors_metadata",
        "s" + Safetensors(R"({"__metadata__":{"k":"v"}})", 0));
  const std::string index =
      R"({"metadata":{"total_size":25},"weight_map":{"a":"model.safetensors","b":"model.safetensors"}})";
  const std::string state = R"({"format":1,"step":12,"values":{"train.reader":768}})";
  Write("checkpoint", "index", "j" + index);
  Write("checkpoint", "state", "j" + state);
  const std::string checksums =
      R"({"format":1,"algorithm":"crc32c","block_bytes":4194304,"files":{)"
      R"("model.safetensors":{"bytes":25,"blocks":["1f2e3d4c"]}}})";
  Write("checkpoint", "checksums", "j" + checksums);
  const std::string folder = "f" + PieceOf(index) + PieceOf(state) + PieceOf(tensors);
  Write("checkpoint", "folder", folder);
  Write("checkpoint", "folder_wrong", folder + checksums);

  std::string npy = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  npy.resize(117, ' ');
  npy += '\n';
  Write("data", "npy", "n" + Raw("\x93NUMPY\1\0\x76\0") + npy + std::string(24, 'x'));
  Write("data", "npy2", "n" + Raw("\x93NUMPY\2\0\x76\0\0\0") + npy + std::string(24, 'x'));
  const std::string images = Raw("\0\0\x8\3\0\0\0\2\0\0\0\2\0\0\0\2") + "abcdefgh";
  const std::string labels = Raw("\0\0\x8\1\0\0\0\2\1\2");
  Write("data", "idx", "i" + PieceOf(images) + PieceOf(labels));
  Write("data", "idx_gz", "z" + PieceOf(Gzip(images)) + PieceOf(Gzip(labels)));
  Write("data", "text", Raw("t\3\0\0\0\xff") + "the quick brown fox");
  Write("data", "spec", " mnist?count=9000&files=%2Fdata%2Ftrain");
  Write("data", "digits", " digits?count=3&first=1&seed=7");

  Write("nodes", "list", " # nodes\nnode1:9988 cpu:4\n[fd00::3]:9988  cuda:2@0 # two\n10.0.0.1\n");
  Write("nodes", "devices", "dcuda:2@0");
  Write("nodes", "address", "a[fd00::3]:9988");
  Write("nodes", "slurm_hosts", "snode[03-05,9],gpu1");
  Write("nodes", "launch", "eBRAID_NODE_RANK=1\nBRAID_NUM_NODES=2\nBRAID_MASTER=host:9988\n");
  Write("nodes", "mpi", "eOMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nMASTER_ADDR=host\n");
  Write("nodes", "slurm",
        "eSLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=2\nSLURM_STEP_NODELIST=n[1-2]\nSLURM_JOB_ID=7\n"
        "SLURM_STEP_ID=0\nSLURM_NNODES=2\n");
}

// As objects_target.cc reads them.
template <typename T>
void WriteObject(char type, const std::string& name, const T& object) {
  dist::ObjectWriter writer;
  CHECK(writer.Write(object).ok());
  Write("objects", name, type + writer.bytes());
}

void WriteObjects() {
  using Bits = std::pair<std::vector<bool>, std::optional<bool>>;
  WriteObject('n', "numbers", std::vector<double>{1, 2, 3});
  WriteObject('s', "strings", std::vector<std::string>{"one", "", "three"});
  WriteObject('b', "bits", std::vector<Bits>{{{true, false}, true}, {{}, std::nullopt}});
  WriteObject('m', "map",
              std::map<std::string, std::vector<std::array<float, 2>>>{{"a", {{1, 2}}}});
  control::Hello hello;
  hello.set_node(3);
  hello.add_addresses("10.0.0.1");
  WriteObject('p', "messages", std::vector<control::Hello>{hello, {}});
}

}  // namespace
}  // namespace braid::fuzz

int main(int argc, char** argv) {
  CHECK_EQ(argc, 2) << "usage: " << argv[0] << " CORPUS_FOLDER";
  braid::fuzz::corpus = argv[1];
  braid::fuzz::WritePlans();
  braid::fuzz::WriteControl();
  braid::fuzz::WriteFrames();
  braid::fuzz::WriteJoin();
  braid::fuzz::WriteFiles();
  braid::fuzz::WriteObjects();
  braid::fuzz::WriteGroupSeeds(braid::fuzz::Write);
  braid::fuzz::WriteOnnxSeeds([](const std::string& name, const std::string& bytes) {
    braid::fuzz::Write("onnx", name, bytes);
  });
}
