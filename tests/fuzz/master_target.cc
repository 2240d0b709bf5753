// What nodes say to a master: whole control messages in any order, roll calls and requests of the
// store among them, while it waits for a run, then for the programs' ends. The first byte says
// which message is of which node; then a list of pieces, each a serialised ControlMessage.
#include <glog/logging.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/control/control_channel.h"
#include "runtime/control.pb.h"
#include "runtime/coordinator.h"
#include "runtime/reports/control_status.h"
#include "tests/fuzz/control_messages.h"
#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

using control::ControlMessage;

constexpr size_t kMostMessages = 16;
constexpr uint16_t kNodes = 2;
constexpr Nanoseconds kBetween = kSecond / 10;  // two messages

std::string HelloOf(uint16_t node) {
  ControlMessage message;
  message.mutable_hello()->set_protocol(kControlProtocol);
  message.mutable_hello()->set_node(node);
  return message.SerializeAsString();
}

void Run(Bytes input) {
  InputReader reader(input);
  const uint8_t nodes = reader.Byte();
  const std::unique_ptr<Environment> environment = MakeSimulatedEnvironment(nodes);
  std::vector<std::unique_ptr<ControlChannel>> ends, master_ends;  // outlive their reactors
  const std::unique_ptr<Reactor> reactor = environment->StartReactor("nodes");
  Coordinator coordinator({.environment = environment.get(), .stall_timeout = kSecond});
  for (uint16_t node = 0; node < kNodes; ++node) {
    auto [master_end, end] = MakeLoopbackControlPair(&coordinator.reactor(), reactor.get());
    end->SetHandlers(
        [](const std::string& bytes) {
          ControlMessage message;
          if (message.ParseFromString(bytes)) VLOG(1) << message.ShortDebugString();
        },
        [](const absl::Status& reason) { VLOG(1) << "closed: " << reason; });
    end->Send(HelloOf(node));
    ends.push_back(std::move(end));
    master_ends.push_back(std::move(master_end));
  }
  CHECK(coordinator.Join(std::move(master_ends), kSecond).ok());
  reactor->Post([&] {
    for (size_t i = 0; i < kMostMessages && !reader.AtEnd(); ++i) {
      reactor->RunAfter(
          static_cast<Nanoseconds>(i) * kBetween,
          [&, i, bytes = TextOf(reader.Piece())] { ends[nodes >> (i % 8) & 1]->Send(bytes); });
    }
  });
  VLOG(1) << "run: " << coordinator.Run({.job = 1, .name = "train", .steps = 1});
  VLOG(1) << "left: " << coordinator.AwaitLeft();
  const std::unique_ptr<Event> is_described = environment->MakeEvent();
  coordinator.Describe([&](const std::string& text) {
    VLOG(1) << text;
    is_described->Set();
  });
  CHECK(environment->Await(*is_described, 10 * kSecond).ok());
  VLOG(1) << "closed: " << coordinator.Close();
}

size_t Mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return MutateControlMessages(
      {data, size, max_size}, seed,
      [](ControlMessage& message, Random& random) { MutateMessage(message, random); });
}

}  // namespace

Target MasterTarget() { return {.name = "master", .run = Run, .mutate = Mutate}; }

}  // namespace braid::fuzz
