#include "api/measure_machine.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "comm/transport.h"
#include "glog/logging.h"
#include "runtime/array.h"

namespace braid {
namespace {

using compiler::LinkClass;
using compiler::Machine;

constexpr Nanoseconds kProductTime = 60 * kMillisecond;  // for each type
constexpr int64_t kProductSize = 384;                    // rows and columns of its operands
constexpr int64_t kCopyBytes = int64_t{32} << 20;        // more than caches hold
constexpr Nanoseconds kMessageTime = 40 * kMillisecond;  // of messages there and back
constexpr Nanoseconds kPayloadTime = 60 * kMillisecond;
constexpr int64_t kPayloadBytes = int64_t{1} << 20;
constexpr Nanoseconds kLinkLimit = 10 * kSecond;  // only what does not work takes so long

double Rounded(double number) {
  double rounded = number;
  return absl::SimpleAtod(absl::StrFormat("%.3g", number), &rounded) ? rounded : number;
}

double SecondsOf(Nanoseconds time) {
  return static_cast<double>(std::max<Nanoseconds>(time, 1)) / static_cast<double>(kSecond);
}

// The shortest of several runs: what disturbs a run only makes it longer.
Nanoseconds Shortest(const Environment& environment, Nanoseconds limit,
                     const std::function<void()>& run) {
  run();  // caches, pages, and what a kernel makes at its first run
  const Nanoseconds begin = environment.Now();
  Nanoseconds shortest = std::numeric_limits<Nanoseconds>::max();
  Nanoseconds now = begin;
  while (now - begin < limit) {
    run();
    const Nanoseconds end = environment.Now();
    shortest = std::min(shortest, end - now);
    now = end;
  }
  return shortest;
}

// A square product with f32 sums; nothing if there is no kernel for it.
std::optional<double> FlopsOf(DType dtype, const MeasureOptions& options,
                              const Environment& environment) {
  const Shape shape{kProductSize, kProductSize};
  const DType result = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto operand = [&shape](DType type) {
    return OperandSpec{
        .dtype = type, .logical = shape, .region = {.offset = {0, 0}, .size = shape}};
  };
  KernelSpec spec;
  spec.op = "matmul";
  spec.name = "measured";
  if (result != dtype) spec.attrs.Set("dtype", result);
  spec.inputs = {operand(dtype), operand(dtype)};
  spec.outputs = {operand(result)};
  spec.threads = options.threads_per_device;
  const auto kernel = options.kernels->Create(spec);
  if (!kernel.ok()) return std::nullopt;
  Array a(dtype, shape), b(dtype, shape), c(result, shape);
  void* const inputs[] = {a.mutable_bytes(), b.mutable_bytes()};
  void* const outputs[] = {c.mutable_bytes()};
  bool is_done = true;
  const Nanoseconds time = Shortest(environment, kProductTime, [&] {
    is_done = is_done && (*kernel)->Run({.inputs = inputs, .outputs = outputs}).ok();
  });
  const auto n = static_cast<double>(kProductSize);
  return is_done ? std::optional(2 * n * n * n / SecondsOf(time)) : std::nullopt;
}

// Bytes a second, read and written.
double CopyRate(const Environment& environment) {
  std::vector<std::byte> from(kCopyBytes), to(kCopyBytes);
  const Nanoseconds time = Shortest(environment, kProductTime,
                                    [&] { std::memcpy(to.data(), from.data(), from.size()); });
  return 2 * static_cast<double>(kCopyBytes) / SecondsOf(time);
}

// Seconds from one thread to another.
std::optional<double> WakeLatency(Environment& environment) {
  const auto here = environment.StartReactor("measure 0");
  const auto there = environment.StartReactor("measure 1");
  const auto done = environment.MakeEvent();
  const Nanoseconds begin = environment.Now();
  Nanoseconds end = begin;
  int64_t rounds = 0;
  std::function<void()> answer = [&] {
    ++rounds;
    end = environment.Now();
    if (end - begin >= kMessageTime) return done->Set();
    there->Post([&] { here->Post([&] { answer(); }); });
  };
  there->Post([&] { here->Post([&] { answer(); }); });
  if (!environment.Await(*done, kLinkLimit).ok()) return std::nullopt;
  return SecondsOf(end - begin) / (2 * static_cast<double>(rounds));
}

// Two ends of a link through the best transport between processes of a host.
class LinkPair {
 public:
  explicit LinkPair(Environment& environment) : environment_(environment) {
    for (End& end : ends_) end.reactor = environment.StartReactor("measure link");
  }
  ~LinkPair() {
    for (End& end : ends_) {
      const std::shared_ptr<Event> closed = environment_.MakeEvent();
      end.reactor->Post([&end, closed] {
        end.link.reset();
        end.transport.reset();
        closed->Set();
      });
      environment_.Await(*closed, kLinkLimit).IgnoreError();
    }
  }

