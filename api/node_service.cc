// The service of a node that is not the master: the rendezvous, then the node that it becomes.
#include <glog/logging.h>

#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/network.h"
#include "comm/control/network_place.h"
#include "comm/control/rendezvous.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_limit.h"
#include "runtime/node.h"

namespace braid {
namespace {

constexpr Nanoseconds kServiceEndLimit = 10 * kSecond;

}  // namespace

class NodeService::Impl {
 public:
  Impl(const NetworkOptions& network, const ServiceOptions& options,
       std::function<void(absl::Status)> ended)
      : network_(network),
        options_(options),
        own_environment_(network.environment == nullptr ? MakeRealEnvironment() : nullptr),
        environment_(own_environment_ ? own_environment_.get() : network.environment),
        has_ended_(environment_->MakeEvent()),
        ended_(std::move(ended)) {}

  ~Impl() {
    if (client_ == nullptr) return;
    End(absl::CancelledError("its process ends"));
    // Nothing is under way on the rendezvous's reactor any more that could touch the node.
    const std::shared_ptr<Event> is_idle = environment_->MakeEvent();
    client_->reactor().Post([is_idle] { is_idle->Set(); });
    environment_->Await(*is_idle, kServiceEndLimit).IgnoreError();
    if (const absl::Status waited = environment_->Await(*has_ended_, kServiceEndLimit);
        !waited.ok()) {
      LOG(ERROR) << "node " << rank() << " does not end: " << waited.message();
    }
    node_.reset();
    client_.reset();
  }

  absl::Status Start() {
    // And the rendezvous.
    if (!environment_->is_simulated()) BRAID_RETURN_IF_ERROR(CheckThreads(kNodeThreads + 1));
    BRAID_ASSIGN_OR_RETURN(RendezvousOptions rendezvous,
                           RendezvousOptionsOf(network_, environment_));
    BRAID_ASSIGN_OR_RETURN(WayToMaster way, FindMaster(network_));
    client_ = std::make_unique<RendezvousClient>(std::move(rendezvous), std::move(way.addresses),
                                                 way.from);
    client_->StartJoin([this](absl::StatusOr<std::shared_ptr<ControlConnection>> connection) {
      absl::Status status = connection.status();
      if (status.ok()) status = CheckExposure(network_, client_->local_address());
      if (!status.ok()) return Ended(status);
      Serve(*std::move(connection));
    });
    return absl::OkStatus();
  }

  void End(absl::Status reason) {
    // May run as late as in the client's destructor, if its thread is held up.
    client_->reactor().Post([this, client = client_.get(), reason = std::move(reason)] {
      if (node_ == nullptr) return client->Abort(reason);
      node_->Fail(OfNode(network_.cluster, rank(), reason));
    });
  }

  absl::Status AwaitEnd() { return environment_->Await(*has_ended_, kForever); }

 private:
  uint16_t rank() const { return static_cast<uint16_t>(network_.cluster.rank); }

  // On the rendezvous's reactor, as Start's callback.
  void Serve(std::shared_ptr<ControlConnection> connection) {
    NodeOptions options;
    options.node = rank();
    options.devices = DevicesHere(*network_.cluster.nodes[rank()].devices).count;
    options.device_kind = options_.device_kind;
    options.threads_per_device = options_.threads_per_device;
    options.simulation_seed = options_.simulation_seed;
    SetNetwork(options, network_, client_->local_address().host());
    options.stall_timeout = StallTimeoutIn(*environment_, options_.stall_timeout);
    options.event_dump = options_.event_dump;
    options.environment = environment_;
    options.kernels = options_.kernels;
    options.dataset_kinds = options_.dataset_kinds;
    options.on_failure = options_.on_failure;
    options.on_introduced = options_.on_introduced;
    node_ = std::make_unique<Node>(options);
    // Ends with the session: the master says so, or is lost.
    node_->Serve(MakeTcpControlChannel(std::move(connection), &node_->reactor()),
                 [this](absl::Status cause) { Ended(cause); });
  }

  // The last that is done here but for the destructor.
  void Ended(const absl::Status& status) {
    ended_(status);
    has_ended_->Set();
  }

  const NetworkOptions network_;
  const ServiceOptions options_;
  const std::unique_ptr<Environment> own_environment_;
  Environment* const environment_;
  const std::unique_ptr<Event> has_ended_;
  const std::function<void(absl::Status)> ended_;
  std::unique_ptr<RendezvousClient> client_;
  std::unique_ptr<Node> node_;  // made on the rendezvous's reactor
};

NodeService::NodeService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

NodeService::~NodeService() = default;

absl::StatusOr<std::unique_ptr<NodeService>> NodeService::Start(
    const NetworkOptions& network, const ServiceOptions& options,
    std::function<void(absl::Status)> ended) {
  auto impl = std::make_unique<Impl>(network, options, std::move(ended));
  BRAID_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<NodeService>(new NodeService(std::move(impl)));
}

void NodeService::End(const absl::Status& reason) { impl_->End(reason); }

absl::Status NodeService::AwaitEnd() { return impl_->AwaitEnd(); }

absl::Status ServeNode(const NetworkOptions& network, const ServiceOptions& options) {
  absl::Status cause;
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<NodeService> service,
                         NodeService::Start(network, options, [&](absl::Status status) {
                           cause = std::move(status);
                         }));
  options.interruption->SetHandler([&](const absl::Status& reason) { service->End(reason); });
  const absl::Status waited = service->AwaitEnd();
  options.interruption->SetHandler(nullptr);
  BRAID_RETURN_IF_ERROR(waited);
  return cause;
}

}  // namespace braid
