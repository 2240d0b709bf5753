#include "runtime/group/windows.h"

#include <tuple>

#include "absl/strings/str_format.h"

namespace braid::dist {

void Windows::Make(const std::shared_ptr<WindowHandle>& handle) {
  std::erase_if(ends_, [](const auto& end) { return end.second->is_released(); });
  handle->number = ++made_;
  ends_.emplace(handle->number, std::make_unique<WindowEnd>(options_, handle));
}

void Windows::Start(GroupCall call, std::function<void(absl::Status)> done) {
  WindowEnd& end = *ends_.at(call.window->number);
  end.Start(std::move(call), std::move(done));
}

void Windows::WhenIdle(const WindowHandle& handle, std::function<void()> then) {
  ends_.at(handle.number)->WhenIdle(std::move(then));
}

void Windows::Release(const WindowHandle& handle, std::function<void()> then) {
  ends_.at(handle.number)->Release(std::move(then));
}

void Windows::Drop(const WindowHandle& handle, std::function<void()> then) {
  // One that was not begun, because the group had closed, is not there.
  const auto end = ends_.find(handle.number);
  if (end == ends_.end()) return then();
  end->second->Drop(std::move(then));
}

absl::Status Windows::HandleFrame(const WindowFrame& frame) {
  const auto end = ends_.find(frame.window);
  if (end != ends_.end() && !end->second->is_released()) return end->second->HandleFrame(frame);
  return absl::InvalidArgumentError(
      absl::StrFormat("type %d for window %d, which is not open here; %d were made", frame.type,
                      frame.window, made_));
}

WindowNeed Windows::FindNeed(Nanoseconds patience) const {
  WindowNeed most;
  Nanoseconds left = 0;
  bool has_any = false;
  const auto urgency = [](const WindowNeed& of) {
    return std::tuple(!of.failed.ok(), of.overdue > 0, of.waiting != nullptr, of.quiet);
  };
  for (const auto& [number, end] : ends_) {
    WindowNeed need = end->FindNeed(patience);
    has_any = has_any || need.has_any;
    if (need.left > 0 && (left == 0 || need.left < left)) left = need.left;
    if (urgency(need) > urgency(most)) most = std::move(need);
  }
  most.has_any = has_any;
  most.left = left;
  return most;
}

void Windows::Answer(control::RollAnswer& answer) const {
  for (const auto& [number, end] : ends_) end->Answer(answer);
}

void Windows::Close(const absl::Status& reason, std::function<void()> closed) {
  if (closed_.ok()) closed_ = reason;
  closing_ = static_cast<int>(ends_.size()) + 1;
  const auto one_less = [this, closed = std::move(closed)] {
    if (--closing_ == 0) closed();
  };
  for (const auto& [number, end] : ends_) end->Close(reason, one_less);
  one_less();
}

}  // namespace braid::dist
