#include "runtime/group/window_end.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/control.pb.h"
#include "runtime/group/write_parts.h"

namespace braid::dist {
namespace {

// Puts and gets of one rank in one window at another; both ends keep to it.
constexpr size_t kMostAccesses = 1 << 16;

absl::Status WrongAccess(const std::string& what) { return absl::InvalidArgumentError(what); }

}  // namespace

WindowEnd::WindowEnd(const WindowOptions& options, std::shared_ptr<WindowHandle> handle)
    : options_(options), handle_(std::move(handle)) {}

// ---- what this rank does at the memory of others ------------------------------------------------

void WindowEnd::Start(GroupCall call, std::function<void(absl::Status)> done) {
  if (!closed_.ok()) return done(closed_);
  if (call.kind == CallKind::kWaitSignal) return StartWait(std::move(call), std::move(done));
  const int rank = call.peer;
  if (rank == options_.identity.my_rank) {
    DoOwn(call);
    return done(absl::OkStatus());
  }
  Target& target = targets_[rank];
  Access access{.call = std::move(call), .done = std::move(done)};
  access.left = access.bytes();
  if (!access.is_put() && access.left == 0) return access.done(absl::OkStatus());
  if (target.accesses.size() >= kMostAccesses) {
    return access.done(absl::ResourceExhaustedError(
        absl::StrFormat("%s: %d puts and gets at rank %d are under way, which is the most; wait "
                        "for some of them",
                        Describe(access.call), target.accesses.size(), rank)));
  }
  access.number = access.is_put() ? target.puts++ : target.gets++;
  access.began = options_.reactor->Now();
  const Position added = target.accesses.insert(target.accesses.end(), std::move(access));
  if (target.next == target.accesses.end()) target.next = added;
  if (std::exchange(target.is_linking, true)) return;
  options_.with_link(rank, [this, rank] {
    targets_[rank].is_linking = false;
    Advance(rank);
  });
}

void WindowEnd::DoOwn(const GroupCall& call) {
  const auto bytes = static_cast<size_t>(call.counts[0] * call.element_size);
  std::byte* const place = handle_->memory + call.offset * call.element_size;
  if (bytes > 0 && call.kind == CallKind::kPut) std::memmove(place, call.input, bytes);
  if (bytes > 0 && call.kind == CallKind::kGet) std::memmove(call.output, place, bytes);
  if (call.signal >= 0) Raise(call.signal, options_.identity.my_rank);
}

void WindowEnd::StartWait(GroupCall call, std::function<void(absl::Status)> done) {
  waits_.push_back(
      {.call = std::move(call), .done = std::move(done), .began = options_.reactor->Now()});
  EndWaits();
}

void WindowEnd::Raise(int signal, int rank) {
  Signal& raised = signals_[signal];
  raised.by_rank.resize(options_.identity.nodes.size());
  ++raised.by_rank[static_cast<size_t>(rank)];
  ++raised.total;
  raised.since = options_.reactor->Now();
  EndWaits();
}

void WindowEnd::EndWaits() {
  for (auto next = waits_.begin(); next != waits_.end();) {
    const auto wait = next++;
    const auto signal = signals_.find(wait->call.signal);
    const int64_t total = signal == signals_.end() ? 0 : signal->second.total;
    if (total < wait->call.at_least) continue;
    *static_cast<int64_t*>(wait->call.output) = total;
    const std::function<void(absl::Status)> done = std::move(wait->done);
    waits_.erase(wait);
    done(absl::OkStatus());
  }
}

WindowFrame WindowEnd::FrameTo(int rank, WindowFrame::Type type) const {
  return {.type = type,
          .group = options_.identity.id,
          .window = handle_->number,
          .from = static_cast<uint16_t>(options_.identity.my_rank),
          .to = static_cast<uint16_t>(rank)};
}

void WindowEnd::Send(const WindowFrame& frame) {
  options_.link_to(frame.to)->Send(EncodedWindowFrame(frame).bytes());
}

void WindowEnd::Advance(int rank) {
  Target& target = targets_[rank];
  while (closed_.ok() && !target.gone_since.has_value() && target.next != target.accesses.end()) {
    const Position access = target.next;
    if (!(access->is_put() ? SendPut(rank, access) : SendGet(rank, access))) return;
    access->is_sent = true;
    ++target.next;
  }
}

bool WindowEnd::SendPut(int rank, Position put) {
  Target& target = targets_[rank];
  WindowFrame frame = FrameTo(rank, WindowFrame::Type::kPut);
  frame.number = put->number;
  const uint32_t signal =
      put->call.signal < 0 ? WindowFrame::kNoSignal : static_cast<uint32_t>(put->call.signal);
  const int64_t bytes = put->bytes();
  if (bytes == 0) {
    frame.signal = signal;
    Send(frame);
    return true;
  }
  if (!target.key.has_value()) {
    if (!std::exchange(target.is_asked, true)) Send(FrameTo(rank, WindowFrame::Type::kAsk));
    return false;
  }
  // The put waits for each answer, and this object for the put.
  WriteParts(
      {.link = options_.link_to(rank),
       .reactor = options_.reactor,
       .data = static_cast<const std::byte*>(put->call.input),
       .bytes = bytes,
       .key = *target.key,
       .offset = put->offset()},
      {.moved = put->moved, .writing = put->writing},
      [&](int64_t moved, int64_t part) {
        frame.left = bytes - moved - part;
        frame.signal = frame.left == 0 ? signal : WindowFrame::kNoSignal;
        return EncodedWindowFrame(frame);
      },
      [this, rank, put](const absl::Status& status) { OnWritten(rank, put, status); });
  return put->moved == bytes;
}

bool WindowEnd::SendGet(int rank, Position get) {
  absl::StatusOr<MemoryKey> key = options_.link_to(rank)->Expose(
      std::span(static_cast<std::byte*>(get->call.output), static_cast<size_t>(get->bytes())));
  if (!key.ok()) {
    options_.fail(key.status());
    return false;
  }
  get->key = *key;
  WindowFrame frame = FrameTo(rank, WindowFrame::Type::kGet);
  frame.number = get->number;
  frame.offset = get->offset();
  frame.key = get->key;
  Send(frame);
  return true;
}

void WindowEnd::OnWritten(int rank, Position put, const absl::Status& status) {
  --put->writing;
  if (closed_.ok() && !status.ok()) return options_.fail(status);
  const bool is_over = put->is_done || !closed_.ok();
  if (is_over && put->writing == 0) {
    Finish(rank, put, closed_);
  } else {
    Advance(rank);
  }
}

void WindowEnd::Finish(int rank, Position access, const absl::Status& status) {
  Target& target = targets_[rank];
  const std::function<void(absl::Status)> done = std::move(access->done);
  const bool is_next = target.next == access;
  const Position after = target.accesses.erase(access);
  if (is_next) target.next = after;
  done(status);
  CheckIdle();
}

// ---- what others do at this rank's memory -------------------------------------------------------

absl::Status WindowEnd::HandleFrame(const WindowFrame& frame) {
  switch (frame.type) {
    case WindowFrame::Type::kAsk:
      return TakeAsk(frame.from);
    case WindowFrame::Type::kKey:
      return TakeKey(frame);
    case WindowFrame::Type::kPut:
      return TakePut(frame);
    case WindowFrame::Type::kPutDone:
      return TakePutDone(frame);
    case WindowFrame::Type::kGet:
      return TakeGet(frame);
    case WindowFrame::Type::kGot:
      return TakeGot(frame);
    case WindowFrame::Type::kGone:
      return TakeGone(frame.from);
    case WindowFrame::Type::kGoneSeen:
      return TakeGoneSeen(frame.from);
  }
  return WrongAccess("no type");
}

absl::Status WindowEnd::TakeAsk(int rank) {
  Visitor& visitor = visitors_[rank];
  if (visitor.has_asked || handle_->bytes == 0) {
    return WrongAccess(
        absl::StrFormat("rank %d asks%s for the key of window %d, which has %d bytes here", rank,
                        visitor.has_asked ? " again" : "", handle_->number, handle_->bytes));
  }
  visitor.has_asked = true;
  if (state_ == State::kDropped) {
    TellGone(rank);
    return absl::OkStatus();
  }
  absl::StatusOr<MemoryKey> key = options_.link_to(rank)->Expose(
      std::span(handle_->memory, static_cast<size_t>(handle_->bytes)));
  if (!key.ok()) {
    options_.fail(key.status());
    return absl::OkStatus();
  }
  visitor.key = *key;
  WindowFrame frame = FrameTo(rank, WindowFrame::Type::kKey);
  frame.key = *key;
  Send(frame);
  return absl::OkStatus();
}

absl::Status WindowEnd::TakeKey(const WindowFrame& frame) {
  Target& target = targets_[frame.from];
  if (!target.is_asked || target.key.has_value()) {
    return WrongAccess(absl::StrFormat("a key of rank %d for window %d, which was not asked for",
                                       frame.from, handle_->number));
  }
  target.key = frame.key;
  Advance(frame.from);
  return absl::OkStatus();
}

// The link has seen to it that the bytes are within the memory.
absl::Status WindowEnd::TakePut(const WindowFrame& frame) {
  Visitor& visitor = visitors_[frame.from];
  const bool has_signal = frame.signal != WindowFrame::kNoSignal;
  if (frame.number != visitor.puts || frame.left < 0 ||
      (has_signal && (frame.left > 0 || frame.signal >= uint32_t{kWindowSignals}))) {
    return WrongAccess(absl::StrFormat(
        "put %d of rank %d to window %d, with signal %d and %d bytes to come; expected was put %d, "
        "and with its last bytes a signal below %d",
        frame.number, frame.from, handle_->number, frame.signal, frame.left, visitor.puts,
        kWindowSignals));
  }
  if (frame.left > 0) return absl::OkStatus();
  ++visitor.puts;
  WindowFrame answer = FrameTo(frame.from, WindowFrame::Type::kPutDone);
  answer.number = frame.number;
  Send(answer);
  if (has_signal) Raise(static_cast<int>(frame.signal), frame.from);
  return absl::OkStatus();
}

absl::Status WindowEnd::TakePutDone(const WindowFrame& frame) {
  std::list<Access>& accesses = targets_[frame.from].accesses;
  const Position put = std::ranges::find_if(accesses, [&](const Access& access) {
    return access.is_put() && access.is_sent && !access.is_done && access.number == frame.number;
  });
  if (put == accesses.end()) {
    return WrongAccess(
        absl::StrFormat("put %d to window %d at rank %d is there, which is none of %d under way",
                        frame.number, handle_->number, frame.from, accesses.size()));
  }
  put->is_done = true;
  if (put->writing == 0) Finish(frame.from, put, absl::OkStatus());
  return absl::OkStatus();
}

absl::Status WindowEnd::TakeGet(const WindowFrame& frame) {
  Visitor& visitor = visitors_[frame.from];
  const auto bytes = static_cast<int64_t>(frame.key.bytes);
  if (frame.number != visitor.gets || visitor.readings.size() >= kMostAccesses || bytes <= 0 ||
      frame.offset < 0 || frame.offset > handle_->bytes || bytes > handle_->bytes - frame.offset) {
    return WrongAccess(absl::StrFormat(
        "get %d of rank %d, of %d bytes at %d of window %d; expected was get %d, within %d bytes, "
        "beside %d others at most",
        frame.number, frame.from, frame.key.bytes, frame.offset, handle_->number, visitor.gets,
        handle_->bytes, kMostAccesses));
  }
  ++visitor.gets;
  if (state_ == State::kDropped) {
    TellGone(frame.from);
    return absl::OkStatus();
  }
  visitor.readings.push_back(
      {.number = frame.number, .key = frame.key, .offset = frame.offset, .bytes = bytes});
  Serve(frame.from);
  return absl::OkStatus();
}

void WindowEnd::Serve(int rank) {
  std::list<Reading>& readings = visitors_[rank].readings;
  for (auto next = readings.begin(); next != readings.end();) {
    const auto reading = next++;
    WindowFrame frame = FrameTo(rank, WindowFrame::Type::kGot);
    frame.number = reading->number;
    // The reading waits for each answer, and this object for the reading.
    WriteParts(
        {.link = options_.link_to(rank),
         .reactor = options_.reactor,
         .data = handle_->memory + reading->offset,
         .bytes = reading->bytes,
         .key = reading->key},
        {.moved = reading->moved, .writing = reading->writing},
        [&](int64_t moved, int64_t part) {
          frame.left = reading->bytes - moved - part;
          return EncodedWindowFrame(frame);
        },
        [this, rank, reading](const absl::Status& status) {
          --reading->writing;
          OnServed(rank, status);
        });
    if (reading->moved < reading->bytes) return;
    if (reading->writing == 0) readings.erase(reading);
  }
}

void WindowEnd::OnServed(int rank, const absl::Status& status) {
  if (closed_.ok() && !status.ok()) return options_.fail(status);
  if (closed_.ok() && state_ == State::kOpen) {
    Serve(rank);
  } else {
    CutReadings();
  }
  CheckIdle();
}

absl::Status WindowEnd::TakeGot(const WindowFrame& frame) {
  std::list<Access>& accesses = targets_[frame.from].accesses;
  const Position get = std::ranges::find_if(accesses, [&](const Access& access) {
    return !access.is_put() && access.is_sent && access.number == frame.number;
  });
  if (get == accesses.end() || frame.left < 0 || frame.left >= get->left) {
    return WrongAccess(absl::StrFormat(
        "a part of get %d of window %d from rank %d, with %d bytes to come; %d are under way",
        frame.number, handle_->number, frame.from, frame.left, accesses.size()));
  }
  get->left = frame.left;
  if (get->left > 0) return absl::OkStatus();
  options_.link_to(frame.from)->Withdraw(get->key);
  Finish(frame.from, get, absl::OkStatus());
  return absl::OkStatus();
}

// ---- the end ------------------------------------------------------------------------------------

void WindowEnd::WhenIdle(std::function<void()> then) {
  on_idle_ = std::move(then);
  CheckIdle();
}

void WindowEnd::Release(std::function<void()> then) {
  state_ = State::kReleased;
  on_unused_ = std::move(then);
  WithdrawKeys();
  CutReadings();
  CheckIdle();
}

void WindowEnd::Drop(std::function<void()> then) {
  if (state_ == State::kOpen) state_ = State::kDropped;
  on_unused_ = std::move(then);
  CutReadings();
  if (closed_.ok()) {
    for (const auto& [rank, visitor] : visitors_) {
      if (visitor.key.has_value() || visitor.gets > 0) TellGone(rank);
    }
  }
  CheckIdle();
}

void WindowEnd::TellGone(int rank) {
  if (!std::exchange(visitors_[rank].is_told, true)) {
    Send(FrameTo(rank, WindowFrame::Type::kGone));
  }
}

// What was written goes before the answer, and nothing is written after it.
absl::Status WindowEnd::TakeGone(int rank) {
  Target& target = targets_[rank];
  if (target.gone_since.has_value()) {
    return WrongAccess(absl::StrFormat("rank %d drops window %d again", rank, handle_->number));
  }
  target.gone_since = options_.reactor->Now();
  Send(FrameTo(rank, WindowFrame::Type::kGoneSeen));
  return absl::OkStatus();
}

absl::Status WindowEnd::TakeGoneSeen(int rank) {
  Visitor& visitor = visitors_[rank];
  if (!visitor.is_told || std::exchange(visitor.has_seen, true)) {
    return WrongAccess(absl::StrFormat(
        "rank %d has seen the end of window %d, which it was not told", rank, handle_->number));
  }
  if (visitor.key.has_value()) {
    options_.link_to(rank)->Withdraw(*visitor.key);
    visitor.key.reset();
  }
  CheckIdle();
  return absl::OkStatus();
}

// Nothing is written there any more when this returns.
void WindowEnd::WithdrawKeys() {
  for (auto& [rank, visitor] : visitors_) {
    if (!visitor.key.has_value()) continue;
    options_.link_to(rank)->Withdraw(*visitor.key);
    visitor.key.reset();
  }
}

void WindowEnd::CutReadings() {
  for (auto& [rank, visitor] : visitors_) {
    std::erase_if(visitor.readings, [](const Reading& reading) { return reading.writing == 0; });
    for (Reading& reading : visitor.readings) reading.bytes = reading.moved;
  }
}

void WindowEnd::CheckIdle() {
  const auto is_read = [this] {
    return std::ranges::any_of(visitors_,
                               [](const auto& of) { return !of.second.readings.empty(); });
  };
  const auto is_open = [this] {
    return std::ranges::any_of(visitors_, [](const auto& of) { return of.second.key.has_value(); });
  };
  const auto is_busy = [this] {
    return std::ranges::any_of(targets_,
                               [](const auto& of) { return !of.second.accesses.empty(); });
  };
  if (on_idle_ && !is_busy()) std::exchange(on_idle_, nullptr)();
  if (on_unused_ && !is_read() && !is_open()) std::exchange(on_unused_, nullptr)();
  if (on_closed_ && !is_read() && !is_busy()) std::exchange(on_closed_, nullptr)();
}

void WindowEnd::Close(const absl::Status& reason, std::function<void()> closed) {
  if (closed_.ok()) closed_ = reason;
  WithdrawKeys();
  CutReadings();
  for (const Wait& wait : std::exchange(waits_, {})) wait.done(closed_);
  for (auto& [rank, target] : targets_) {
    for (auto next = target.accesses.begin(); next != target.accesses.end();) {
      const Position access = next++;
      if (!access->is_put() && access->is_sent) options_.link_to(rank)->Withdraw(access->key);
      if (access->writing == 0) Finish(rank, access, closed_);
    }
  }
  on_closed_ = std::move(closed);
  CheckIdle();
}

// ---- what is asked about it ---------------------------------------------------------------------

WindowNeed WindowEnd::FindNeed(Nanoseconds patience) const {
  const Nanoseconds now = options_.reactor->Now();
  WindowNeed need;
  // Whether its time has passed.
  const auto is_overdue = [&](const GroupCall& call, Nanoseconds began) {
    need.has_any = true;
    if (call.timeout <= 0) return false;
    const Nanoseconds left = call.timeout - (now - began);
    if (left > 0 && (need.left == 0 || left < need.left)) need.left = left;
    return left <= 0;
  };
  for (const auto& [rank, target] : targets_) {
    for (const Access& access : target.accesses) {
      const bool is_late = is_overdue(access.call, access.began);
      // A put that was sent is there all the same.
      const bool is_lost = target.gone_since.has_value() && !(access.is_put() && access.is_sent);
      if (is_lost && now - std::max(access.began, *target.gone_since) >= patience) {
        need.failed = absl::FailedPreconditionError(absl::StrFormat(
            "%s: rank %d has dropped its window without a close of all ranks, and rank %d is in %s",
            options_.identity.name, rank, options_.identity.my_rank, Describe(access.call)));
      } else if (is_late) {
        need.failed = absl::DeadlineExceededError(absl::StrFormat(
            "%s: %s, of rank %d was not done within %.1f s; give it a longer timeout if it needs "
            "one",
            options_.identity.name, Describe(access.call), options_.identity.my_rank,
            Seconds(access.call.timeout)));
      }
    }
  }
  for (const Wait& wait : waits_) {
    const bool is_late = is_overdue(wait.call, wait.began);
    const auto signal = signals_.find(wait.call.signal);
    const bool is_raised = signal != signals_.end();
    const Nanoseconds quiet = now - std::max(wait.began, is_raised ? signal->second.since : 0);
    if (need.waiting != nullptr &&
        std::pair(need.overdue > 0, need.quiet) >= std::pair(is_late, quiet)) {
      continue;
    }
    need.waiting = &wait.call;
    need.quiet = quiet;
    need.overdue = is_late ? wait.call.timeout : 0;
    need.raised =
        is_raised ? signal->second.by_rank : std::vector<int64_t>(options_.identity.nodes.size());
  }
  return need;
}

void WindowEnd::Answer(control::RollAnswer& answer) const {
  for (const auto& [rank, target] : targets_) {
    for (const Access& access : target.accesses) {
      if (access.call.is_blocking) answer.set_blocked_in(Describe(access.call));
    }
    const bool is_signalling = std::ranges::any_of(
        target.accesses, [](const Access& access) { return access.call.signal >= 0; });
    if (is_signalling) answer.add_signalling(static_cast<uint32_t>(rank));
  }
  for (const Wait& wait : waits_) {
    answer.set_blocked_in(Describe(wait.call));
    answer.set_awaits_signal(true);
  }
}

}  // namespace braid::dist
