// Links of the loopback, shm and tcp transports beside plain blocking sockets: how long a small
// frame takes to come back, how many go one way, and what writes of several sizes carry. "staged"
// is shm where the peer does not map the memory that is written to, so that it passes a ring. All
// contenders take turns in every round; the table has the median of the rounds, and CPU seconds of
// the whole process for each second.
//
//   transport_bench [rounds] [address]     11 rounds on 127.0.0.1
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/loopback_transport.h"
#include "comm/network/network.h"
#include "comm/shm/shm_transport.h"
#include "comm/tcp/tcp_transport.h"
#include "glog/logging.h"
#include "runtime/base/process_usage.h"
#include "runtime/base/shared_heap.h"
#include "runtime/device/host_memory.h"

namespace braid {
namespace {

constexpr size_t kFrameBytes = 16;
constexpr int kRoundTrips = 5000;
constexpr int kOneWayFrames = 100000;
constexpr size_t kSlots = 4;  // writes that are under way at once
constexpr Nanoseconds kPatience = 120 * kSecond;

// What is measured; each returns its figure.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual void RoundTrips(int count) = 0;
  virtual void OneWay(int count) = 0;
  virtual void Stream(size_t bytes, int count) = 0;
};

class LinkContender : public Contender {
 public:
  // `heap`: where payload lands; null: in memory that peers do not map.
  LinkContender(Environment& environment, Transport& a, Transport& b, SharedHeap* heap = nullptr)
      : environment_(environment),
        transports_{&a, &b},
        allocate_(MemoryForPeers(heap)),
        done_(environment.MakeEvent()) {
    std::string addresses[2];
    for (int i : {0, 1}) {
      reactors_[i] = environment.StartReactor("node" + std::to_string(i));
      auto address = transports_[i]->Open();
      CHECK(address.ok()) << address.status();
      addresses[i] = *address;
    }
    for (int i : {0, 1}) {
      const auto event = environment.MakeEvent();
      events_.push_back(environment.MakeEvent());
      transports_[i]->Connect({.peer = static_cast<uint16_t>(1 - i),
                               .peer_address = addresses[1 - i],
                               .reactor = reactors_[i].get()},
                              [this, i](absl::StatusOr<std::unique_ptr<Link>> link) {
                                CHECK(link.ok()) << link.status();
                                links_[i] = *std::move(link);
                                events_[i]->Set();
                              });
    }
    for (int i : {0, 1}) CHECK(environment.Await(*events_[i], kPatience).ok());
    for (int i : {0, 1}) {
      links_[i]->SetHandler([this, i](std::span<const std::byte> frame) { on_frame_[i](frame); });
    }
  }

  ~LinkContender() override {
    for (int i : {0, 1}) {
      RunOn(i, [this, i] { links_[i].reset(); });
    }
  }

  void RoundTrips(int count) override {
    int left = count;
    Measure([&](std::span<const std::byte> frame) { links_[1]->Send(frame); },
            [&](std::span<const std::byte> frame) {
              if (--left == 0) return done_->Set();
              links_[0]->Send(frame);
            },
            [&] { links_[0]->Send(std::vector<std::byte>(kFrameBytes)); });
  }

  void OneWay(int count) override {
    int left = count;
    Measure(
        [&](std::span<const std::byte>) {
          if (--left == 0) done_->Set();
        },
        [](std::span<const std::byte>) {},
        [&] {
          const std::vector<std::byte> frame(kFrameBytes);
          for (int i = 0; i < count; ++i) links_[0]->Send(frame);
        });
  }

  // As a transfer does it: a slot is written again when the peer has acknowledged it.
  void Stream(size_t bytes, int count) override {
    std::vector<std::byte> source(bytes, std::byte{7});
    const auto memory = allocate_(kSlots * bytes);
    CHECK(memory.ok()) << memory.status();
    const std::span<std::byte> landing(memory->data(), memory->size());
    const auto key = links_[1]->Expose(landing);
    CHECK(key.ok());
    int begun = 0, answered = 0, acknowledged = 0;
    const auto check_end = [&] {
      if (answered == count && acknowledged == count) done_->Set();
    };
    const auto write = [&](std::byte slot) {
      if (begun++ >= count) return;
      std::byte frame[kFrameBytes] = {slot};
      const bool is_written = links_[0]->Write(source, *key, static_cast<size_t>(slot) * bytes,
                                               frame, [&](absl::Status status) {
                                                 CHECK(status.ok()) << status;
                                                 reactors_[0]->Post([&] {
                                                   ++answered;
                                                   check_end();
                                                 });
                                               });
      if (is_written) ++answered;
    };
    Measure(
        [&](std::span<const std::byte> frame) {
          std::byte& last = landing[(static_cast<size_t>(frame[0]) + 1) * bytes - 1];
          CHECK(last == std::byte{7}) << "a payload was told of before it came";
          last = std::byte{0};
          links_[1]->Send(frame);
        },
        [&](std::span<const std::byte> frame) {
          ++acknowledged;
          write(frame[0]);
          check_end();
        },
        [&] {
          RunOn(0, [&] {
            for (size_t slot = 0; slot < kSlots; ++slot) write(static_cast<std::byte>(slot));
          });
        });
    links_[1]->Withdraw(*key);
  }

