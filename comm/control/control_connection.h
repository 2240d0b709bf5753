// One TCP connection of the control plane: checked frames, heartbeats, an end that says why. The
// rendezvous makes it after both sides have proved the secret; once a node has joined, it becomes
// the node's ControlChannel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "comm/control/control_channel.h"
#include "comm/network/socket.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"

namespace braid {

struct ControlConnectionOptions {
  Reactor* reactor = nullptr;  // does the reading, writing and beating; outlives the connection
  std::string peer;            // "node 1 (10.0.0.2:41234)", for messages
  Nanoseconds heartbeat = kSecond;
  // The peer counts as lost when nothing came for so long, or nothing that was sent was confirmed
  // by its machine: what it has sent may come long after packets to it are dropped.
  Nanoseconds heartbeat_limit = 5 * kSecond;
  std::function<void()> on_socket_closed;  // on the reactor's thread, once; may be empty
};

// What a connection has carried, by what it was for.
struct ControlCounters {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t heartbeats_sent = 0;
  uint64_t heartbeats_received = 0;
  uint64_t bytes_sent = 0;  // whole frames
  uint64_t bytes_received = 0;
  Nanoseconds heard = 0;  // when something came last
};

// Shared by its owner and by its reactor, which flushes and closes the socket after the owner let
// go (Close). Frames: magic, kind, length and CRC32C, 16 bytes little-endian, then the payload.
class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
 public:
  static constexpr size_t kHeaderBytes = 16;
  // A stranger's frames are small; plans are not.
  static constexpr size_t kMaxJoinBytes = size_t{1} << 20;
  static constexpr size_t kMaxMessageBytes = size_t{1} << 30;

  using MessageHandler = ControlChannel::MessageHandler;
  using ClosedHandler = ControlChannel::ClosedHandler;

  // On the reactor's thread: it reads from now on.
  static std::shared_ptr<ControlConnection> Make(Socket socket, ControlConnectionOptions options);
  ~ControlConnection();

  // Called on `owner`'s thread; messages that came before wait for them. Setting them again hands
  // the connection over: what the earlier ones were not yet called for goes to the new ones. Not
  // while a handler runs on another thread.
  void SetHandlers(Reactor* owner, MessageHandler on_message, ClosedHandler on_closed);
  // After it returns no handler is called any more. On the owner's thread or after its end.
  void DropHandlers();

  // Any thread. Dropped on a closed connection.
  void Send(std::string message);
  // Any thread; the first reason counts. What was sent before still goes out, and the peer is told
  // the reason; the closed handler gets it, too.
  void Close(absl::Status reason);
  // The peer has joined: messages of any size may come from now on.
  void AllowPlans();

  const std::string& peer() const { return options_.peer; }
  ControlCounters counters() const;

  // What a frame's header says. INVALID_ARGUMENT if it is wrong, with both values.
  struct Header {
    uint8_t kind = 0;
    uint32_t bytes = 0;
    uint32_t checksum = 0;
  };
  static absl::StatusOr<Header> ParseHeader(std::span<const std::byte> bytes, size_t max_bytes);
  static std::string MakeFrame(uint8_t kind, std::string_view payload);

 private:
  enum Kind : uint8_t { kMessage = 1, kHeartbeat = 2, kClosing = 3 };

  ControlConnection(Socket socket, ControlConnectionOptions options);

  // All on the reactor's thread.
  void Start();
  void OnReady(Reactor::Readiness readiness);
  void Read();
  void TakeFrames();
  void Write();
  void Watch();
  void Beat();
  void Queue(std::string frame);
  void SendHeartbeat();
  void NoteConfirmed();
  // In the same words for the same cause, whoever of this process and the kernel sees it first.
  absl::Status LostBy(int error) const;
  // The connection is over; `reason` as this end sees it.
  void End(const absl::Status& reason);
  void CloseSocket();

  void Deliver(std::optional<std::string> message, const absl::Status& closed);
  void Schedule() BRAID_REQUIRES(mutex_);
  void Drain(uint64_t generation);

  const ControlConnectionOptions options_;

  // The reactor's thread only.
  Socket socket_;
  size_t max_bytes_ = kMaxJoinBytes;
  std::string in_;
  size_t in_begin_ = 0;
  const std::string heartbeat_ = MakeFrame(kHeartbeat, {});
  std::deque<std::string> out_;
  size_t out_begin_ = 0;     // bytes of out_.front() that are gone
  bool is_closing_ = false;  // only flushes, and waits for the peer's end
  bool is_writing_ended_ = false;
  bool watches_writable_ = false;
  std::optional<TimerId> beat_timer_;
  std::optional<TimerId> linger_timer_;
  Nanoseconds last_sent_ = 0;
  Nanoseconds last_received_ = 0;
  Nanoseconds last_confirmed_ = 0;  // as far as Beat has looked
  uint64_t confirmed_bytes_ = 0;
  Nanoseconds beat_due_ = 0;  // when beat_timer_ is to fire
  absl::Status end_;

  mutable Mutex mutex_;
  Reactor* owner_ BRAID_GUARDED_BY(mutex_) = nullptr;
  uint64_t generation_ BRAID_GUARDED_BY(mutex_) = 0;  // of handlers
  std::shared_ptr<MessageHandler> on_message_ BRAID_GUARDED_BY(mutex_);
  std::shared_ptr<ClosedHandler> on_closed_ BRAID_GUARDED_BY(mutex_);
  std::deque<std::string> messages_ BRAID_GUARDED_BY(mutex_);  // that no handler has got
  std::optional<absl::Status> closed_ BRAID_GUARDED_BY(mutex_);
  bool is_close_told_ BRAID_GUARDED_BY(mutex_) = false;
  bool is_scheduled_ BRAID_GUARDED_BY(mutex_) = false;
  ControlCounters counters_ BRAID_GUARDED_BY(mutex_);
};

// The connection as a node's channel; destroying it closes the connection.
std::unique_ptr<ControlChannel> MakeTcpControlChannel(std::shared_ptr<ControlConnection> connection,
                                                      Reactor* owner);

}  // namespace braid
