#include "actor/message.h"

#include <unordered_set>

#include "gtest/gtest.h"

namespace braid {
namespace {

const Message kMessage{.src = {.node = 0x0102, .thread = 0x0304, .task = 0x05060708},
                       .dst = {.node = 0x1112, .thread = 0x1314, .task = 0x15161718},
                       .reg = 0x21222324,
                       .slot = 0x31323334,
                       .kind = MessageKind::kAck,
                       .piece = 0x4142434445464748};

TEST(MessageTest, TheWireIsLittleEndianWithoutPadding) {
  const MessageBytes expected = {0x02, 0x01, 0x04, 0x03, 0x08, 0x07, 0x06, 0x05,  // src
                                 0x12, 0x11, 0x14, 0x13, 0x18, 0x17, 0x16, 0x15,  // dst
                                 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31,  // reg, slot
                                 0x01,                                            // kind
                                 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41};
  EXPECT_EQ(Encode(kMessage), expected);
  EXPECT_LE(kMessageBytes, 64u);
}

TEST(MessageTest, DecodeReversesEncode) {
  for (const int64_t piece : {int64_t{0}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    for (const auto kind :
         {MessageKind::kReady, MessageKind::kAck, MessageKind::kRun, MessageKind::kDone}) {
      Message message = kMessage;
      message.piece = piece;
      message.kind = kind;
      const auto decoded = Decode(Encode(message));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_EQ(*decoded, message);
    }
  }
}

TEST(MessageTest, DamagedBytesAreAnError) {
  const MessageBytes bytes = Encode(kMessage);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Decode(std::span(bytes).first(size)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  MessageBytes damaged = bytes;
  damaged[24] = 4;
  EXPECT_EQ(Decode(damaged).status().message(),
            "actor message 258/772/84281096 -> 4370/4884/353769240 has unknown kind 4");
}

TEST(MessageTest, ActorIdsHashAndCompare) {
  std::unordered_set<ActorId> ids;
  std::unordered_set<size_t> hashes;
  for (uint16_t node = 0; node < 10; ++node) {
    for (uint16_t thread = 0; thread < 10; ++thread) {
      for (uint32_t task = 0; task < 10; ++task) {
        ids.insert({node, thread, task});
        hashes.insert(std::hash<ActorId>()({node, thread, task}));
      }
    }
  }
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(hashes.size(), 1000u);
}

}  // namespace
}  // namespace braid
