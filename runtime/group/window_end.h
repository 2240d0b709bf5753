// One rank's end of a window: its own memory, which other ranks write to and read from while its
// program does other things, and what its program does at the memory of others.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "comm/transport.h"
#include "runtime/base/reactor.h"
#include "runtime/group/group_call.h"
#include "runtime/group/window_frame.h"

namespace braid {

namespace control {
class RollAnswer;
}  // namespace control

namespace dist {

// Of one window, at each rank: from 0.
constexpr int kWindowSignals = 1024;

// What the windows of a group have in common.
struct WindowOptions {
  GroupIdentity identity;
  Reactor* reactor = nullptr;  // borrowed
  // Calls back once the link to a rank is there, maybe inside the call, until Close.
  std::function<void(int rank, std::function<void()> then)> with_link;
  std::function<Link*(int rank)> link_to;  // once it is there
  // The session: Close follows.
  std::function<void(const absl::Status& cause)> fail;
};

// What of a window is in need of somebody's attention.
struct WindowNeed {
  absl::Status failed;                 // a put or a get that cannot be done, or not in time
  const GroupCall* waiting = nullptr;  // the longest wait for a signal
  Nanoseconds quiet = 0;               // of it: since it began, or the signal was last raised
  Nanoseconds overdue = 0;             // its timeout, once it has passed
  std::vector<int64_t> raised;         // by rank: how often it raised the signal
  bool has_any = false;                // something is under way
  Nanoseconds left = 0;                // of the timeout that ends first; 0: none does
};

// A put is written straight to the peer's memory, for which the peer's node gives a key when it is
// first asked. A get exposes the memory that it fills, and the peer's node writes there. What this
// rank does at one other rank goes over their link in the order in which it was begun, so that it
// also happens there in this order. Everything happens on the node's control thread.
class WindowEnd {
 public:
  WindowEnd(const WindowOptions& options, std::shared_ptr<WindowHandle> handle);
  WindowEnd(const WindowEnd&) = delete;
  WindowEnd& operator=(const WindowEnd&) = delete;

  // Of a put, a get or a wait for a signal. `done` comes once, maybe inside this call.
  void Start(GroupCall call, std::function<void(absl::Status)> done);
  // `then` once no put and no get is under way, maybe inside this call.
  void WhenIdle(std::function<void()> then);

  // From a rank of the group; an error, without whose frame it was, closes the link.
  absl::Status HandleFrame(const WindowFrame& frame);

  // Nobody uses the window any more, which all ranks know. `then` once nothing uses its memory,
  // maybe inside this call.
  void Release(std::function<void()> then);
  // The same for this rank alone: the nodes of others write there no more from when they hear it.
  void Drop(std::function<void()> then);
  // Whether all ranks have released it, so that nothing comes for it any more.
  bool is_released() const { return state_ == State::kReleased; }

  // `patience`: how long a put waits for the cause for which its peer has dropped the window.
  WindowNeed FindNeed(Nanoseconds patience) const;
  void Answer(control::RollAnswer& answer) const;

  // All calls get `reason`; `closed` once no memory is used any more, maybe inside this call.
  void Close(const absl::Status& reason, std::function<void()> closed);

 private:
  // A put or a get.
  struct Access {
    GroupCall call;
    std::function<void(absl::Status)> done;
    int64_t number = 0;
    Nanoseconds began = 0;
    bool is_sent = false;  // all of it was given to the link
    bool is_done = false;  // put: there
    MemoryKey key = {};    // get: of the memory that it fills
    int64_t moved = 0;     // put: bytes
    int writing = 0;       // put: parts that the link still reads
    int64_t left = 0;      // get: bytes that have not come

    bool is_put() const { return call.kind == CallKind::kPut; }
    int64_t bytes() const { return call.counts[0] * call.element_size; }
    int64_t offset() const { return call.offset * call.element_size; }
  };
  using Position = std::list<Access>::iterator;
  // Another rank's memory.
  struct Target {
    bool is_linking = false;
    bool is_asked = false;
    std::optional<MemoryKey> key;
    std::optional<Nanoseconds> gone_since;
    std::list<Access> accesses;      // that are not done, in the order of their begin
    Position next = accesses.end();  // the first that is not sent
    int64_t puts = 0, gets = 0;      // that were begun
  };
  // A get of another rank, which is written to it.
  struct Reading {
    int64_t number = 0;
    MemoryKey key = {};
    int64_t offset = 0;
    int64_t bytes = 0;
    int64_t moved = 0;
    int writing = 0;
  };
  // Another rank that uses this one's memory.
  struct Visitor {
    bool has_asked = false;
    std::optional<MemoryKey> key;  // that it has
    int64_t puts = 0, gets = 0;    // that have come
    std::list<Reading> readings;
    bool is_told = false;  // that this memory is gone
    bool has_seen = false;
  };
  struct Wait {
    GroupCall call;
    std::function<void(absl::Status)> done;
    Nanoseconds began = 0;
  };
  struct Signal {
    std::vector<int64_t> by_rank;  // how often
    int64_t total = 0;
    Nanoseconds since = 0;  // it was last raised
  };
  enum class State { kOpen, kDropped, kReleased };

  void StartWait(GroupCall call, std::function<void(absl::Status)> done);
  void DoOwn(const GroupCall& call);
  void Raise(int signal, int rank);
  // Those whose signal has come.
  void EndWaits();
  void Send(const WindowFrame& frame);
  // What may be given to the link.
  void Advance(int rank);
  // Whether all of it was given to the link: else a put waits for the key or for the link.
  bool SendPut(int rank, Position put);
  bool SendGet(int rank, Position get);
  void OnWritten(int rank, Position put, const absl::Status& status);
  void Finish(int rank, Position access, const absl::Status& status);
  // Calls what waits for there being nothing to do.
  void CheckIdle();

  absl::Status TakeAsk(int rank);
  absl::Status TakeKey(const WindowFrame& frame);
  absl::Status TakePut(const WindowFrame& frame);
  absl::Status TakePutDone(const WindowFrame& frame);
  absl::Status TakeGet(const WindowFrame& frame);
  absl::Status TakeGot(const WindowFrame& frame);
  absl::Status TakeGone(int rank);
  absl::Status TakeGoneSeen(int rank);
  void Serve(int rank);
  void OnServed(int rank, const absl::Status& status);
  void TellGone(int rank);
  void WithdrawKeys();
  // Nothing begins to be read for others any more.
  void CutReadings();
  WindowFrame FrameTo(int rank, WindowFrame::Type type) const;

  const WindowOptions& options_;
  const std::shared_ptr<WindowHandle> handle_;
  std::map<int, Target> targets_;
  std::map<int, Visitor> visitors_;
  std::map<int, Signal> signals_;
  std::list<Wait> waits_;
  State state_ = State::kOpen;
  std::function<void()> on_idle_, on_unused_, on_closed_;
  absl::Status closed_;
};

}  // namespace dist
}  // namespace braid
