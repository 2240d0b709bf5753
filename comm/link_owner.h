// Who owns a link, as its connection sees it: who takes the frames, and who is told of the end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "comm/transport.h"
#include "glog/logging.h"

namespace braid {

class LinkOwner {
 public:
  // Any thread. Counts at once: a frame that comes now, and the end after it, find the handler.
  void SetHandler(Link::FrameHandler handler) {
    CHECK(!has_handler_.load(std::memory_order_relaxed)) << "a link's handler is set once";
    handler_ = std::make_shared<const Link::FrameHandler>(std::move(handler));
    has_handler_.store(true, std::memory_order_release);
  }
  bool has_handler() const { return has_handler_.load(std::memory_order_acquire); }

  // What follows is for the reactor's thread, and may destroy the Link where it calls the owner.

  // A frame, of a Write of so many bytes. There is a handler.
  void Give(std::span<const std::byte> frame, uint64_t payload_bytes) {
    frames_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(payload_bytes, std::memory_order_relaxed);
    // Shared with this call, in which the Link may go away.
    const std::shared_ptr<const Link::FrameHandler> handler = handler_;
    (*handler)(frame);
  }

  using ClosedHandler = std::function<void(absl::Status)>;
  // `reason`: of the end, which may have come by now.
  void OnClosed(ClosedHandler closed, const std::function<absl::Status()>& reason) {
    if (is_gone_) return;
    CHECK(!closed_) << "a link's closed callback is set once";
    closed_ = std::move(closed);
    if (is_over_) Tell(reason());
  }
  // The link is over. True once: then the owner is to be told.
  bool End() { return !std::exchange(is_over_, true); }
  void Tell(const absl::Status& reason) {
    if (const ClosedHandler closed = std::exchange(closed_, nullptr)) closed(reason);
  }

  // The owner has destroyed the Link, and is called no more.
  void Leave() {
    is_gone_ = true;
    has_handler_.store(false, std::memory_order_relaxed);
    handler_ = nullptr;
    closed_ = nullptr;
  }

  // What was given; any thread.
  uint64_t frames() const { return frames_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> has_handler_{false};
  std::shared_ptr<const Link::FrameHandler> handler_;  // written before has_handler_ is
  std::atomic<uint64_t> frames_{0};
  std::atomic<uint64_t> bytes_{0};
  ClosedHandler closed_;
  bool is_gone_ = false;
  bool is_over_ = false;  // the owner was told, or would have been
};

}  // namespace braid
