#include "comm/network/sim_network.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/network/sim_connection.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr const char* kInterface = "sim0";
constexpr uint16_t kFirstFreePort = 32768;
// How long a dialer waits until it tries again, when nobody answered.
constexpr Nanoseconds kDialAgain = kSecond;

// Where a process waits for connections.
struct SimListener {
  int process = 0;
  SocketAddress address;
  int descriptor = -1;
  std::deque<std::shared_ptr<SimConnection>> waiting;
};

SocketAddress Loopback(uint16_t port) {
  return SocketAddress::Parse("127.0.0.1:0")->WithPort(port);
}

// As the system says it of a process whose limit is reached.
absl::Status CannotMakeSocket(const SocketAddress& address) {
  return absl::ErrnoToStatus(EMFILE,
                             absl::StrFormat("cannot make a socket for %s", address.ToString()));
}

}  // namespace

class SimNetwork::Machine final : public Network {
 public:
  Machine(Internet& internet, int process, std::vector<SocketAddress> addresses)
      : internet_(internet), process_(process), addresses_(std::move(addresses)) {
    addresses_.push_back(Loopback(0));
  }

  absl::StatusOr<Socket> ListenOn(const SocketAddress& address) override;
  absl::StatusOr<Socket> StartConnect(const SocketAddress& to, const SocketAddress& from) override;

  absl::StatusOr<std::vector<SocketAddress>> ResolveHost(const std::string& host,
                                                         uint16_t port) override {
    if (host == "localhost") return std::vector{Loopback(port)};
    for (const char* form : {"%s:0", "[%s]:0"}) {
      const std::string text =
          *form == '[' ? absl::StrFormat("[%s]:0", host) : absl::StrFormat("%s:0", host);
      if (const auto address = SocketAddress::Parse(text); address.ok()) {
        return std::vector{address->WithPort(port)};
      }
    }
    return absl::NotFoundError(
        absl::StrFormat("host '%s' has no address: the simulation has no names", host));
  }
  absl::StatusOr<std::vector<SocketAddress>> InterfaceAddresses(
      const std::string& interface) override {
    std::vector<SocketAddress> found;
    for (const SocketAddress& address : addresses_) {
      if (InterfaceOf(address) == interface) found.push_back(address);
    }
    if (!found.empty()) return found;
    return absl::NotFoundError(
        absl::StrFormat("no interface '%s' is up and has an IP address; those that are: lo, %s",
                        interface, kInterface));
  }
  absl::StatusOr<std::vector<SocketAddress>> LocalAddresses() override { return addresses_; }
  std::string InterfaceOf(const SocketAddress& address) override {
    if (!Has(address)) return "";
    return address.is_loopback() ? "lo" : kInterface;
  }

  int process() const { return process_; }
  bool Has(const SocketAddress& address) const {
    return std::any_of(addresses_.begin(), addresses_.end(),
                       [&](const SocketAddress& own) { return own.SameHost(address); });
  }

 private:
  Internet& internet_;
  const int process_;
  std::vector<SocketAddress> addresses_;
  friend class Internet;
};

class SimNetwork::Internet : public std::enable_shared_from_this<Internet> {
 public:
  Internet(Simulation& world, const SimNetworkOptions& options)
      : wires_(new SimWires{world, options, {}}) {}

  Simulation& world() { return wires_->world; }
  SimWires& wires() { return *wires_; }
  uint16_t NextPort() {
    const uint16_t port = next_port_++;
    if (next_port_ == 0) next_port_ = kFirstFreePort;
    return port;
  }

  SimListener* FindListener(int process, const SocketAddress& address) {
    for (const auto& listener : listeners_) {
      const SocketAddress& at = listener->address;
      if (listener->process == process && at.port() == address.port() &&
          at.family() == address.family() &&
          (at.is_any() || address.is_any() || at.SameHost(address))) {
        return listener.get();
      }
    }
    return nullptr;
  }

  // The process whose machine `from` reaches by this address, or -1.
  int ProcessAt(const SocketAddress& address, int from) const {
    for (const auto& machine : machines_) {
      if (address.is_loopback() ? machine->process() == from : machine->Has(address)) {
        return machine->process();
      }
    }
    return -1;
  }

