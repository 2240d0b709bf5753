#include "comm/peers/link_check.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// No packet of any network is as large. Within a machine there are no packets, and a page shows
// that what one end writes is what the other reads.
constexpr size_t kBytes = size_t{128} << 10;
constexpr size_t kBytesWithinMachine = size_t{4} << 10;
// For the peer to answer, and then for the pattern, which it sends next. A peer may be busy, with
// as many checks as there are nodes; and what has ended is noticed elsewhere, and sooner.
constexpr Nanoseconds kAnswerLimit = 30 * kSecond;
constexpr Nanoseconds kPatternLimit = 5 * kSecond;

enum Stage : uint8_t { kKey = 1, kAnswer = 2, kPattern = 3 };
constexpr size_t kStageAt = 1;
constexpr size_t kKeyAt = 2;
constexpr size_t kFrameBytes = kKeyAt + kMemoryKeyBytes;

std::array<std::byte, kFrameBytes> MakeFrame(Stage stage, const MemoryKey& key) {
  std::array<std::byte, kFrameBytes> frame{};
  frame[0] = static_cast<std::byte>(Channel::kCheck);
  frame[kStageAt] = static_cast<std::byte>(stage);
  PutMemoryKey(frame, kKeyAt, key);
  return frame;
}

// The pattern is made of words: of a cluster's nodes in one process, each pair checks its link.
constexpr uint64_t WordAt(size_t i) { return (i + 1) * 0x9e3779b97f4a7c15; }

// Of the first byte that is not as it should be; their number: all are.
size_t FirstWrongByte(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size() / sizeof(uint64_t); ++i) {
    const uint64_t expected = WordAt(i);
    const std::byte* const word = bytes.data() + i * sizeof(expected);
    if (std::memcmp(word, &expected, sizeof(expected)) == 0) continue;
    const auto wanted = std::as_bytes(std::span(&expected, 1));
    return i * sizeof(expected) +
           static_cast<size_t>(std::mismatch(wanted.begin(), wanted.end(), word).first -
                               wanted.begin());
  }
  return bytes.size();
}

}  // namespace

LinkCheck::LinkCheck(Link* link, Reactor* reactor, std::function<void(absl::Status)> done)
    : link_(link),
      reactor_(reactor),
      done_(std::move(done)),
      region_(link->is_within_machine() ? kBytesWithinMachine : kBytes) {}

LinkCheck::~LinkCheck() {
  if (timer_.has_value()) reactor_->CancelTimer(*timer_);
}

void LinkCheck::Start() {
  const absl::StatusOr<MemoryKey> key = link_->Expose(region_);
  if (!key.ok()) {
    reactor_->RunAfter(0, [this, status = key.status()] { Finish(status); });
    return;
  }
  key_ = *key;
  FailAfter(kAnswerLimit,
            absl::StrFormat("its check was not answered within %d s; one of the two nodes, or its "
                            "machine, is overloaded or has stopped",
                            kAnswerLimit / kSecond));
  link_->Send(MakeFrame(kKey, *key_));
}

void LinkCheck::FailAfter(Nanoseconds limit, const std::string& why) {
  if (timer_.has_value()) reactor_->CancelTimer(*timer_);
  timer_ = reactor_->RunAfter(limit, [this, why] {
    timer_.reset();
    Finish(absl::UnavailableError(absl::StrFormat("%s: %s", link_->Describe(), why)));
  });
}

absl::Status LinkCheck::OnFrame(std::span<const std::byte> frame) {
  const auto stage = frame.size() == kFrameBytes ? static_cast<uint8_t>(frame[kStageAt]) : 0;
  if (stage == kKey) {
    const MemoryKey key = GetMemoryKey(frame, kKeyAt);
    if (key.bytes != region_.size()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "a region of %d bytes to check the link with; it has %d", key.bytes, region_.size()));
    }
    // Shared with the Write, which may end after this object.
    const auto pattern = std::make_shared<std::vector<std::byte>>(region_.size());
    for (size_t i = 0; i < region_.size() / sizeof(uint64_t); ++i) {
      const uint64_t word = WordAt(i);
      std::memcpy(pattern->data() + i * sizeof(word), &word, sizeof(word));
    }
    link_->Send(MakeFrame(kAnswer, {}));
    [[maybe_unused]] const bool is_written =
        link_->Write(*pattern, key, 0, MakeFrame(kPattern, {}), [pattern](const absl::Status&) {});
    return absl::OkStatus();
  }
  if (stage == kAnswer && !std::exchange(is_answered_, true)) {
    FailAfter(kPatternLimit,
              absl::StrFormat("%d bytes did not come through within %d s%s", region_.size(),
                              kPatternLimit / kSecond,
                              link_->is_within_machine()
                                  ? ""
                                  : "; what is small does, so look for an MTU that the network "
                                    "between does not carry"));
    return absl::OkStatus();
  }
  if (stage != kPattern || !key_.has_value()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a frame of %d bytes that is none of a link's check: stage %d", frame.size(), stage));
  }
  if (const size_t wrong = FirstWrongByte(region_); wrong < region_.size()) {
    const uint64_t word = WordAt(wrong / sizeof(word));
    const std::byte wanted = std::as_bytes(std::span(&word, 1))[wrong % sizeof(word)];
    return absl::DataLossError(absl::StrFormat("byte %d of the link's check came as %02x, not %02x",
                                               wrong, static_cast<int>(region_[wrong]),
                                               static_cast<int>(wanted)));
  }
  Finish(absl::OkStatus());
  return absl::OkStatus();
}

void LinkCheck::Finish(const absl::Status& status) {
  if (timer_.has_value()) reactor_->CancelTimer(*std::exchange(timer_, std::nullopt));
  if (key_.has_value()) link_->Withdraw(*std::exchange(key_, std::nullopt));
  if (const auto done = std::exchange(done_, nullptr)) done(status);
}

}  // namespace braid
