// What a peer may send about a window, and what is wrong: never believed, never out of the memory.
#include "runtime/group/window_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/transport.h"
#include "runtime/base/reactor.h"
#include "runtime/group/group_frame.h"

namespace braid::dist {
namespace {

using Type = WindowFrame::Type;

// Keeps what is sent; what is exposed is counted.
class RecordingLink final : public Link {
 public:
  uint16_t peer() const override { return 1; }
  std::string Describe() const override { return "a link that records"; }
  absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory) override {
    ++exposed;
    return MemoryKey{.token = ++last_token_, .bytes = memory.size()};
  }
  void Withdraw(const MemoryKey&) override { --exposed; }
  void Send(std::span<const std::byte> frame) override {
    sent.push_back(std::get<WindowFrame>(*DecodeGroupFrame(frame)));
  }
  bool Write(std::span<const std::byte>, const MemoryKey&, uint64_t,
             std::span<const std::byte> frame, DoneCallback) override {
    Send(frame);
    return true;
  }
  void SetHandler(FrameHandler) override {}
  void OnClosed(std::function<void(absl::Status)>) override {}
  void Close(absl::Status) override {}
  LinkCounters counters() const override { return {}; }

  std::vector<WindowFrame> sent;
  int exposed = 0;

 private:
  uint64_t last_token_ = 0;
};

// Rank 0's end of a window of 8 i64; rank 1 is the test.
class WindowEndTest : public ::testing::Test {
 protected:
  WindowEndTest()
      : environment_(MakeSimulatedEnvironment(1)),
        reactor_(environment_->StartReactor("control")),
        memory_(8),
        options_({.identity = {.id = 9, .name = "the world", .nodes = {0, 1}},
                  .reactor = reactor_.get(),
                  .with_link = [](int, const auto& then) { then(); },
                  .link_to = [this](int) { return &link_; },
                  .fail = [](const absl::Status&) {}}),
        handle_(std::make_shared<WindowHandle>(WindowHandle{
            .memory = reinterpret_cast<std::byte*>(memory_.data()), .bytes = 64, .number = 3})),
        end_(options_, handle_) {}

