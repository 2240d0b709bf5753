// The first bytes of a control connection: both ends show that they speak the same protocol and
// hold the same secret, before anything else is read.
//
//   dialer   -> listener   greeting: magic, version, whether it has a secret, 32 random bytes
//   listener -> dialer     greeting
//   dialer   -> listener   proof: HMAC-SHA256(secret, "dialer", both random numbers)
//   listener -> dialer     verdict, proof: HMAC-SHA256(secret, "listener", both random numbers)
//
// All of fixed size. Without a secret the key is empty and everybody passes: then the control port
// is bound to loopback only, unless the user insists. Nothing is encrypted: a network that others
// can write to needs more than this (IPsec, WireGuard).
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "comm/network/socket.h"
#include "runtime/base/reactor.h"

namespace braid {

constexpr uint32_t kControlWireVersion = 1;
// How long what a side says last may take to leave.
constexpr Nanoseconds kFlushLimit = 3 * kSecond;

enum class HandshakeSide : uint8_t { kDialer, kListener };

struct HandshakeOptions {
  Reactor* reactor = nullptr;  // called on its thread; calls back there
  HandshakeSide side = HandshakeSide::kDialer;
  std::string secret;  // "": none
  std::string peer;    // its address, for messages
  Nanoseconds timeout = 5 * kSecond;
};

// `socket` is connected. `done` comes exactly once, never inside this call: with the socket, on
// which frames follow, or with why not. UNAUTHENTICATED: the secrets differ or one has none;
// FAILED_PRECONDITION: another protocol version; INVALID_ARGUMENT: not Braid; UNAVAILABLE: gone.
void StartHandshake(Socket socket, HandshakeOptions options,
                    std::function<void(absl::StatusOr<Socket>)> done);

}  // namespace braid
