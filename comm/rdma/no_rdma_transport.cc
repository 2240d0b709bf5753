// In place of the rest of this folder where the header of libibverbs was not there to build with.
#include "comm/rdma/rdma_transport.h"

namespace braid {
namespace {

class NoRdmaTransport final : public Transport {
 public:
  std::string_view name() const override { return "rdma"; }
  absl::StatusOr<std::string> Open() override { return Missing(); }
  absl::Status Reaches(std::string_view /*peer_address*/) const override { return Missing(); }
  void Connect(LinkRequest request, ConnectCallback done) override {
    request.reactor->Post([done = std::move(done)] { done(Missing()); });
  }

 private:
  static absl::Status Missing() {
    return absl::FailedPreconditionError(
        "this program was built without it; install libibverbs-dev and build again");
  }
};

}  // namespace

std::unique_ptr<Transport> MakeRdmaTransport(const TransportOptions& /*options*/) {
  return std::make_unique<NoRdmaTransport>();
}

}  // namespace braid
