// How bytes reach another node: a Transport makes Links, a Link is one joined peer. A Link carries
// opaque frames and writes payload into memory that the peer exposed to it; it knows neither actors
// nor collectives, which share it by the frame's first byte (Channel).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/network/network.h"
#include "runtime/base/reactor.h"

namespace braid {

constexpr size_t kMaxFrameBytes = 64;

// The first byte of every frame says whose it is.
enum class Channel : uint8_t {
  kActor = 1,
  kCollective = 2,
  kLandingKey = 3,
  kPayload = 4,
  kCheck = 5,
  kPlan = 6,
  kGroup = 7,
};

// Names a landing region to the one peer that may write there. A value that travels to the peer (24
// bytes); what the fields mean is the transport's business (token: rkey or region number).
struct MemoryKey {
  uint64_t token = 0;
  uint64_t base = 0;
  uint64_t bytes = 0;

  bool operator==(const MemoryKey&) const = default;
};
constexpr size_t kMemoryKeyBytes = 24;

// Little-endian, at `at`; the span must have room for kMemoryKeyBytes there.
void PutMemoryKey(std::span<std::byte> bytes, size_t at, const MemoryKey& key);
MemoryKey GetMemoryKey(std::span<const std::byte> bytes, size_t at);

// What crossed a Link since it was made. `bytes` are payload bytes of Write, without frames.
struct LinkCounters {
  uint64_t frames_sent = 0;
  uint64_t bytes_sent = 0;
  uint64_t frames_received = 0;
  uint64_t bytes_received = 0;
};

// One joined peer. Every call returns at once and may come from any thread. Frames (those of Send
// and those of Write) reach the peer's handler in the order of the calls of one thread.
//
// A frame or write that breaks the rules closes the Link at both ends, with a status that says what
// was wrong and both values; it never touches memory outside the exposed region. Destroy a Link on
// its reactor's thread; that closes it, without a call of its own closed callback.
class Link {
 public:
  using FrameHandler = std::function<void(std::span<const std::byte> frame)>;
  using DoneCallback = std::function<void(absl::Status)>;
  using LentReader = absl::FunctionRef<void(std::span<const std::byte>)>;

  virtual ~Link() = default;

  virtual uint16_t peer() const = 0;         // the node at the other end
  virtual std::string Describe() const = 0;  // "node 0 <-> node 1: tcp eth0"

  // Lets this peer, and no other, write to `memory`, which stays valid until Withdraw or until the
  // closed callback was called.
  virtual absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory) = 0;
  // When it returns, nothing writes to the region any more. What the peer, who may not know of it
  // yet, writes there later goes nowhere, and its frame comes; over rdma, where it is the device
  // that refuses, it closes the Link.
  virtual void Withdraw(const MemoryKey& key) = 0;

  // `frame`: 1 to kMaxFrameBytes bytes, copied. Dropped on a closed Link.
  virtual void Send(std::span<const std::byte> frame) = 0;
  // As Send, for what the peer need not hear at once: it may go with what is said next, or when the
  // Link's reactor has nothing to do, within milliseconds; a Close before that drops it.
  virtual void SendLater(std::span<const std::byte> frame) { Send(frame); }

  // Puts `payload` at `offset` of the peer's region, then gives `frame` to the peer's handler.
  // True: `payload` may be reused already (it need not have arrived), and `done` is not called.
  // Else `done` is called exactly once, from any thread but never inside this call: OK when
  // `payload` may be reused, else why the Link closed. `payload` stays valid and unchanged until
  // then.
  [[nodiscard]] virtual bool Write(std::span<const std::byte> payload, const MemoryKey& key,
                                   uint64_t offset, std::span<const std::byte> frame,
                                   DoneCallback done) = 0;

