// The simulated environment: every reactor runs in the thread that waits, one event at a time; a
// seed chooses the event, and the clock moves by what the simulation decides.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/reactor.h"
#include "runtime/base/seeded_choice.h"
#include "runtime/base/timer_queue.h"

namespace braid {
namespace {

class SimReactor;

// Each event takes up to this much simulated time, so that timers fall due between events also in a
// cluster that is never idle.
constexpr Nanoseconds kMaxEventTime = kMicrosecond;

// Something of one reactor that can run next: the work that one poster gave it, in order, or its
// pollable.
struct Source {
  SimReactor* reactor = nullptr;
  bool is_pollable = false;
  std::deque<std::function<void()>> posted;
  size_t position = kIdle;  // in SimEnvironment::runnable_

  static constexpr size_t kIdle = SIZE_MAX;
};

struct SimTimer {
  SimReactor* reactor;
  std::function<void()> fn;
};

class SimEnvironment : public Environment {
 public:
  explicit SimEnvironment(uint64_t seed) : choice_(seed) {}
  ~SimEnvironment() override {
    CHECK_EQ(num_reactors_, 0) << "reactors must be destroyed before their environment";
  }

  Nanoseconds Now() const override { return now_; }
  std::unique_ptr<Reactor> StartReactor(std::string_view name) override;
  std::unique_ptr<Event> MakeEvent() override;
  absl::Status Await(Event& event, Nanoseconds timeout) override;
  bool is_simulated() const override { return true; }

 private:
  friend class SimReactor;

  void MakeRunnable(Source* source) {
    if (source->position != Source::kIdle) return;
    source->position = runnable_.size();
    runnable_.push_back(source);
  }

  void MakeIdle(Source* source) {
    if (source->position == Source::kIdle) return;
    runnable_[source->position] = runnable_.back();
    runnable_[source->position]->position = source->position;
    runnable_.pop_back();
    source->position = Source::kIdle;
  }

  // Runs one event; false if none is due.
  bool Step();

  SeededChoice choice_;
  Nanoseconds now_ = 0;
  std::vector<Source*> runnable_;
  TimerQueue<SimTimer> timers_;
  TimerId next_timer_ = 1;
  size_t next_reactor_ = 1;  // 0 stands for the host thread as a poster
  int num_reactors_ = 0;
  SimReactor* running_ = nullptr;  // whose event runs now
};

class SimEvent : public Event {
 public:
  void Set() override { is_set_ = true; }
  bool is_set() const override { return is_set_; }

 private:
  bool is_set_ = false;
};

class SimReactor : public Reactor {
 public:
  SimReactor(SimEnvironment* environment, std::string_view name)
      : environment_(*environment), name_(name), number_(environment->next_reactor_++) {
    ++environment_.num_reactors_;
    poll_.reactor = this;
    poll_.is_pollable = true;
  }

  // As a real one: the work that was posted before still runs.
  ~SimReactor() override {
    CHECK(environment_.running_ != this) << "a reactor cannot be destroyed by its own thread";
    std::vector<size_t> posted;
    for (const auto& source : sources_) posted.push_back(source ? source->posted.size() : 0);
    SimReactor* const outer = std::exchange(environment_.running_, this);
    for (size_t i = 0; i < posted.size(); ++i) {
      for (size_t n = 0; n < posted[i]; ++n) TakePosted (*sources_[i])();
    }
    environment_.running_ = outer;
    for (const auto& source : sources_) {
      if (source) environment_.MakeIdle(source.get());
    }
    environment_.MakeIdle(&poll_);
    environment_.timers_.CancelIf([this](const SimTimer& timer) { return timer.reactor == this; });
    --environment_.num_reactors_;
  }

  Nanoseconds Now() const override { return environment_.now_; }

  void Post(std::function<void()> fn) override {
    const size_t poster = environment_.running_ == nullptr ? 0 : environment_.running_->number_;
    if (sources_.size() <= poster) sources_.resize(poster + 1);
    std::unique_ptr<Source>& source = sources_[poster];
    if (source == nullptr) {
      source = std::make_unique<Source>();
      source->reactor = this;
    }
    source->posted.push_back(std::move(fn));
    environment_.MakeRunnable(source.get());
  }

