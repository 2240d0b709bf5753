// A Link over a connection that outlives it: by what is posted, and by what it still has to say
// when the Link is gone. The links of tcp, shm and rdma.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "comm/transport.h"

namespace braid {

// `Connection` has the calls of Link, but for Close, which is also given what the peer is told, and
// Detach, on the reactor's thread: the Link goes away. Those of lending and SendLater it need not
// have.
template <typename Connection>
class ConnectionLink final : public Link {
 public:
  explicit ConnectionLink(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  ~ConnectionLink() override { connection_->Detach(); }

  uint16_t peer() const override { return connection_->options().peer; }
  std::string Describe() const override {
    return absl::StrFormat("node %d <-> node %d: %s", connection_->options().node, peer(),
                           connection_->description());
  }
  absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory) override {
    return connection_->Expose(memory);
  }
  void Withdraw(const MemoryKey& key) override { connection_->Withdraw(key); }
  void Send(std::span<const std::byte> frame) override { connection_->Send(frame); }
  void SendLater(std::span<const std::byte> frame) override {
    if constexpr (kSendsLater) return connection_->SendLater(frame);
    Link::SendLater(frame);
  }
  bool Write(std::span<const std::byte> payload, const MemoryKey& key, uint64_t offset,
             std::span<const std::byte> frame, DoneCallback done) override {
    return connection_->Write(payload, key, offset, frame, std::move(done));
  }
  std::optional<MemoryKey> Lend(std::span<const std::byte> memory) override {
    if constexpr (kLends) return connection_->Lend(memory);
    return Link::Lend(memory);
  }
  std::optional<MemoryKey> LendForWriting(std::span<std::byte> memory) override {
    if constexpr (kLends) return connection_->LendForWriting(memory);
    return Link::LendForWriting(memory);
  }
  bool WriteLent(uint64_t token, uint64_t offset, std::span<const std::byte> payload) override {
    if constexpr (kLends) return connection_->WriteLent(token, offset, payload);
    return Link::WriteLent(token, offset, payload);
  }
  bool ReadLent(uint64_t token, uint64_t bytes, LentReader read) override {
    if constexpr (kLends) return connection_->ReadLent(token, bytes, read);
    return Link::ReadLent(token, bytes, read);
  }
  bool can_read_lent() const override {
    if constexpr (kLends) return connection_->can_read_lent();
    return Link::can_read_lent();
  }
  bool is_within_machine() const override {
    return requires { Connection::kIsWithinMachine; };
  }
  void SetHandler(FrameHandler handler) override { connection_->SetHandler(std::move(handler)); }
  void OnClosed(std::function<void(absl::Status)> closed) override {
    connection_->OnClosed(std::move(closed));
  }
  void Close(absl::Status reason) override {
    connection_->Close(reason, std::string(reason.message()));
  }
  LinkCounters counters() const override { return connection_->counters(); }

 private:
  static constexpr bool kSendsLater = requires(Connection & connection) {
    connection.SendLater({});
  };
  static constexpr bool kLends = requires(Connection & connection) { connection.can_read_lent(); };

  const std::shared_ptr<Connection> connection_;
};

// Why the link of two nodes closes: CANCELLED has the reason that the peer gave, what is not
// INVALID_ARGUMENT how the connection ended.
inline absl::Status EndOfLink(uint16_t node, uint16_t peer, const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return status;
  const std::string text(status.message());
  const std::string link = absl::StrFormat("link node %d <-> node %d", node, peer);
  return absl::UnavailableError(
      absl::IsCancelled(status) ? absl::StrFormat("%s was closed by node %d: %s", link, peer, text)
                                : absl::StrFormat("%s: %s", link, text));
}

}  // namespace braid