  // Memory that the peer reads where it lies, in place of a Write: only between processes that map
  // each other's memory, or in one. Until Withdraw, with nothing but the key's token; it stays and
  // does not change until then, or until the closed callback was called. None: the peer cannot.
  virtual std::optional<MemoryKey> Lend(std::span<const std::byte> /*memory*/) {
    return std::nullopt;
  }
  // The same, but the peer also writes there, by WriteLent.
  virtual std::optional<MemoryKey> LendForWriting(std::span<std::byte> /*memory*/) {
    return std::nullopt;
  }
  // Calls `read` with `bytes` that the peer has lent; it takes them back only after that. False: it
  // has done so before, or has never lent as many, or the link is closed.
  virtual bool ReadLent(uint64_t /*token*/, uint64_t /*bytes*/, LentReader /*read*/) {
    return false;
  }
  // Puts `payload` at `offset` of what the peer has lent for writing; no frame tells it. It is seen
  // before whatever this thread says later. False: the peer has taken it back before the end, or
  // has never lent as much so, or the link is closed.
  virtual bool WriteLent(uint64_t /*token*/, uint64_t /*offset*/,
                         std::span<const std::byte> /*payload*/) {
    return false;
  }
  // Whether this node can read what the peer lends, since the peer's first frame at the latest.
  virtual bool can_read_lent() const { return false; }

  // Whether certainly no network is between its ends, whose packets may be too large for a part of
  // it.
  virtual bool is_within_machine() const { return false; }

  // Called on the Link's reactor thread for every frame; frames wait for it to be set. Set once.
  virtual void SetHandler(FrameHandler handler) = 0;
  // Called once on the Link's reactor thread when the Link closed, for whatever reason, its own
  // Close included. After it the handler is not called any more, nor the done callback of a Write
  // that came before the closing. Set once; may be set after the fact.
  virtual void OnClosed(std::function<void(absl::Status)> closed) = 0;

  // What has not been delivered is dropped. The first reason counts; the peer gets it, too, where
  // the transport can tell.
  virtual void Close(absl::Status reason) = 0;

  virtual LinkCounters counters() const = 0;
};

struct LinkRequest {
  uint16_t peer = 0;
  std::string peer_address;    // what the peer's Open returned, brought by the control plane
  Reactor* reactor = nullptr;  // the new Link's; outlives it
  Nanoseconds timeout = 30 * kSecond;
};

// One way to reach peers, as seen by one node. Both nodes of a pair call Connect for each other;
// who dials is the transport's business.
class Transport {
 public:
  using ConnectCallback = std::function<void(absl::StatusOr<std::unique_ptr<Link>>)>;

  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;

  // Once, before anything else. Returns this node's address for its peers, or why the transport
  // does not work here.
  virtual absl::StatusOr<std::string> Open() = 0;

  // Whether links of this kind lend, if both nodes have memory that can be lent.
  virtual bool lends() const { return false; }

  // OK if a peer with this address can be reached, as far as that shows without trying; else why it
  // cannot be.
  virtual absl::Status Reaches(std::string_view peer_address) const = 0;

  // Returns at once; `done` comes exactly once, on the request's reactor thread.
  virtual void Connect(LinkRequest request, ConnectCallback done) = 0;
};

class LoopbackNetwork;
class SharedHeap;

// Which device of this machine rdma uses, and by which GID.
struct RdmaChoice {
  std::string device;  // "mlx5_0:1", or without the port; "": by the route to each peer
  int gid = -1;        // a number in the port's table; -1: by the route
};

struct TransportOptions {
  uint16_t node = 0;
  // The nodes that live in this process meet here; null if this node has the process to itself.
  LoopbackNetwork* loopback = nullptr;
  // Where connections of peers are accepted; outlives the transports. Null: those that need one do
  // not work here.
  Reactor* reactor = nullptr;
  // The one interface to listen on and to dial from ("eth0"), or
  std::string interface;
  // the local address to listen on; both empty: all.
  std::string host;
  RdmaChoice rdma;
  // The names of the transports that may be used, "rdma,tcp"; empty: those that need not be asked
  // for.
  std::string only;
  Network* network = SystemNetwork();  // outlives the transports
  // Memory of this node that its peers may map, as whoever uses the links lends it for what they
  // write; outlives the links. Null: there is none, and all that is written to this node is copied
  // once more.
  SharedHeap* shared_heap = nullptr;
};

// INVALID_ARGUMENT, naming `what` gave the names, as of TransportOptions::only, if no transport
// between processes has one of them.
absl::Status CheckTransportNames(std::string_view what, const std::string& names);
// Whether a list with commas between has this name.
bool NamesTransport(const std::string& names, std::string_view name);
// Whether a node with these options may have a transport that uses its shared_heap.
bool UsesSharedHeap(const TransportOptions& options);
// The transports of one node, best first: the one that it may use, or all that need not be asked
// for. Those that do not work here say so in Open().
std::vector<std::unique_ptr<Transport>> MakeTransports(const TransportOptions& options);

}  // namespace braid
