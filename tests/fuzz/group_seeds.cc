#include "tests/fuzz/group_seeds.h"

#include <cstddef>
#include <span>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/collective/collective_frame.h"
#include "runtime/base/collective_kind.h"
#include "runtime/base/reactor.h"
#include "runtime/control.pb.h"
#include "runtime/group/group_call.h"
#include "runtime/group/group_frame.h"
#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

using control::ControlMessage;
using dist::CallKind;

// As groups_target.cc reads it: what is made right, how long it is, and the frame.
template <typename Encoded>
std::string FrameOf(char right, const Encoded& encoded) {
  const std::span<const std::byte> bytes = encoded.bytes();
  return std::string{right, static_cast<char>(bytes.size() - 1)} +
         std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void WriteFrames(const WriteTargetSeed& write) {
  using Type = CollectiveFrame::Type;
  constexpr char kAll = 7, kRanksAndSignature = 3;
  constexpr int64_t kSlotBytes = CollectiveMethod{}.chunk_bytes;
  const auto collective = [](char right, CollectiveFrame frame) {
    frame.channel = Channel::kGroup;
    frame.collective = 1;
    return FrameOf(right, EncodedCollectiveFrame(frame));
  };
  // Rank 1 can be met in memory, or not.
  const std::string unseen = collective(kRanksAndSignature, {.type = Type::kStand}) +
                             collective(kRanksAndSignature, {.type = Type::kSeen});
  std::string frames =
      unseen +
      collective(kRanksAndSignature,
                 {.type = Type::kKey,
                  .slot = kRingSlots,
                  .bytes = kSlotBytes,
                  .key = {.token = 1, .bytes = static_cast<uint64_t>(kRingSlots) * kSlotBytes}});
  for (const int64_t bytes : {1, 24, 48}) {
    frames += collective(kAll, {.type = Type::kChunk, .bytes = bytes});
    frames += collective(kAll, {.type = Type::kAck});
  }
  for (int kind = 0; kind <= static_cast<int>(CallKind::kBarrier); ++kind) {
    write("groups", std::string(NameOf(static_cast<CallKind>(kind))),
          std::string(1, static_cast<char>(kind)) + frames);
  }
  std::string others(1, '\0');
  for (const Type type : {Type::kOffer, Type::kLent, Type::kStand, Type::kSeen, Type::kRing}) {
    others += collective(kAll, {.type = type, .slot = 1, .bytes = 8});
    write("groups", absl::StrFormat("type_%d", static_cast<int>(type)), others);
    others.resize(1);
  }
  using Transfer = dist::TransferFrame;
  write("groups", "offer",
        others + FrameOf(kAll, dist::EncodedTransferFrame({.type = Transfer::Type::kOffer})));
  write("groups", "part",
        others + FrameOf(kAll,
                         dist::EncodedTransferFrame({.type = Transfer::Type::kPart, .bytes = 48})));
  write("groups", "window",
        others + FrameOf(kAll, dist::EncodedWindowFrame(
                                   {.type = dist::WindowFrame::Type::kGet, .window = 1})));
}

std::string MessageOf(const std::function<void(ControlMessage&)>& fill) {
  ControlMessage message;
  fill(message);
  return PieceOf(message.SerializeAsString());
}

void WriteMessages(const WriteTargetSeed& write) {
  const std::string call = MessageOf([](ControlMessage& m) {
    control::RollCall& roll = *m.mutable_roll_call();
    roll.set_group(1);
    roll.set_group_name("the world");
    roll.set_waited(2 * kSecond);
    for (const uint32_t node : {0, 1}) roll.add_members(node);
  });
  const auto answer = [](const std::string& text, bool sends) {
    return MessageOf([&](ControlMessage& m) {
      control::RollAnswer& roll = *m.mutable_roll_answer();
      roll.set_group(1);
      roll.mutable_call()->set_text(text);
      roll.set_blocked_in(text);
      roll.set_calls(1);
      if (!sends) return;
      control::GroupTransfer& send = *roll.add_transfers();
      send.set_peer(1);
      send.set_is_send(true);
      send.set_text("send");
    });
  };
  // Bit i of the first byte: of which node message i is.
  const std::string barrier = answer("barrier (a.cc:1)", /*sends=*/true);
  const std::string sum = answer("all_reduce of 4 f32 (a.cc:2)", /*sends=*/false);
  // What may be a circle is looked at twice.
  write("master", "waits", "\x14" + call + barrier + barrier + barrier + barrier);
  write("master", "differs", "\x14" + call + barrier + sum + barrier + sum);
  using Request = control::StoreRequest;
  const auto ask = [](Request::Kind kind, const std::string& value) {
    return MessageOf([&](ControlMessage& m) {
      Request& request = *m.mutable_store_request();
      request.set_number(1);
      request.set_kind(kind);
      request.set_timeout(kSecond);
      request.set_value(value);
      if (kind != Request::NUM_KEYS) request.add_keys("key");
    });
  };
  write("master", "store",
        "\6" + ask(Request::GET, "") + ask(Request::SET, "value") +
            ask(Request::COMPARE_SET, "other") + ask(Request::NUM_KEYS, ""));
  write("master", "store_waits",
        "\1" + ask(Request::WAIT, "") + ask(Request::ADD, "") + ask(Request::DELETE, ""));
  const std::string done = MessageOf([](ControlMessage& m) { m.mutable_run_done()->set_job(1); });
  const std::string left = MessageOf([](ControlMessage& m) { m.mutable_left(); });
  const std::string closed = MessageOf([](ControlMessage& m) { m.mutable_closed(); });
  write("master", "well", "\x2a" + done + done + left + left + closed + closed);
  write("master", "stalled", "\2" + MessageOf([](ControlMessage& m) {
                               m.mutable_stalled()->set_silence(kSecond);
                             }) + MessageOf([](ControlMessage& m) { m.mutable_status(); }));
  write("master", "failure", "\1" + MessageOf([](ControlMessage& m) {
                               m.mutable_failure()->set_code(13);
                               m.mutable_failure()->set_is_link(true);
                             }));
}

}  // namespace

void WriteGroupSeeds(const WriteTargetSeed& write) {
  WriteFrames(write);
  WriteMessages(write);
}

}  // namespace braid::fuzz
