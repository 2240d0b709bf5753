#include "api/membership.h"

#include <glog/logging.h>

#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/control/network_place.h"
#include "comm/loopback_transport.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_limit.h"
#include "runtime/coordinator.h"
#include "runtime/reports/control_status.h"

namespace braid {
namespace {

// For the nodes' hellos, once all have joined.
constexpr Nanoseconds kHelloLimit = 60 * kSecond;

}  // namespace

absl::StatusOr<MasterSeat> TakeMasterSeat(const NetworkOptions& network, Environment* environment) {
  MasterSeat seat;
  BRAID_ASSIGN_OR_RETURN(RendezvousOptions rendezvous, RendezvousOptionsOf(network, environment));
  seat.self = rendezvous.self;
  BRAID_ASSIGN_OR_RETURN(std::vector<Socket> listeners, ListenAsMaster(network));
  BRAID_ASSIGN_OR_RETURN(seat.data_host, DataHostOf(listeners));
  BRAID_ASSIGN_OR_RETURN(const SocketAddress control, listeners[0].LocalAddress());
  if (!network.meeting_file.empty()) {
    BRAID_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                           AddressesForOthers(listeners, SocketsOf(network)));
    BRAID_ASSIGN_OR_RETURN(seat.meeting, MeetingFile::Write(network.meeting_file, addresses));
    rendezvous.secret = SecretOfMeeting(network.secret, seat.meeting->nonce());
  }
  const std::string secret = rendezvous.secret;
  seat.rendezvous = std::make_unique<RendezvousServer>(std::move(rendezvous), std::move(listeners));
  if (environment->is_simulated()) return seat;
  const std::string address =
      control.is_any() ? absl::StrFormat("127.0.0.1:%d", control.port()) : control.ToString();
  absl::StatusOr<SessionFile> file = SessionFile::Write(address, secret);
  if (file.ok()) {
    seat.file = *std::move(file);
  } else {
    LOG(WARNING) << "`braid status` will find this session only as `braid status " << address
                 << "`: " << file.status().message();
  }
  return seat;
}

class Membership::Impl {
 public:
  virtual ~Impl() = default;
  virtual absl::Status Join() = 0;
  virtual absl::Status Leave(const absl::Status& cause) = 0;
  virtual Node& node() const = 0;
  virtual Coordinator* coordinator() const { return nullptr; }

  Environment& environment() const { return *environment_; }
  KernelRegistry& kernels() { return kernels_; }

 protected:
  Impl(Environment* environment, const MembershipOptions& options)
      : options_(options),
        own_environment_(environment == nullptr ? MakeRealEnvironment() : nullptr),
        environment_(own_environment_ ? own_environment_.get() : environment) {}

  // Who is told of a request to end; nullptr before it goes.
  void SetHandler(Interruption::Handler handler) {
    if (options_.interruption != nullptr) options_.interruption->SetHandler(std::move(handler));
  }

  const MembershipOptions options_;
  const std::unique_ptr<Environment> own_environment_;
  Environment* const environment_;
  // Of the jobs that the world's programs compile.
  KernelRegistry kernels_ = CpuKernels();
};

// Rank 0, or a process alone.
class Membership::Master final : public Membership::Impl {
 public:
  Master(const NetworkOptions* network, const MembershipOptions& options)
      : Impl(network == nullptr ? nullptr : network->environment, options) {
    if (network != nullptr) network_ = *network;
  }

  ~Master() override {
    SetHandler(nullptr);
    if (seat_.rendezvous != nullptr) seat_.rendezvous->SetStatusSource(nullptr);
    coordinator_.reset();
    node_.reset();
  }

  absl::Status Join() override {
    BRAID_RETURN_IF_ERROR(CheckThreads(kNodeThreads + 2));
    CoordinatorOptions options{
        .environment = environment_,
        .stall_timeout = StallTimeoutIn(*environment_, options_.stall_timeout)};
    if (network_.has_value()) {
      options.name_of = [this](int node) { return NodeName(network_->cluster, node); };
    }
    options.silence_of = [this](int node) -> Nanoseconds {
      const auto connection = connections_.find(node);
      if (connection == connections_.end()) return -1;
      return environment_->Now() - connection->second->counters().heard;
    };
    options.on_failure = options_.on_failure;
    coordinator_ = std::make_unique<Coordinator>(std::move(options));
    std::vector<JoinedNode> joined;
    if (network_.has_value()) {
      BRAID_ASSIGN_OR_RETURN(seat_, TakeMasterSeat(*network_, environment_));
      SetHandler([this](const absl::Status& reason) {
        seat_.rendezvous->Abort(Prefixed(Name(), reason));
      });
      BRAID_ASSIGN_OR_RETURN(joined, seat_.rendezvous->Join());
    }
    SetHandler([this](const absl::Status& reason) { coordinator_->Fail(OfThis(reason)); });
    const std::shared_ptr<Event> is_introduced = environment_->MakeEvent();
    std::vector<std::unique_ptr<ControlChannel>> channels;
    channels.push_back(StartNode(is_introduced));
    for (const JoinedNode& node : joined) {
      connections_[node.identity.node] = node.connection;
      channels.push_back(MakeTcpControlChannel(node.connection, &coordinator_->reactor()));
    }
    if (seat_.rendezvous != nullptr) {
      seat_.rendezvous->SetStatusSource([this](std::function<void(std::string)> done) {
        coordinator_->Describe(std::move(done));
      });
    }
    BRAID_RETURN_IF_ERROR(coordinator_->Join(std::move(channels), kHelloLimit));
    has_joined_ = true;
    coordinator_->SetPhase(kProgramPhase);
    return environment_->Await(*is_introduced, kHelloLimit);
  }