  absl::Status Connect() {
    std::string addresses[2];
    for (uint16_t node : {0, 1}) {
      End& end = ends_[node];
      for (auto& transport :
           MakeTransports({.node = node, .reactor = end.reactor.get(), .host = "127.0.0.1"})) {
        absl::StatusOr<std::string> address = transport->Open();
        if (!address.ok()) continue;
        addresses[node] = *std::move(address);
        end.transport = std::move(transport);
        break;
      }
      if (end.transport == nullptr) return absl::UnavailableError("no transport works here");
    }
    for (uint16_t node : {0, 1}) {
      End& end = ends_[node];
      end.connected = environment_.MakeEvent();
      end.transport->Connect({.peer = static_cast<uint16_t>(1 - node),
                              .peer_address = addresses[1 - node],
                              .reactor = end.reactor.get(),
                              .timeout = kLinkLimit},
                             [&end](absl::StatusOr<std::unique_ptr<Link>> link) {
                               if (link.ok()) end.link = *std::move(link);
                               end.connected->Set();
                             });
    }
    for (End& end : ends_) {
      // The transport answers within its own limit.
      if (absl::Status status = environment_.Await(*end.connected, 2 * kLinkLimit); !status.ok()) {
        return status;
      }
      if (end.link == nullptr) return absl::UnavailableError("no link between processes");
    }
    return absl::OkStatus();
  }

  Link& link(int node) { return *ends_[node].link; }
  Reactor& reactor(int node) { return *ends_[node].reactor; }

 private:
  struct End {
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Link> link;
    std::unique_ptr<Event> connected;
  };

  Environment& environment_;
  End ends_[2];
};

// Messages there and back, then payloads, each of which is answered by a message.
class LinkMeasurement {
 public:
  explicit LinkMeasurement(Environment& environment)
      : environment_(environment), pair_(environment) {}

  std::optional<compiler::LinkRates> Run() {
    if (!pair_.Connect().ok()) return std::nullopt;
    memory_.resize(2 * kPayloadBytes);
    const std::span<std::byte> landing = std::span(memory_).first(kPayloadBytes);
    const absl::StatusOr<MemoryKey> key = pair_.link(1).Expose(landing);
    if (!key.ok()) return std::nullopt;
    key_ = *key;
    done_ = environment_.MakeEvent();
    pair_.link(1).SetHandler([this](std::span<const std::byte>) { pair_.link(1).Send(kFrame); });
    pair_.link(0).SetHandler([this](std::span<const std::byte>) { Answered(); });
    begin_ = environment_.Now();
    pair_.reactor(0).Post([this] { pair_.link(0).Send(kFrame); });
    if (!environment_.Await(*done_, kLinkLimit).ok()) return std::nullopt;
    const double round = SecondsOf(messages_end_ - begin_) / static_cast<double>(rounds_);
    const double payload =
        SecondsOf(payloads_end_ - messages_end_) / static_cast<double>(payloads_);
    pair_.link(1).Withdraw(key_);
    return compiler::LinkRates{
        .latency = round / 2,
        .bandwidth = static_cast<double>(kPayloadBytes) / std::max(payload - round, payload / 2)};
  }

 private:
  static constexpr std::byte kBytes[] = {static_cast<std::byte>(Channel::kCheck)};
  static constexpr std::span<const std::byte> kFrame{kBytes};

  // In the first end's thread.
  void Answered() {
    const Nanoseconds now = environment_.Now();
    if (messages_end_ == 0) {
      ++rounds_;
      if (now - begin_ < kMessageTime) return pair_.link(0).Send(kFrame);
      messages_end_ = now;
    } else {
      ++payloads_;
      payloads_end_ = now;
      if (now - messages_end_ >= kPayloadTime) return done_->Set();
    }
    const std::span<const std::byte> payload = std::span(memory_).last(kPayloadBytes);
    // The payload is never changed, so it does not matter when it may be.
    (void)pair_.link(0).Write(payload, key_, 0, kFrame, [](const absl::Status&) {});
  }

  Environment& environment_;
  std::vector<std::byte> memory_;  // outlives the links, which read and write it
  std::unique_ptr<Event> done_;
  MemoryKey key_;
  int64_t rounds_ = 0, payloads_ = 0;
  Nanoseconds begin_ = 0, messages_end_ = 0, payloads_end_ = 0;
  LinkPair pair_;
};

}  // namespace

Machine MeasureMachine(const MeasureOptions& options) {
  const std::unique_ptr<Environment> environment = MakeRealEnvironment();
  Machine machine;
  machine.is_known = true;
  machine.origin = "measured";
  compiler::DeviceRates& device = machine.devices["cpu"];
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    const std::optional<double> flops = FlopsOf(dtype, options, *environment);
    if (flops.has_value()) device.flops[dtype] = Rounded(*flops);
  }
  device.memory = Rounded(CopyRate(*environment));
  compiler::LinkRates& process = machine.links[static_cast<size_t>(LinkClass::kProcess)];
  process.bandwidth = Rounded(device.memory / 2);  // what is copied is read and written
  if (const auto latency = WakeLatency(*environment)) process.latency = Rounded(*latency);
  if (const auto host = LinkMeasurement(*environment).Run()) {
    const compiler::LinkRates measured = {.latency = Rounded(host->latency),
                                          .bandwidth = Rounded(host->bandwidth)};
    machine.links[static_cast<size_t>(LinkClass::kHost)] = measured;
    compiler::LinkRates& network = machine.links[static_cast<size_t>(LinkClass::kNetwork)];
    network.latency = std::max(network.latency, measured.latency);
    network.bandwidth = std::min(network.bandwidth, measured.bandwidth);
  }
  return machine;
}

}  // namespace braid