 private:
  using Handler = std::function<void(std::span<const std::byte>)>;

  void Measure(Handler at_1, Handler at_0, const std::function<void()>& start) {
    RunOn(0, [&] { on_frame_[0] = std::move(at_0); });
    RunOn(1, [&] { on_frame_[1] = std::move(at_1); });
    done_ = environment_.MakeEvent();
    start();
    CHECK(environment_.Await(*done_, kPatience).ok());
  }

  void RunOn(int node, const std::function<void()>& fn) {
    const auto event = environment_.MakeEvent();
    reactors_[node]->Post([&] {
      fn();
      event->Set();
    });
    CHECK(environment_.Await(*event, kPatience).ok());
  }

  Environment& environment_;
  Transport* const transports_[2];
  const AllocateMemory allocate_;
  std::unique_ptr<Reactor> reactors_[2];
  std::vector<std::unique_ptr<Event>> events_;
  std::unique_ptr<Link> links_[2];
  Handler on_frame_[2];
  std::unique_ptr<Event> done_;
};

// Two threads with a socket each, that wait in the kernel and do nothing else.
class PlainContender : public Contender {
 public:
  explicit PlainContender(const std::string& address) {
    auto listener = ListenOn(*SocketAddress::Parse(address));
    CHECK(listener.ok()) << listener.status();
    auto client = StartConnect(*listener->LocalAddress());
    CHECK(client.ok()) << client.status();
    Wait(*listener);
    auto server = AcceptFrom(*listener);
    CHECK(server.ok()) << server.status();
    ends_[0] = *std::move(client);
    ends_[1] = *std::move(server);
    for (Socket& end : ends_) {
      CHECK(PrepareConnection(end, 5).ok());
      const int flags = fcntl(end.descriptor(), F_GETFL);
      CHECK(fcntl(end.descriptor(), F_SETFL, flags & ~O_NONBLOCK) == 0);
    }
  }

  void RoundTrips(int count) override {
    std::thread echo([&] {
      char frame[kFrameBytes];
      for (int i = 0; i < count; ++i) {
        Receive(1, frame, sizeof(frame));
        SendAll(1, frame, sizeof(frame));
      }
    });
    char frame[kFrameBytes] = {};
    for (int i = 0; i < count; ++i) {
      SendAll(0, frame, sizeof(frame));
      Receive(0, frame, sizeof(frame));
    }
    echo.join();
  }

  void OneWay(int count) override {
    std::thread reader([&] {
      std::vector<char> buffer(16 << 10);
      for (size_t left = count * kFrameBytes; left > 0;) {
        const ssize_t n = recv(ends_[1].descriptor(), buffer.data(), buffer.size(), 0);
        PCHECK(n > 0);
        left -= n;
      }
    });
    char frame[kFrameBytes] = {};
    for (int i = 0; i < count; ++i) SendAll(0, frame, sizeof(frame));
    reader.join();
  }

  void Stream(size_t bytes, int count) override {
    std::vector<char> source(bytes, 7), landing(kSlots * bytes);
    std::thread reader([&] {
      for (int i = 0; i < count; ++i) Receive(1, &landing[i % kSlots * bytes], bytes);
    });
    for (int i = 0; i < count; ++i) SendAll(0, source.data(), bytes);
    reader.join();
  }

 private:
  static void Wait(const Socket& socket) {
    pollfd ready{.fd = socket.descriptor(), .events = POLLIN};
    PCHECK(poll(&ready, 1, 10000) == 1);
  }
  void SendAll(int end, const char* data, size_t bytes) {
    while (bytes > 0) {
      const ssize_t n = send(ends_[end].descriptor(), data, bytes, MSG_NOSIGNAL);
      PCHECK(n > 0);
      data += n;
      bytes -= n;
    }
  }
  void Receive(int end, char* data, size_t bytes) {
    while (bytes > 0) {
      const ssize_t n = recv(ends_[end].descriptor(), data, bytes, 0);
      PCHECK(n > 0);
      data += n;
      bytes -= n;
    }
  }