  void Dial(const std::shared_ptr<SimConnection>& connection, const SocketAddress& to);
  void Kill(int process);
  void CloseListener(const std::shared_ptr<SimListener>& listener);
  template <typename Do>
  void ForEach(int a, int b, const Do& act) {
    std::erase_if(connections_, [](const auto& connection) { return connection.expired(); });
    for (const auto& weak : connections_) {
      const auto connection = weak.lock();
      if (connection != nullptr && connection->joins(a, b)) act(*connection);
    }
  }

  std::vector<std::unique_ptr<Machine>> machines_;
  std::vector<std::shared_ptr<SimListener>> listeners_;
  std::vector<std::weak_ptr<SimConnection>> connections_;  // in order of being made
  const std::shared_ptr<SimWires> wires_;
  uint16_t next_port_ = kFirstFreePort;
  std::set<int> exhausted_;  // processes without descriptors
};

namespace {

// A listener's socket.
template <typename Internet>
class SimListenerEnd final : public SocketEnd {
 public:
  SimListenerEnd(std::shared_ptr<Internet> internet, std::shared_ptr<SimListener> listener)
      : internet_(std::move(internet)), listener_(std::move(listener)) {}
  ~SimListenerEnd() override { internet_->CloseListener(listener_); }

  int descriptor() const override { return listener_->descriptor; }
  IoResult Read(std::span<const iovec>) override { return {.error = ENOTCONN}; }
  IoResult Write(std::span<const iovec>) override { return {.error = ENOTCONN}; }
  void ShutdownWrite() override {}
  absl::StatusOr<SocketAddress> LocalAddress() const override { return listener_->address; }
  absl::StatusOr<SocketAddress> PeerAddress() const override { return SocketError(ENOTCONN); }
  absl::Status ConnectResult() override { return SocketError(ENOTCONN); }
  absl::StatusOr<Socket> Accept() override {
    if (listener_->waiting.empty()) {
      return absl::UnavailableError("no connection waits to be accepted");
    }
    if (internet_->exhausted_.contains(listener_->process)) {
      return absl::ErrnoToStatus(EMFILE, "cannot accept a connection");
    }
    const std::shared_ptr<SimConnection> connection = listener_->waiting.front();
    listener_->waiting.pop_front();
    internet_->world().SetDescriptor(descriptor(), {.readable = !listener_->waiting.empty()});
    return connection->Open(1);
  }
  absl::Status Prepare(int) override { return absl::OkStatus(); }
  absl::Status AllowSlowReader() override { return absl::OkStatus(); }
  bool IsUnanswered(int) const override { return false; }
  size_t UnconfirmedBytes() const override { return 0; }

 private:
  const std::shared_ptr<Internet> internet_;
  const std::shared_ptr<SimListener> listener_;
};

}  // namespace

absl::StatusOr<Socket> SimNetwork::Machine::ListenOn(const SocketAddress& address) {
  const auto cannot = [&](int error) {
    return absl::ErrnoToStatus(error, absl::StrFormat("cannot listen on %s", address.ToString()));
  };
  if (!internet_.world().is_alive(process_)) return cannot(ENETDOWN);
  if (internet_.exhausted_.contains(process_)) return CannotMakeSocket(address);
  if (!address.is_any() && !address.is_loopback() && !Has(address)) return cannot(EADDRNOTAVAIL);
  auto listener = std::make_shared<SimListener>();
  listener->process = process_;
  listener->address = address.port() == 0 ? address.WithPort(internet_.NextPort()) : address;
  if (internet_.FindListener(process_, listener->address) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrFormat("cannot listen on %s: another process does; end it or choose another port",
                        address.ToString()));
  }
  listener->descriptor = internet_.world().OpenDescriptor(process_);
  internet_.listeners_.push_back(listener);
  return Socket(std::make_unique<SimListenerEnd<Internet>>(internet_.shared_from_this(), listener));
}

