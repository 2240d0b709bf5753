// What the master's program is inside of that may take for ever, as opening a data file may: so
// that reports name it. Begun and ended by the program's thread; told of by a reactor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"

namespace braid {

class ProgramWatch {
 public:
  // `tell` is called on the reactor's thread when something has lasted for `limit`, and again after
  // each `limit` more; 0: never. The watch outlives the reactor.
  ProgramWatch(Reactor* reactor, Nanoseconds limit, std::function<void(Nanoseconds lasted)> tell)
      : reactor_(*reactor), limit_(limit), tell_(std::move(tell)) {}
  ProgramWatch(const ProgramWatch&) = delete;
  ProgramWatch& operator=(const ProgramWatch&) = delete;

  // `what`: "opening the data of read 'x' (train.cc:12)". One at a time.
  void Begin(std::string what);
  void End();

  struct Doing {
    std::string what;
    Nanoseconds since = 0;
  };
  std::optional<Doing> doing() const;  // any thread

 private:
  // Looks again when `number` will have lasted for the limit, unless it has ended.
  void LookLater(int number);

  Reactor& reactor_;
  const Nanoseconds limit_;
  const std::function<void(Nanoseconds lasted)> tell_;
  mutable Mutex mutex_;
  std::optional<Doing> doing_ BRAID_GUARDED_BY(mutex_);
  int number_ BRAID_GUARDED_BY(mutex_) = 0;  // of what it does or did last
};

}  // namespace braid