  Socket ends_[2];
};

struct Figure {
  std::string what;
  std::string unit;
  std::function<void(Contender&)> run;
  std::function<double(double seconds)> of;
};

std::vector<Figure> Figures() {
  std::vector<Figure> figures = {
      {"16-byte frame and back", "us", [](Contender& c) { c.RoundTrips(kRoundTrips); },
       [](double seconds) { return 1e6 * seconds / kRoundTrips; }},
      {"16-byte frames, one way", "M/s", [](Contender& c) { c.OneWay(kOneWayFrames); },
       [](double seconds) { return 1e-6 * kOneWayFrames / seconds; }},
  };
  const std::pair<const char*, size_t> sizes[] = {
      {"64 KiB", 64 << 10}, {"1 MiB", 1 << 20}, {"16 MiB", 16 << 20}};
  for (const auto& [name, bytes] : sizes) {
    const int count = static_cast<int>((size_t{256} << 20) / bytes);
    figures.push_back({std::string("writes of ") + name, "GB/s",
                       [bytes, count](Contender& c) { c.Stream(bytes, count); },
                       [bytes, count](double seconds) {
                         return 1e-9 * static_cast<double>(bytes) * count / seconds;
                       }});
  }
  return figures;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Main(int rounds, const std::string& host) {
  const auto environment = MakeRealEnvironment();
  LoopbackNetwork network;
  const auto reactor = environment->StartReactor("tcp");
  std::unique_ptr<SharedHeap> heaps[2];
  std::unique_ptr<Transport> transports[8];
  for (uint16_t i : {0, 1}) {
    auto heap = SharedHeap::Make(uint64_t{1} << 30);
    CHECK(heap.ok()) << heap.status();
    heaps[i] = *std::move(heap);
    transports[i] = MakeLoopbackTransport(i, &network);
    transports[2 + i] = MakeTcpTransport({.node = i, .reactor = reactor.get(), .host = host});
    transports[4 + i] = MakeShmTransport({.node = i, .reactor = reactor.get()});
    transports[6 + i] =
        MakeShmTransport({.node = i, .reactor = reactor.get(), .shared_heap = heaps[i].get()});
  }
  const bool is_v6 = host.find(':') != std::string::npos;
  std::map<std::string, std::unique_ptr<Contender>> contenders;
  contenders["loopback"] =
      std::make_unique<LinkContender>(*environment, *transports[0], *transports[1]);
  contenders["tcp"] = std::make_unique<LinkContender>(*environment, *transports[2], *transports[3]);
  contenders["staged"] =
      std::make_unique<LinkContender>(*environment, *transports[4], *transports[5]);
  contenders["shm"] =
      std::make_unique<LinkContender>(*environment, *transports[6], *transports[7], heaps[1].get());
  contenders["plain"] = std::make_unique<PlainContender>(is_v6 ? "[" + host + "]:0" : host + ":0");

  constexpr const char* kColumns[] = {"loopback", "shm", "staged", "tcp", "plain"};
  std::printf("%-26s %-5s", "", "");
  for (const char* const column : kColumns) std::printf(" %10s", column);
  std::printf(" %10s %10s\n", "tcp/plain", "shm/tcp");
  for (const Figure& figure : Figures()) {
    std::map<std::string, std::vector<double>> values, load;
    std::vector<double> ratios, shm_ratios;
    for (int round = 0; round <= rounds; ++round) {
      for (const auto& [name, contender] : contenders) {
        const Nanoseconds start = environment->Now();
        const double cpu = CpuSeconds();
        figure.run(*contender);
        const double seconds = 1e-9 * static_cast<double>(environment->Now() - start);
        if (round == 0) continue;  // warms up
        values[name].push_back(figure.of(seconds));
        load[name].push_back((CpuSeconds() - cpu) / seconds);
      }
      if (round == 0) continue;
      ratios.push_back(values["tcp"].back() / values["plain"].back());
      shm_ratios.push_back(values["shm"].back() / values["tcp"].back());
    }
    std::printf("%-26s %-5s", figure.what.c_str(), figure.unit.c_str());
    for (const char* const column : kColumns) std::printf(" %10.2f", Median(values[column]));
    std::printf(" %10.2f %10.2f\n%-26s %-5s", Median(ratios), Median(shm_ratios), "", "cpu");
    for (const char* const column : kColumns) std::printf(" %10.2f", Median(load[column]));
    std::printf("\n");
  }
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  braid::Main(argc > 1 ? std::atoi(argv[1]) : 11, argc > 2 ? argv[2] : "127.0.0.1");
}
