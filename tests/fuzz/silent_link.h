// A link to a peer that takes everything and never says a word.
#pragma once

#include <string>
#include <utility>

#include "comm/transport.h"

namespace braid::fuzz {

class SilentLink final : public Link {
 public:
  // `reactor`: where writes are answered.
  SilentLink(uint16_t peer, Reactor* reactor) : peer_(peer), reactor_(reactor) {}
  uint16_t peer() const override { return peer_; }
  std::string Describe() const override { return "silent"; }
  absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory) override {
    return MemoryKey{.token = ++last_token_, .base = 0, .bytes = memory.size()};
  }
  void Withdraw(const MemoryKey&) override {}
  void Send(std::span<const std::byte>) override {}
  bool Write(std::span<const std::byte>, const MemoryKey&, uint64_t, std::span<const std::byte>,
             DoneCallback done) override {
    reactor_->Post([done = std::move(done)] { done(absl::OkStatus()); });
    return false;
  }
  void SetHandler(FrameHandler) override {}
  void OnClosed(std::function<void(absl::Status)>) override {}
  void Close(absl::Status) override {}
  LinkCounters counters() const override { return {}; }

 private:
  const uint16_t peer_;
  Reactor* const reactor_;
  uint64_t last_token_ = 0;
};

}  // namespace braid::fuzz
