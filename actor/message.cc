#include "actor/message.h"

#include "absl/strings/str_format.h"

namespace braid {
namespace {

template <typename T>
uint8_t* Put(uint8_t* at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) *at++ = static_cast<uint8_t>(value >> (8 * i));
  return at;
}

template <typename T>
const uint8_t* Take(const uint8_t* at, T& value) {
  uint64_t bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i) bits |= uint64_t{*at++} << (8 * i);
  value = static_cast<T>(bits);
  return at;
}

uint8_t* Put(uint8_t* at, const ActorId& id) {
  return Put(Put(Put(at, id.node), id.thread), id.task);
}

const uint8_t* Take(const uint8_t* at, ActorId& id) {
  return Take(Take(Take(at, id.node), id.thread), id.task);
}

}  // namespace

MessageBytes Encode(const Message& message) {
  MessageBytes bytes;
  uint8_t* at = Put(bytes.data(), message.src);
  at = Put(at, message.dst);
  at = Put(at, message.reg);
  at = Put(at, message.slot);
  at = Put(at, static_cast<uint8_t>(message.kind));
  Put(at, static_cast<uint64_t>(message.piece));
  return bytes;
}

absl::StatusOr<Message> Decode(std::span<const uint8_t> bytes) {
  if (bytes.size() != kMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("an actor message has %d bytes, this has %d", kMessageBytes, bytes.size()));
  }
  Message message;
  uint8_t kind;
  const uint8_t* at = Take(bytes.data(), message.src);
  at = Take(at, message.dst);
  at = Take(at, message.reg);
  at = Take(at, message.slot);
  at = Take(at, kind);
  Take(at, message.piece);
  if (kind > static_cast<uint8_t>(MessageKind::kDone)) {
    return absl::InvalidArgumentError(absl::StrFormat("actor message %s -> %s has unknown kind %d",
                                                      ToString(message.src), ToString(message.dst),
                                                      kind));
  }
  message.kind = static_cast<MessageKind>(kind);
  return message;
}

std::string ToString(const ActorId& id) {
  if (id.task == kWholeThread) return absl::StrFormat("%d/%d", id.node, id.thread);
  return absl::StrFormat("%d/%d/%d", id.node, id.thread, id.task);
}

std::string ToString(MessageKind kind) {
  switch (kind) {
    case MessageKind::kReady:
      return "kReady";
    case MessageKind::kAck:
      return "kAck";
    case MessageKind::kRun:
      return "kRun";
    case MessageKind::kDone:
      return "kDone";
  }
  return absl::StrFormat("kind %d", static_cast<int>(kind));
}

std::string ToString(const Message& message) {
  return absl::StrFormat("%s %s -> %s register %d slot %d piece %d", ToString(message.kind),
                         ToString(message.src), ToString(message.dst), message.reg, message.slot,
                         message.piece);
}

}  // namespace braid
