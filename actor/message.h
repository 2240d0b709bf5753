// What actors tell each other: a value of fixed width, without pointers. Inside a process it is
// counted straight into the receiver where the thread is the same; between nodes it is a frame.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace braid {

// An actor's address; it says where the actor lives.
struct ActorId {
  uint16_t node = 0;
  uint16_t thread = 0;
  uint32_t task = 0;

  friend bool operator==(const ActorId&, const ActorId&) = default;
  friend auto operator<=>(const ActorId&, const ActorId&) = default;
};

// The address of a whole ActorThread, for kRun and kDone.
constexpr uint32_t kWholeThread = UINT32_MAX;

using RegisterId = uint32_t;

enum class MessageKind : uint8_t {
  kReady,  // producer to consumer: `slot` holds `piece`
  kAck,    // consumer to producer: has done with `piece` in `slot`
  kRun,    // to a whole thread: `piece` more steps for each of its actors
  kDone,   // to a whole thread: the session closes, no act starts any more
};

// `piece` counts the fillings of a register from 0 over the session, initial tokens first; so the
// slot is always piece mod slots.
struct Message {
  ActorId src = {};
  ActorId dst = {};
  RegisterId reg = 0;
  uint32_t slot = 0;
  MessageKind kind = MessageKind::kReady;
  int64_t piece = 0;

  friend bool operator==(const Message&, const Message&) = default;
};

// On the wire: the fields in this order, little-endian, without padding.
constexpr size_t kMessageBytes = 8 + 8 + 4 + 4 + 1 + 8;
using MessageBytes = std::array<uint8_t, kMessageBytes>;

MessageBytes Encode(const Message& message);
// INVALID_ARGUMENT for another size or an unknown kind; addresses are checked where they are known.
absl::StatusOr<Message> Decode(std::span<const uint8_t> bytes);

// "0/1/7": node, thread, task.
std::string ToString(const ActorId& id);
std::string ToString(MessageKind kind);
// "kReady 0/1/7 -> 0/1/9 register 3 slot 0 piece 4"
std::string ToString(const Message& message);

}  // namespace braid

template <>
struct std::hash<braid::ActorId> {
  size_t operator()(const braid::ActorId& id) const noexcept {
    const uint64_t packed = uint64_t{id.node} << 48 | uint64_t{id.thread} << 32 | id.task;
    return static_cast<size_t>((packed ^ (packed >> 29)) * 0x9e3779b97f4a7c15ull);
  }
};