  void Wake() override {
    if (pollable_ != nullptr) environment_.MakeRunnable(&poll_);
  }

  void SetPollable(Pollable* pollable) override {
    CHECK(pollable != nullptr || InThread()) << "a pollable is removed on the reactor's thread";
    pollable_ = pollable;
    if (pollable_ == nullptr) environment_.MakeIdle(&poll_);
    Wake();
  }

  TimerId RunAfter(Nanoseconds delay, std::function<void()> fn) override {
    CHECK(InThread());
    const TimerId id = environment_.next_timer_++;
    environment_.timers_.Add(id, environment_.now_ + delay, environment_.choice_.Next(),
                             {this, std::move(fn)});
    return id;
  }

  void CancelTimer(TimerId id) override {
    CHECK(InThread());
    environment_.timers_.Cancel(id);
  }

  absl::Status Watch(int descriptor, Readiness, std::function<void(Readiness)>) override {
    return absl::UnimplementedError(
        absl::StrFormat("reactor '%s' is simulated and has no descriptors to watch (asked for %d)",
                        name_, descriptor));
  }

  void Unwatch(int) override {}

  bool InThread() const override { return environment_.running_ == this; }

  void Run(Source& source) {
    if (!source.is_pollable) {
      TakePosted(source)();
      return;
    }
    // Idle while it polls: a Wake meanwhile counts.
    environment_.MakeIdle(&poll_);
    if (pollable_->Poll()) Wake();
  }

 private:
  std::function<void()> TakePosted(Source& source) {
    std::function<void()> fn = std::move(source.posted.front());
    source.posted.pop_front();
    if (source.posted.empty()) environment_.MakeIdle(&source);
    return fn;
  }

  SimEnvironment& environment_;
  const std::string name_;
  const size_t number_;
  std::vector<std::unique_ptr<Source>> sources_;  // by the poster's number
  Source poll_;
  Pollable* pollable_ = nullptr;
};

bool SimEnvironment::Step() {
  // The earliest timer that is due is one more candidate.
  const bool has_timer = !timers_.empty() && timers_.earliest() <= now_;
  const size_t candidates = runnable_.size() + (has_timer ? 1 : 0);
  if (candidates == 0) return false;
  const size_t chosen = choice_.Below(candidates);
  if (chosen == runnable_.size()) {
    const SimTimer timer = timers_.TakeEarliest();
    running_ = timer.reactor;
    timer.fn();
  } else {
    Source* source = runnable_[chosen];
    running_ = source->reactor;
    source->reactor->Run(*source);
  }
  running_ = nullptr;
  now_ += 1 + static_cast<Nanoseconds>(choice_.Below(kMaxEventTime));
  return true;
}

std::unique_ptr<Reactor> SimEnvironment::StartReactor(std::string_view name) {
  return std::make_unique<SimReactor>(this, name);
}

std::unique_ptr<Event> SimEnvironment::MakeEvent() { return std::make_unique<SimEvent>(); }

absl::Status SimEnvironment::Await(Event& event, Nanoseconds timeout) {
  CHECK(running_ == nullptr) << "Await is for the host thread, not for a reactor's";
  const Nanoseconds deadline = timeout < INT64_MAX - now_ ? now_ + timeout : INT64_MAX;
  while (!event.is_set()) {
    if (now_ >= deadline) {
      return absl::DeadlineExceededError(absl::StrFormat("not set within %.3f simulated s",
                                                         static_cast<double>(timeout) / kSecond));
    }
    if (Step()) continue;
    if (timers_.empty()) {
      return absl::InternalError("no event left: nothing can set what the host waits for");
    }
    now_ = std::min(timers_.earliest(), deadline);
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Environment> MakeSimulatedEnvironment(uint64_t seed) {
  return std::make_unique<SimEnvironment>(seed);
}

}  // namespace braid
