// Messages and notes of rdma links, which need no device.
#include "comm/rdma/rdma_wire.h"

#include <sys/socket.h>

#include <string>
#include <vector>

#include "comm/little_endian.h"
#include "comm/rdma/rdma_route.h"
#include "comm/rdma/rdma_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

class RdmaNotesTest : public ::testing::Test {
 protected:
  RdmaNotesTest() {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    raw_ = Socket(ends[0]);
    notes_.emplace(Socket(ends[1]));
  }
  void Say(std::string_view bytes) const {
    EXPECT_EQ(raw_.Write(std::as_bytes(std::span(bytes))).bytes, bytes.size());
  }
  std::string HearWrong() { return std::string(notes_->Hear().status.message()); }

  Socket raw_;
  std::optional<RdmaNotes> notes_;
};

constexpr RdmaHello kHello{.queue_pair = 17, .first_packet = 5, .mtu_bytes = 1024, .receives = 64};

TEST_F(RdmaNotesTest, AreHeardAsTheyWereSaid) {
  const RdmaNotes peer(std::move(raw_));
  EXPECT_TRUE(peer.SendHello(kHello).ok());
  EXPECT_TRUE(peer.SendReady().ok());
  peer.SendRefused({.token = 1, .offset = 2, .bytes = 3});
  peer.SendReason("enough");
  const RdmaNotes::Heard heard = notes_->Hear();
  EXPECT_EQ(heard.status, absl::OkStatus());
  ASSERT_TRUE(heard.hello.has_value());
  EXPECT_EQ(heard.hello->queue_pair, 17u);
  EXPECT_EQ(heard.hello->receives, 64u);
  EXPECT_TRUE(heard.is_ready);
  EXPECT_EQ(heard.refused, (LandingWrite{.token = 1, .offset = 2, .bytes = 3}));
  EXPECT_EQ(heard.reason, "enough");
}

TEST_F(RdmaNotesTest, ComeInPieces) {
  const auto hello = EncodeRdmaHello(kHello);
  std::string note("\1\0\x28\0", 4);
  note.append(reinterpret_cast<const char*>(hello.data()), hello.size());
  for (size_t i = 0; i < note.size(); ++i) {
    EXPECT_FALSE(notes_->Hear().hello.has_value());
    Say(note.substr(i, 1));
  }
  EXPECT_TRUE(notes_->Hear().hello.has_value());
}

TEST_F(RdmaNotesTest, EndWithTheConnection) {
  raw_.Close();
  EXPECT_EQ(notes_->Hear().status, absl::UnavailableError("connection closed by the peer"));
}

TEST_F(RdmaNotesTest, WrongOnesAreSaid) {
  Say(std::string_view("\2\0\0\0", 4));  // before a hello
  EXPECT_THAT(HearWrong(), HasSubstr("its note has kind 2 and 0 bytes, must be 1 and then 2"));
}

TEST_F(RdmaNotesTest, TooLongOnesAreSaid) {
  Say(std::string_view("\4\0\1\4", 4));
  EXPECT_EQ(HearWrong(), "its note of kind 4 has 1025 bytes, must have at most 1024");
}

TEST(RdmaHelloTest, WrongOnesAreSaid) {
  const auto wrong = [](size_t at, uint32_t value) {
    auto bytes = EncodeRdmaHello(kHello);
    PutLittleEndian(std::span<std::byte>(bytes), at, value);
    return std::string(ReadRdmaHello(bytes).status().message());
  };
  EXPECT_THAT(wrong(0, 7), HasSubstr("its hello begins with 00000007"));
  EXPECT_EQ(wrong(4, 2), "its hello has version 2, must be 1");
  EXPECT_THAT(wrong(8, 1 << 24), HasSubstr("has number 16777216 and first packet 5"));
  EXPECT_THAT(wrong(16, 1500), HasSubstr("an MTU of 1500"));
  EXPECT_THAT(wrong(16, 8192), HasSubstr("an MTU of 8192"));
  EXPECT_EQ(wrong(20, 3), "it can take 3 messages, must be from 4 to 32768");
  EXPECT_EQ(ReadRdmaHello({}).status().message(), "its hello has 0 bytes, must be 40");
}

TEST(RdmaMessageTest, IsReadAsItWasPut) {
  std::vector<std::byte> bytes(kRdmaHeadBytes + 3);
  const RdmaMessage put{.kind = RdmaMessage::Kind::kWrite,
                        .frame_bytes = 3,
                        .credits = 9,
                        .sequence = 4,
                        .write = {.token = 1, .offset = 2, .bytes = 3}};
  PutRdmaHead(put, bytes);
  const auto read = ReadRdmaMessage(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->kind, put.kind);
  EXPECT_EQ(read->credits, 9);
  EXPECT_EQ(read->sequence, 4u);
  EXPECT_EQ(read->write, put.write);
  bytes.pop_back();
  EXPECT_EQ(ReadRdmaMessage(bytes).status().message(), "it has 34 bytes, must be 35");
  EXPECT_THAT(std::string(ReadRdmaMessage(std::span(bytes).first(5)).status().message()),
              HasSubstr("it has 5 bytes, must have at least 32"));
}

TEST(RdmaRouteTest, MtusAreOfTheirBytes) {
  EXPECT_EQ(MtuOfBytes(256), IBV_MTU_256);
  EXPECT_EQ(MtuOfBytes(4096), IBV_MTU_4096);
  EXPECT_EQ(BytesOfMtu(IBV_MTU_1024), 1024u);
}

TEST(RdmaRouteTest, WhatIsNotHereIsSaid) {
  EXPECT_EQ(FindRdmaRoutes({.device = "mlx5_0:0"}, nullptr).status().message(),
            "--rdma_device=mlx5_0:0; a device and perhaps its port was expected, e.g. mlx5_0:1");
  const absl::Status missing = FindRdmaRoutes({.device = "none_9:1", .gid = 3}, nullptr).status();
  EXPECT_THAT(std::string(missing.message()),
              ::testing::AnyOf(HasSubstr("--rdma_device=none_9:1 with --rdma_gid=3 was looked for"),
                               HasSubstr("install the packages libibverbs1")));
}

}  // namespace
}  // namespace braid
