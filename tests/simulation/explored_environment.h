// An Environment whose every event a Choice decides and counts: what a search over all orders steps
// through. Reactors have what the simulated ones have; time does not pass, so a timer runs only
// when nothing else can.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/reactor.h"
#include "runtime/base/seeded_choice.h"

namespace braid {

class ExploredEnvironment final : public Environment {
 public:
  explicit ExploredEnvironment(Choice* order) : order_(*order) {}  // borrowed
  ~ExploredEnvironment() override;

  // Runs one event; false if there is none. The first choice is what has waited longest.
  bool Step();
  // Whose event ran last; nullptr: none.
  const Reactor* last() const;
  // What could run, without what it would do: for each reactor the work posted by each poster, and
  // whether it is to be polled.
  void AppendState(std::vector<int64_t>* state) const;

  Nanoseconds Now() const override { return 0; }
  std::unique_ptr<Reactor> StartReactor(std::string_view name) override;
  std::unique_ptr<Event> MakeEvent() override;
  // As the simulated environment; there are no timeouts.
  absl::Status Await(Event& event, Nanoseconds timeout) override;
  bool is_simulated() const override { return true; }

 private:
  class ExploredReactor;
  // One poster's work for one reactor, in order; kPoll is its pollable.
  struct Source {
    ExploredReactor* reactor = nullptr;
    size_t poster = 0;
    friend bool operator==(const Source&, const Source&) = default;
  };
  struct Timer {
    ExploredReactor* reactor = nullptr;
    absl::AnyInvocable<void()> fn;
  };
  static constexpr size_t kPoll = SIZE_MAX;

  void MakeRunnable(const Source& source);
  void Run(ExploredReactor* reactor, absl::AnyInvocable<void()> fn);

  Choice& order_;
  std::vector<ExploredReactor*> reactors_;  // by number - 1; nullptr: destroyed
  std::vector<Source> runnable_;            // in the order in which they became so
  std::map<std::pair<Nanoseconds, TimerId>, Timer> timers_;
  TimerId next_timer_ = 1;
  ExploredReactor* last_ = nullptr;
  ExploredReactor* running_ = nullptr;  // whose event runs now; nullptr: the host, number 0
};

}  // namespace braid