  absl::Status Take(WindowFrame frame) {
    frame.group = 9;
    frame.window = 3;
    frame.from = 1;
    return end_.HandleFrame(frame);
  }
  void ExpectWrong(const WindowFrame& frame) {
    const absl::Status status = Take(frame);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  void Start(CallKind kind, int64_t count, bool& is_done) {
    GroupCall call;
    call.kind = kind;
    call.type = ElementType::kI64;
    call.element_size = 8;
    call.counts = {count};
    call.peer = 1;
    call.input = data_.data();
    call.output = data_.data();
    call.window = handle_;
    end_.Start(call, [&is_done](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      is_done = true;
    });
  }

  RecordingLink link_;
  const std::unique_ptr<Environment> environment_;
  const std::unique_ptr<Reactor> reactor_;
  std::vector<int64_t> memory_, data_ = std::vector<int64_t>(8);
  const WindowOptions options_;
  const std::shared_ptr<WindowHandle> handle_;
  WindowEnd end_;
};

TEST_F(WindowEndTest, APutIsAnsweredOnceItIsWhole) {
  EXPECT_TRUE(Take({.type = Type::kAsk}).ok());
  ASSERT_EQ(link_.sent.size(), 1u);
  EXPECT_EQ(link_.sent[0].type, Type::kKey);
  EXPECT_EQ(link_.sent[0].key.bytes, 64u);
  EXPECT_TRUE(Take({.type = Type::kPut, .number = 0, .left = 8}).ok());
  EXPECT_EQ(link_.sent.size(), 1u);
  EXPECT_TRUE(Take({.type = Type::kPut, .number = 0, .signal = 4}).ok());
  ASSERT_EQ(link_.sent.size(), 2u);
  EXPECT_EQ(link_.sent[1].type, Type::kPutDone);
  EXPECT_EQ(link_.exposed, 1);
}

TEST_F(WindowEndTest, WrongFramesAreErrors) {
  ExpectWrong({.type = Type::kKey});                                       // not asked for
  ExpectWrong({.type = Type::kPut, .number = 1});                          // not the next one
  ExpectWrong({.type = Type::kPut, .number = -1});                         //
  ExpectWrong({.type = Type::kPut, .number = 0, .left = -8});              //
  ExpectWrong({.type = Type::kPut, .number = 0, .signal = 1024});          // no signal
  ExpectWrong({.type = Type::kPut, .number = 0, .left = 1, .signal = 0});  // too early
  ExpectWrong({.type = Type::kPutDone, .number = 0});                      // of no put
  ExpectWrong({.type = Type::kGot, .number = 0});                          // of no get
  ExpectWrong({.type = Type::kGoneSeen});                                  // nothing is gone
  // Outside of the memory, in every way.
  const auto get = [](int64_t offset, uint64_t bytes) {
    return WindowFrame{.type = Type::kGet, .number = 0, .offset = offset, .key = {1, 0, bytes}};
  };
  for (const auto& [offset, bytes] :
       std::vector<std::pair<int64_t, uint64_t>>{{0, 65},
                                                 {64, 1},
                                                 {57, 8},
                                                 {-1, 8},
                                                 {INT64_MIN, 8},
                                                 {INT64_MAX, 8},
                                                 {0, UINT64_MAX},
                                                 {0, uint64_t{1} << 63},
                                                 {0, 0}}) {
    ExpectWrong(get(offset, bytes));
  }
  EXPECT_TRUE(link_.sent.empty());
  EXPECT_TRUE(Take(get(0, 64)).ok());
  ExpectWrong(get(0, 64));  // not the next one
  EXPECT_EQ(link_.sent.size(), 1u);
  EXPECT_TRUE(Take({.type = Type::kAsk}).ok());
  ExpectWrong({.type = Type::kAsk});  // again
  EXPECT_TRUE(Take({.type = Type::kGone}).ok());
  ExpectWrong({.type = Type::kGone});
}

TEST_F(WindowEndTest, AnswersAreOfWhatWasBegun) {
  bool is_put = false, is_got = false;
  Start(CallKind::kPut, 8, is_put);
  ASSERT_EQ(link_.sent.size(), 1u);
  EXPECT_EQ(link_.sent[0].type, Type::kAsk);
  ExpectWrong({.type = Type::kPutDone, .number = 0});  // of which nothing was written
  EXPECT_TRUE(Take({.type = Type::kKey, .key = {5, 0, 64}}).ok());
  ExpectWrong({.type = Type::kKey, .key = {5, 0, 64}});
  ASSERT_EQ(link_.sent.size(), 2u);
  EXPECT_EQ(link_.sent[1].type, Type::kPut);
  EXPECT_FALSE(is_put);
  EXPECT_TRUE(Take({.type = Type::kPutDone, .number = 0}).ok());
  EXPECT_TRUE(is_put);
  ExpectWrong({.type = Type::kPutDone, .number = 0});

  Start(CallKind::kGet, 4, is_got);
  EXPECT_EQ(link_.exposed, 1);
  ExpectWrong({.type = Type::kGot, .number = 0, .left = 32});  // no byte of it
  EXPECT_TRUE(Take({.type = Type::kGot, .number = 0, .left = 16}).ok());
  ExpectWrong({.type = Type::kGot, .number = 0, .left = 24});
  ExpectWrong({.type = Type::kGot, .number = 0, .left = -1});
  EXPECT_FALSE(is_got);
  EXPECT_TRUE(Take({.type = Type::kGot, .number = 0}).ok());
  EXPECT_TRUE(is_got);
  EXPECT_EQ(link_.exposed, 0);
}

TEST_F(WindowEndTest, AWindowIsDroppedWhenItsPeersHaveSeenIt) {
  EXPECT_TRUE(Take({.type = Type::kAsk}).ok());
  bool is_dropped = false;
  end_.Drop([&] { is_dropped = true; });
  EXPECT_EQ(link_.sent.back().type, Type::kGone);
  EXPECT_FALSE(is_dropped);
  // What is on its way comes still, and its sender hears so.
  EXPECT_TRUE(Take({.type = Type::kPut, .number = 0}).ok());
  EXPECT_EQ(link_.sent.back().type, Type::kPutDone);
  EXPECT_EQ(link_.exposed, 1);
  EXPECT_TRUE(Take({.type = Type::kGet, .number = 0, .key = {1, 0, 8}}).ok());
  EXPECT_EQ(link_.sent.size(), 3u);
  EXPECT_TRUE(Take({.type = Type::kGoneSeen}).ok());
  EXPECT_TRUE(is_dropped);
  EXPECT_EQ(link_.exposed, 0);
  ExpectWrong({.type = Type::kGoneSeen});
}

TEST_F(WindowEndTest, ItsEndWithdrawsWhatIsExposed) {
  EXPECT_TRUE(Take({.type = Type::kAsk}).ok());
  EXPECT_EQ(link_.exposed, 1);
  int closed = 0;
  end_.Close(absl::CancelledError("over"), [&] { ++closed; });
  EXPECT_EQ(closed, 1);
  EXPECT_EQ(link_.exposed, 0);
  end_.Drop([&] { ++closed; });
  EXPECT_EQ(closed, 2);
}

TEST(WindowFrameTest, GoesOverTheWireAndWrongOnesAreErrors) {
  for (const WindowFrame& frame : {
           WindowFrame{.type = Type::kAsk, .group = 7, .window = 8, .from = 1, .to = 2},
           WindowFrame{.type = Type::kKey, .group = 7, .window = 8, .from = 1, .key = {5, 6, 7}},
           WindowFrame{.type = Type::kPut, .group = 7, .number = 4, .left = 5, .signal = 6},
           WindowFrame{.type = Type::kPutDone, .group = 7, .number = 4},
           WindowFrame{.type = Type::kGet, .group = 7, .number = 4, .offset = 9, .key = {5, 6, 7}},
           WindowFrame{.type = Type::kGot, .group = 7, .number = 4, .left = 5},
           WindowFrame{.type = Type::kGone, .group = 7, .to = 3},
           WindowFrame{.type = Type::kGoneSeen, .group = 7, .to = 3},
       }) {
    const EncodedWindowFrame encoded(frame);
    const auto decoded = DecodeGroupFrame(encoded.bytes());
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(std::get<WindowFrame>(*decoded), frame);
    EXPECT_EQ(GroupOf(*decoded), 7u);
    EXPECT_FALSE(MayBeEarly(*decoded));
    for (size_t bytes = 0; bytes < encoded.bytes().size(); ++bytes) {
      EXPECT_FALSE(DecodeGroupFrame(encoded.bytes().first(bytes)).ok()) << bytes;
    }
  }
}

}  // namespace
}  // namespace braid::dist
