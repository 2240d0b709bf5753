// The windows of one rank of a process group: memory that ranks open to each other. They are made
// and closed by collectives of the group, and used by calls of one rank beside these.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "runtime/group/window_end.h"

namespace braid::dist {

// Everything happens on the node's control thread.
class Windows {
 public:
  explicit Windows(WindowOptions options) : options_(std::move(options)) {}
  // After Close is done.
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // When the collective that makes it is begun: ranks for which it is done already may use it.
  void Make(const std::shared_ptr<WindowHandle>& handle);
  // Of a put, a get or a wait for a signal.
  void Start(GroupCall call, std::function<void(absl::Status)> done);
  // As a WindowEnd's.
  void WhenIdle(const WindowHandle& handle, std::function<void()> then);
  void Release(const WindowHandle& handle, std::function<void()> then);
  void Drop(const WindowHandle& handle, std::function<void()> then);

  absl::Status HandleFrame(const WindowFrame& frame);

  // The one with the greatest need.
  WindowNeed FindNeed(Nanoseconds patience) const;
  void Answer(control::RollAnswer& answer) const;

  // As a WindowEnd's. A window may still be dropped afterwards.
  void Close(const absl::Status& reason, std::function<void()> closed);

 private:
  const WindowOptions options_;
  uint32_t made_ = 0;
  std::map<uint32_t, std::unique_ptr<WindowEnd>> ends_;  // by number
  absl::Status closed_;
  int closing_ = 0;
};

}  // namespace braid::dist
