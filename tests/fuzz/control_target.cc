// What a master says to a node: whole control messages, one after another, in any order, with plans
// that are made ready and run. The input is a list of pieces, each a serialised ControlMessage.
#include <glog/logging.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/loopback_transport.h"
#include "compiler/plan/expand.h"
#include "compiler/plan/plan.pb.h"
#include "compiler/plan/plan_codec.h"
#include "runtime/control.pb.h"
#include "runtime/node.h"
#include "tests/fuzz/control_messages.h"
#include "tests/fuzz/input_reader.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/plan_size.h"

namespace braid::fuzz {
namespace {

using control::ControlMessage;

constexpr size_t kMaxMessages = 16;
constexpr int64_t kMaxSteps = 3;
constexpr uint32_t kMaxActs = 16;
constexpr int kNode = 0;

const KernelRegistry& Kernels() {
  static const KernelRegistry& kernels = *new KernelRegistry(CpuKernels());
  return kernels;
}

// The piece as it is, unless it asks for days of work.
std::string Bounded(const std::string& piece) {
  ControlMessage message;
  if (!message.ParseFromString(piece)) return piece;
  if (message.has_run()) {
    if (message.run().steps() <= kMaxSteps) return piece;
    message.mutable_run()->set_steps(kMaxSteps);
    return message.SerializeAsString();
  }
  if (!message.has_load()) return piece;
  control::Load& load = *message.mutable_load();
  if (IsTooLargeToExpand(load.plan())) return "";
  const auto graph = compiler::DecodePlan(load.plan());
  if (!graph.ok()) return piece;
  const auto plan = compiler::ExpandPlan(*graph, kNode);
  if (!plan.ok()) return piece;
  if (IsTooLargeToTry(*plan)) return "";
  for (const plan::Task& task : plan->tasks) {
    if (task.acts_per_step > kMaxActs) return "";
  }
  // A fuzzer that has to find fingerprints finds nothing else.
  load.set_fingerprint(compiler::PlanFingerprint(load.plan()));
  return message.SerializeAsString();
}

void Run(Bytes input) {
  InputReader reader(input);
  const uint8_t together = reader.Byte();  // which messages come together with the next one
  const std::unique_ptr<Environment> environment = MakeSimulatedEnvironment(together);
  LoopbackNetwork network;
  NodeOptions options;
  options.node = kNode;
  options.devices = 2;
  options.environment = environment.get();
  options.loopback = &network;
  options.kernels = &Kernels();
  Node node(options);
  std::unique_ptr<Reactor> reactor = environment->StartReactor("master");
  const std::unique_ptr<Event> closed = environment->MakeEvent();
  auto [master, channel] = MakeLoopbackControlPair(reactor.get(), &node.reactor());
  const auto show = [](const std::string& bytes) {
    ControlMessage answer;
    if (answer.ParseFromString(bytes)) VLOG(1) << answer.ShortDebugString();
  };
  master->SetHandlers(show, [](absl::Status) {});
  node.Serve(std::move(channel), [&](absl::Status cause) {
    VLOG(1) << "closed: " << cause;
    closed->Set();
  });
  for (size_t i = 0; i < kMaxMessages && !reader.AtEnd(); ++i) {
    const std::string message = Bounded(TextOf(reader.Piece()));
    master->Send(message);
    if ((together >> i & 1) != 0) continue;
    const std::unique_ptr<Event> never = environment->MakeEvent();
    environment->Await(*never, kSecond).IgnoreError();
  }
  ControlMessage close;
  close.mutable_close()->mutable_cause()->set_code(1);
  master->Send(close.SerializeAsString());
  // A node that closed well before waits for the others' end, or for the master's.
  master->Close(absl::CancelledError("the master's process ends"));
  const absl::Status ended = environment->Await(*closed, 100 * kSecond);
  CHECK(ended.ok()) << "the node does not end: " << ended;
  master.reset();
}

size_t Mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const auto change = [](ControlMessage& message, Random& random) {
    plan::Plan plan;
    if (message.has_load() && random() % 4 != 0 && plan.ParseFromString(message.load().plan())) {
      MutateMessage(plan, random);
      message.mutable_load()->set_plan(plan.SerializeAsString());
    } else {
      MutateMessage(message, random);
    }
  };
  return MutateControlMessages({data, size, max_size}, seed, change);
}

}  // namespace

Target ControlTarget() { return {.name = "control", .run = Run, .mutate = Mutate}; }

}  // namespace braid::fuzz