absl::StatusOr<Socket> SimNetwork::Machine::StartConnect(const SocketAddress& to,
                                                         const SocketAddress& from) {
  if (!internet_.world().is_alive(process_)) return SocketError(ENETDOWN);
  if (internet_.exhausted_.contains(process_)) return CannotMakeSocket(to);
  SocketAddress local = from;
  if (from.length() > 0 && !from.is_loopback() && !Has(from)) {
    return absl::ErrnoToStatus(EADDRNOTAVAIL,
                               absl::StrFormat("cannot connect from %s", from.ToString()));
  }
  for (const SocketAddress& own : addresses_) {
    if (local.length() > 0) break;
    if (own.family() == to.family() && own.is_loopback() == to.is_loopback()) local = own;
  }
  if (local.length() == 0) return SocketError(ENETUNREACH);
  const int peer = internet_.ProcessAt(to, process_);
  auto connection = std::make_shared<SimConnection>(
      internet_.wires_,
      SimConnection::Side{.process = process_, .address = local.WithPort(internet_.NextPort())},
      SimConnection::Side{.process = peer, .address = to});
  internet_.connections_.push_back(connection);
  Socket socket = connection->Open(0);
  // An address that nobody has is dialed in vain.
  if (peer >= 0) {
    internet_.world().RunAfter(internet_.wires_->DrawDelay(),
                               [internet = internet_.shared_from_this(), connection, to] {
                                 internet->Dial(connection, to);
                               });
  }
  return socket;
}

void SimNetwork::Internet::Dial(const std::shared_ptr<SimConnection>& connection,
                                const SocketAddress& to) {
  if (!connection->is_open(0)) return;
  if (wires_->are_blocked(connection->process(0), connection->process(1))) {
    return world().RunAfter(
        kDialAgain, [self = shared_from_this(), connection, to] { self->Dial(connection, to); });
  }
  SimListener* const listener = FindListener(connection->process(1), to);
  if (listener == nullptr) {
    return world().RunAfter(wires_->DrawDelay(),
                            [connection] { connection->Fail(0, ECONNREFUSED); });
  }
  listener->waiting.push_back(connection);
  world().SetDescriptor(listener->descriptor, {.readable = true});
  world().RunAfter(wires_->DrawDelay(), [connection] { connection->Connected(); });
}

void SimNetwork::Internet::CloseListener(const std::shared_ptr<SimListener>& listener) {
  std::erase(listeners_, listener);
  for (const auto& connection : std::exchange(listener->waiting, {})) connection->Reset();
  world().CloseDescriptor(listener->descriptor);
}

// Its own listeners stay where they are; nobody finds them any more.
void SimNetwork::Internet::Kill(int process) {
  for (const auto& listener : listeners_) {
    if (listener->process != process) continue;
    for (const auto& connection : std::exchange(listener->waiting, {})) connection->Reset();
    world().SetDescriptor(listener->descriptor, {});
  }
  std::erase_if(listeners_, [&](const auto& listener) { return listener->process == process; });
  for (const auto& weak : connections_) {
    const auto connection = weak.lock();
    if (connection == nullptr) continue;
    for (const int side : {0, 1}) {
      if (connection->process(side) == process) connection->Die(side);
    }
  }
}

SimNetwork::SimNetwork(Simulation* simulation, const SimNetworkOptions& options)
    : internet_(std::make_shared<Internet>(*simulation, options)) {
  simulation->OnKilled([internet = std::weak_ptr<Internet>(internet_)](int process) {
    if (const auto alive = internet.lock()) alive->Kill(process);
  });
}

SimNetwork::~SimNetwork() = default;

Network* SimNetwork::AddMachine(int process, std::vector<SocketAddress> addresses) {
  internet_->machines_.push_back(
      std::make_unique<Machine>(*internet_, process, std::move(addresses)));
  return internet_->machines_.back().get();
}

void SimNetwork::Cut(int a, int b) {
  internet_->ForEach(a, b, [](SimConnection& connection) { connection.Reset(); });
}

void SimNetwork::Partition(int a, int b) {
  if (!internet_->wires().blocked.insert(std::minmax(a, b)).second) return;
  internet_->ForEach(a, b, [](SimConnection& connection) { connection.WatchSilence(); });
}

void SimNetwork::Heal(int a, int b) {
  if (internet_->wires().blocked.erase(std::minmax(a, b)) == 0) return;
  internet_->ForEach(a, b, [](SimConnection& connection) { connection.Unblock(); });
}

void SimNetwork::ExhaustDescriptors(int process) { internet_->exhausted_.insert(process); }

void SimNetwork::FreeDescriptors(int process) { internet_->exhausted_.erase(process); }

int SimNetwork::num_connections(int a, int b) const {
  int count = 0;
  internet_->ForEach(a, b, [&](const SimConnection& connection) {
    count += connection.is_open(0) || connection.is_open(1);
  });
  return count;
}

}  // namespace braid