  absl::Status Leave(const absl::Status& cause) override {
    if (!has_joined_) return absl::OkStatus();
    absl::Status own = OfThis(cause);
    if (own.ok()) {
      node_->LeaveGroups();
      own = coordinator_->AwaitLeft();
    }
    // Before any rank goes on, and maybe into another world that meets there.
    seat_.meeting.reset();
    const absl::Status closed = coordinator_->Close(own);
    return own.ok() ? closed : own;
  }

  Node& node() const override { return *node_; }
  Coordinator* coordinator() const override { return coordinator_.get(); }

 private:
  std::string Name() const { return NodeName(network_->cluster, 0); }
  absl::Status OfThis(const absl::Status& cause) const {
    return network_.has_value() ? OfNode(network_->cluster, 0, cause) : cause;
  }

  std::unique_ptr<ControlChannel> StartNode(const std::shared_ptr<Event>& is_introduced) {
    NodeOptions options;
    options.environment = environment_;
    options.stall_timeout = StallTimeoutIn(*environment_, options_.stall_timeout);
    options.event_dump = options_.event_dump;
    options.kernels = &kernels_;
    options.on_introduced = [is_introduced](Node&) { is_introduced->Set(); };
    if (network_.has_value()) {
      SetNetwork(options, *network_, seat_.data_host);
    } else {
      options.loopback = &loopback_;
    }
    node_ = std::make_unique<Node>(options);
    auto [master_end, node_end] =
        MakeLoopbackControlPair(&coordinator_->reactor(), &node_->reactor());
    node_->Serve(std::move(node_end), [](const absl::Status&) {});
    return std::move(master_end);
  }

  std::optional<NetworkOptions> network_;
  LoopbackNetwork loopback_;
  MasterSeat seat_;
  std::map<int, std::shared_ptr<ControlConnection>> connections_;  // shared with their channels
  std::unique_ptr<Node> node_;
  std::unique_ptr<Coordinator> coordinator_;
  bool has_joined_ = false;
};

// Any other rank: a node's service, with a program of its own.
class Membership::Worker final : public Membership::Impl {
 public:
  Worker(const NetworkOptions& network, const MembershipOptions& options)
      : Impl(network.environment, options), network_(network) {}

  ~Worker() override { SetHandler(nullptr); }

  absl::Status Join() override {
    network_.environment = environment_;
    // Either comes: the node knows its peers, or there will be none.
    const std::shared_ptr<Event> is_settled = environment_->MakeEvent();
    ServiceOptions options{.stall_timeout = options_.stall_timeout,
                           .event_dump = options_.event_dump,
                           .kernels = &kernels_,
                           .on_failure = options_.on_failure};
    options.on_introduced = [this, is_settled](Node& node) {
      node_ = &node;
      is_settled->Set();
    };
    BRAID_ASSIGN_OR_RETURN(
        service_, NodeService::Start(network_, options, [this, is_settled](absl::Status status) {
          cause_ = std::move(status);
          is_settled->Set();
        }));
    SetHandler([this](const absl::Status& reason) { service_->End(reason); });
    BRAID_RETURN_IF_ERROR(environment_->Await(*is_settled, kForever));
    if (node_ != nullptr) return absl::OkStatus();
    BRAID_RETURN_IF_ERROR(service_->AwaitEnd());
    return cause_.ok() ? absl::UnavailableError("the cluster was closed while it joined") : cause_;
  }

  absl::Status Leave(const absl::Status& cause) override {
    if (node_ == nullptr) return absl::OkStatus();
    if (cause.ok()) {
      node_->LeaveGroups();
    } else {
      service_->End(cause);
    }
    BRAID_RETURN_IF_ERROR(service_->AwaitEnd());
    return cause_;
  }

  Node& node() const override { return *node_; }

 private:
  NetworkOptions network_;
  Node* node_ = nullptr;  // the service's
  absl::Status cause_;    // once it has ended
  std::unique_ptr<NodeService> service_;
};

Membership::Membership(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Membership::~Membership() { Leave(absl::OkStatus()).IgnoreError(); }

absl::StatusOr<std::unique_ptr<Membership>> Membership::Join(const NetworkOptions* network,
                                                             const MembershipOptions& options) {
  std::unique_ptr<Impl> impl;
  if (network == nullptr || network->cluster.rank == 0) {
    impl = std::make_unique<Master>(network, options);
  } else {
    impl = std::make_unique<Worker>(*network, options);
  }
  BRAID_RETURN_IF_ERROR(impl->Join());
  return std::unique_ptr<Membership>(new Membership(std::move(impl)));
}

Environment& Membership::environment() const { return impl_->environment(); }
Node& Membership::node() const { return impl_->node(); }
KernelRegistry& Membership::kernels() const { return impl_->kernels(); }
bool Membership::Claim() { return !std::exchange(is_claimed_, true); }
Coordinator* Membership::coordinator() const { return impl_->coordinator(); }
absl::Status Membership::Leave(const absl::Status& cause) {
  if (!end_.has_value()) end_ = impl_->Leave(cause);
  return *end_;
}

}  // namespace braid
