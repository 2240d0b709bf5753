// The simulated environment: every reactor runs in the thread that waits, one event at a time; a
// seed chooses the event, and the clock moves by what the simulation decides.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/reactor.h"
#include "runtime/base/seeded_choice.h"
#include "runtime/base/simulation.h"
#include "runtime/base/timer_queue.h"

namespace braid {
namespace {

class SimProcess;
class SimReactor;
class World;

// Each event takes up to this much simulated time, so that timers fall due between events also in a
// cluster that is never idle.
constexpr Nanoseconds kMaxEventTime = kMicrosecond;
// What taking down a killed process may wait for.
constexpr Nanoseconds kLongestAfterlife = 60 * kSecond;
// Far from what a mistaken use of a system's descriptor would say.
constexpr int kFirstDescriptor = 1'000'000;
constexpr Nanoseconds kNever = INT64_MAX;

// Something of one reactor that can run next: the work that one poster gave it, in order, its
// pollable, or a watch whose descriptor is ready.
struct Source {
  enum class Kind { kPosted, kPollable, kWatch };

  SimReactor* reactor = nullptr;
  Kind kind = Kind::kPosted;
  std::deque<absl::AnyInvocable<void()>> posted;
  int descriptor = -1;
  size_t position = kIdle;  // in its process's runnable_

  static constexpr size_t kIdle = SIZE_MAX;
};

struct SimTimer {
  SimReactor* reactor;
  absl::AnyInvocable<void()> fn;
};

class SimEvent : public Event {
 public:
  void Set() override { is_set_ = true; }
  bool is_set() const override { return is_set_; }

 private:
  bool is_set_ = false;
};

class SimProcess final : public Environment {
 public:
  SimProcess(World& world, int number, std::string_view name, uint64_t seed)
      : world_(world), number_(number), name_(name), afterlife_(seed) {}
  ~SimProcess() override {
    CHECK(reactors_.empty()) << "reactors must be destroyed before their environment";
  }

  Nanoseconds Now() const override;
  std::unique_ptr<Reactor> StartReactor(std::string_view name) override;
  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<SimEvent>(); }
  absl::Status Await(Event& event, Nanoseconds timeout) override;
  bool is_simulated() const override { return true; }

 private:
  friend class SimReactor;
  friend class World;

  bool can_run() const { return !is_dead_ && !is_paused_; }
  Nanoseconds next_timer() const { return timers_.empty() ? kNever : timers_.earliest(); }
  size_t candidates(Nanoseconds now) const { return runnable_.size() + (next_timer() <= now); }
  // The earliest timer that is due is one more candidate, the last.
  void Run(size_t candidate);
  absl::Status AwaitAlone(Event& event, Nanoseconds timeout);

  void MakeRunnable(Source* source) {
    if (source->position != Source::kIdle) return;
    source->position = runnable_.size();
    runnable_.push_back(source);
  }

  bool IsHeld(std::string_view reactor) const {
    return held_.has_value() && reactor.starts_with(*held_);
  }

  void MakeIdle(Source* source) {
    if (source->position == Source::kIdle) return;
    runnable_[source->position] = runnable_.back();
    runnable_[source->position]->position = source->position;
    runnable_.pop_back();
    source->position = Source::kIdle;
  }

  World& world_;
  const int number_;
  const std::string name_;
  SeededChoice afterlife_;  // order of what still runs for a killed process
  std::vector<Source*> runnable_;
  TimerQueue<SimTimer> timers_;
  std::vector<SimReactor*> reactors_;
  bool is_paused_ = false;
  bool is_dead_ = false;
  std::optional<std::string> held_;  // reactors whose posts wait, by how their names begin
  Nanoseconds own_now_ = 0;          // since it was killed
};

struct SimDescriptor {
  int process = 0;
  Simulation::DescriptorState state;
  SimReactor* watcher = nullptr;
};

class World final : public Simulation {
 public:
  explicit World(uint64_t seed) : seed_(seed), choice_(seed) {}

  Environment& AddProcess(std::string_view name) override {
    const auto number = static_cast<int>(processes_.size());
    processes_.push_back(
        std::make_unique<SimProcess>(*this, number, name, seed_ ^ (number + 0x51a7ull)));
    return *processes_.back();
  }
  Environment& process(int number) override { return *processes_.at(number); }

  Nanoseconds Now() const override { return now_; }
  uint64_t Below(uint64_t n) override { return choice_.Below(n); }
  void RunAfter(Nanoseconds delay, std::function<void()> fn) override {
    events_.Add(next_event_++, now_ + delay, /*tie=*/0, std::move(fn));
  }

  void RunAfterEvents(uint64_t events, std::function<void()> fn) override {
    CHECK_GT(events, num_events_);
    CHECK(after_events_.emplace(events, std::move(fn)).second) << events << " is taken";
  }

  void Pause(int process) override { processes_.at(process)->is_paused_ = true; }
  void Resume(int process) override { processes_.at(process)->is_paused_ = false; }
  void HoldPosts(int process, std::string_view reactors) override;
  void ReleasePosts(int process) override;
  void Kill(int process) override;
  bool is_alive(int process) const override { return !processes_.at(process)->is_dead_; }
  bool is_paused(int process) const override { return processes_.at(process)->is_paused_; }
  void OnKilled(std::function<void(int)> fn) override { on_killed_.push_back(std::move(fn)); }

  int OpenDescriptor(int process) override {
    descriptors_[next_descriptor_].process = process;
    return next_descriptor_++;
  }
  void SetDescriptor(int descriptor, DescriptorState state) override;
  void CloseDescriptor(int descriptor) override {
    CHECK(descriptors_.at(descriptor).watcher == nullptr)
        << "descriptor " << descriptor << " is closed while it is watched";
    descriptors_.erase(descriptor);
  }

  Use UseOf(int process) const override {
    const SimProcess& of = *processes_.at(process);
    Use use{.reactors = static_cast<int>(of.reactors_.size()),
            .timers = static_cast<int>(of.timers_.size())};
    for (const auto& [number, descriptor] : descriptors_)
      use.descriptors += descriptor.process == process;
    return use;
  }
  uint64_t num_events() const override { return num_events_; }
  uint64_t digest() const override { return digest_; }

 private:
  friend class SimProcess;
  friend class SimReactor;

  // Runs one event; false if none is due.
  bool Step();
  // When the next event falls due.
  Nanoseconds NextTime() const;
  absl::Status Await(SimProcess& waiting, Event& event, Nanoseconds timeout);
  void Note(uint64_t what) {  // FNV-1a, by words
    digest_ = (digest_ ^ what) * 0x100000001b3ull;
  }

  const uint64_t seed_;
  SeededChoice choice_;
  Nanoseconds now_ = 0;
  uint64_t num_events_ = 0;
  uint64_t digest_ = 0xcbf29ce484222325ull;
  TimerQueue<std::function<void()>> events_;
  std::map<uint64_t, std::function<void()>> after_events_;  // by num_events_
  TimerId next_event_ = 1;
  TimerId next_timer_ = 1;
  size_t next_reactor_ = 1;        // 0 stands for the host thread as a poster
  SimReactor* running_ = nullptr;  // whose event runs now
  std::map<int, SimDescriptor> descriptors_;
  int next_descriptor_ = kFirstDescriptor;
  std::vector<std::function<void(int)>> on_killed_;
  std::vector<std::unique_ptr<SimProcess>> processes_;
};

class SimReactor : public Reactor {
 public:
  SimReactor(SimProcess* process, std::string_view name)
      : process_(*process), world_(process->world_), name_(name), number_(world_.next_reactor_++) {
    process_.reactors_.push_back(this);
    poll_.reactor = this;
    poll_.kind = Source::Kind::kPollable;
  }

  // As a real one: the work that was posted before still runs.
  ~SimReactor() override {
    CHECK(world_.running_ != this) << "a reactor cannot be destroyed by its own thread";
    std::vector<size_t> posted;
    for (const auto& source : sources_) posted.push_back(source ? source->posted.size() : 0);
    SimReactor* const outer = std::exchange(world_.running_, this);
    for (size_t i = 0; i < posted.size(); ++i) {
      for (size_t n = 0; n < posted[i]; ++n) TakePosted (*sources_[i])();
    }
    while (!watches_.empty()) Unwatch(watches_.begin()->first);
    world_.running_ = outer;
    for (const auto& source : sources_) {
      if (source) process_.MakeIdle(source.get());
    }
    process_.MakeIdle(&poll_);
    process_.timers_.CancelIf([this](const SimTimer& timer) { return timer.reactor == this; });
    std::erase(process_.reactors_, this);
  }

  Nanoseconds Now() const override { return process_.Now(); }

  void Post(absl::AnyInvocable<void()> fn) override {
    const size_t poster = world_.running_ == nullptr ? 0 : world_.running_->number_;
    if (sources_.size() <= poster) sources_.resize(poster + 1);
    std::unique_ptr<Source>& source = sources_[poster];
    if (source == nullptr) {
      source = std::make_unique<Source>();
      source->reactor = this;
    }
    source->posted.push_back(std::move(fn));
    if (!process_.IsHeld(name_)) process_.MakeRunnable(source.get());
  }

  // Its process's held_ has changed.
  void LookAtPosts() {
    for (const auto& source : sources_) {
      if (source == nullptr) continue;
      if (process_.IsHeld(name_) || source->posted.empty()) {
        process_.MakeIdle(source.get());
      } else {
        process_.MakeRunnable(source.get());
      }
    }
  }

  void Wake() override {
    if (pollable_ != nullptr) process_.MakeRunnable(&poll_);
  }

  void SetPollable(Pollable* pollable) override {
    pollable_ = pollable;
    Wake();
  }

  void RemovePollable(Pollable* pollable) override {
    CHECK(InThread()) << "a pollable is removed on the reactor's thread";
    if (pollable_ != pollable) return;
    pollable_ = nullptr;
    process_.MakeIdle(&poll_);
  }

  TimerId RunAfter(Nanoseconds delay, absl::AnyInvocable<void()> fn) override {
    CHECK(InThread());
    const TimerId id = world_.next_timer_++;
    process_.timers_.Add(id, Now() + std::min(delay, kForever), world_.choice_.Next(),
                         {this, std::move(fn)});
    return id;
  }

  void CancelTimer(TimerId id) override {
    CHECK(InThread());
    process_.timers_.Cancel(id);
  }

  absl::Status Watch(int descriptor, Readiness interest,
                     std::function<void(Readiness)> fn) override {
    const auto found = world_.descriptors_.find(descriptor);
    if (found == world_.descriptors_.end()) {
      return absl::UnimplementedError(absl::StrFormat(
          "reactor '%s' is simulated and watches descriptors of its simulation only, not %d", name_,
          descriptor));
    }
    CHECK(InThread());
    CHECK_EQ(found->second.process, process_.number_) << "another process's descriptor";
    CHECK(found->second.watcher == nullptr || found->second.watcher == this)
        << "descriptor " << descriptor << " is watched by another reactor";
    found->second.watcher = this;
    std::unique_ptr<SimWatch>& watch = watches_[descriptor];
    if (watch == nullptr) {
      watch = std::make_unique<SimWatch>();
      watch->source.reactor = this;
      watch->source.kind = Source::Kind::kWatch;
      watch->source.descriptor = descriptor;
    }
    watch->interest = interest;
    watch->fn = std::make_shared<std::function<void(Readiness)>>(std::move(fn));
    Look(descriptor);
    return absl::OkStatus();
  }

  absl::Status SetInterest(int descriptor, Readiness interest) override {
    CHECK(InThread());
    const auto watch = watches_.find(descriptor);
    CHECK(watch != watches_.end()) << "descriptor " << descriptor << " is not watched";
    watch->second->interest = interest;
    Look(descriptor);
    return absl::OkStatus();
  }

  void Unwatch(int descriptor) override {
    CHECK(InThread());
    const auto watch = watches_.find(descriptor);
    if (watch == watches_.end()) return;
    process_.MakeIdle(&watch->second->source);
    watches_.erase(watch);
    world_.descriptors_.at(descriptor).watcher = nullptr;
  }

  bool InThread() const override { return world_.running_ == this; }

  const SimProcess& process() const { return process_; }

  // The descriptor may be ready, or not any more.
  void Look(int descriptor) {
    SimWatch& watch = *watches_.at(descriptor);
    const Readiness ready = ReadinessOf(watch);
    if (ready.readable || ready.writable) {
      process_.MakeRunnable(&watch.source);
    } else {
      process_.MakeIdle(&watch.source);
    }
  }

  void Run(Source& source) {
    switch (source.kind) {
      case Source::Kind::kPosted:
        TakePosted(source)();
        return;
      case Source::Kind::kPollable:
        // Idle while it polls: a Wake meanwhile counts.
        process_.MakeIdle(&poll_);
        if (pollable_->Poll()) Wake();
        return;
      case Source::Kind::kWatch: {
        // It stays runnable as long as the descriptor is ready. Shared with this frame: the
        // function may unwatch its own descriptor.
        const SimWatch& watch = *watches_.at(source.descriptor);
        const auto fn = watch.fn;
        (*fn)(ReadinessOf(watch));
        return;
      }
    }
  }

 private:
  struct SimWatch {
    Source source;
    Readiness interest;
    std::shared_ptr<std::function<void(Readiness)>> fn;
  };

  Readiness ReadinessOf(const SimWatch& watch) const {
    const Simulation::DescriptorState& state =
        world_.descriptors_.at(watch.source.descriptor).state;
    return {.readable = state.is_broken || (state.readable && watch.interest.readable),
            .writable = state.is_broken || (state.writable && watch.interest.writable)};
  }

  absl::AnyInvocable<void()> TakePosted(Source& source) {
    absl::AnyInvocable<void()> fn = std::move(source.posted.front());
    source.posted.pop_front();
    if (source.posted.empty()) process_.MakeIdle(&source);
    return fn;
  }

  SimProcess& process_;
  World& world_;
  const std::string name_;
  const size_t number_;
  std::vector<std::unique_ptr<Source>> sources_;  // by the poster's number
  std::map<int, std::unique_ptr<SimWatch>> watches_;
  Source poll_;
  Pollable* pollable_ = nullptr;
};

// ---- SimProcess ---------------------------------------------------------------------------------

Nanoseconds SimProcess::Now() const { return is_dead_ ? own_now_ : world_.now_; }

std::unique_ptr<Reactor> SimProcess::StartReactor(std::string_view name) {
  return std::make_unique<SimReactor>(this, name);
}

void SimProcess::Run(size_t candidate) {
  if (candidate == runnable_.size()) {
    SimTimer timer = timers_.TakeEarliest();
    world_.running_ = timer.reactor;
    timer.fn();
  } else {
    Source* source = runnable_[candidate];
    world_.running_ = source->reactor;
    source->reactor->Run(*source);
  }
  world_.running_ = nullptr;
}

absl::Status SimProcess::Await(Event& event, Nanoseconds timeout) {
  CHECK(world_.running_ == nullptr) << "Await is for the host thread, not for a reactor's";
  return is_dead_ ? AwaitAlone(event, timeout) : world_.Await(*this, event, timeout);
}

absl::Status SimProcess::AwaitAlone(Event& event, Nanoseconds timeout) {
  const Nanoseconds deadline = own_now_ + std::min(timeout, kLongestAfterlife);
  while (!event.is_set()) {
    if (own_now_ >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrFormat("not set in process '%s', which was killed", name_));
    }
    if (const size_t n = candidates(own_now_); n > 0) {
      Run(afterlife_.Below(n));
      own_now_ += 1 + static_cast<Nanoseconds>(afterlife_.Below(kMaxEventTime));
      continue;
    }
    if (timers_.empty()) {
      return absl::InternalError(
          absl::StrFormat("no event left in process '%s', which was killed", name_));
    }
    own_now_ = std::min(timers_.earliest(), deadline);
  }
  return absl::OkStatus();
}

// ---- World --------------------------------------------------------------------------------------

bool World::Step() {
  const bool has_event = !events_.empty() && events_.earliest() <= now_;
  size_t candidates = has_event ? 1 : 0;
  for (const auto& process : processes_) {
    if (process->can_run()) candidates += process->candidates(now_);
  }
  if (candidates == 0) return false;
  size_t chosen = choice_.Below(candidates);
  ++num_events_;
  Note(chosen);
  Note(static_cast<uint64_t>(now_));
  // Of the processes in their order, then of the world.
  SimProcess* runs = nullptr;
  for (const auto& process : processes_) {
    if (!process->can_run()) continue;
    const size_t its = process->candidates(now_);
    if (chosen < its) {
      runs = process.get();
      break;
    }
    chosen -= its;
  }
  if (runs != nullptr) {
    runs->Run(chosen);
  } else {
    events_.TakeEarliest()();
  }
  now_ += 1 + static_cast<Nanoseconds>(choice_.Below(kMaxEventTime));
  if (auto due = after_events_.extract(num_events_)) due.mapped()();
  return true;
}

Nanoseconds World::NextTime() const {
  Nanoseconds next = events_.empty() ? kNever : events_.earliest();
  for (const auto& process : processes_) {
    if (process->can_run()) next = std::min(next, process->next_timer());
  }
  return next;
}

absl::Status World::Await(SimProcess& waiting, Event& event, Nanoseconds timeout) {
  const Nanoseconds deadline = timeout < kNever - now_ ? now_ + timeout : kNever;
  while (!event.is_set() || waiting.is_paused_) {
    if (!waiting.is_paused_ && now_ >= deadline) {
      return absl::DeadlineExceededError(absl::StrFormat("not set within %.3f simulated s",
                                                         static_cast<double>(timeout) / kSecond));
    }
    if (Step()) {
      if (waiting.is_dead_) {
        return absl::AbortedError(absl::StrFormat("process '%s' was killed", waiting.name_));
      }
      continue;
    }
    const Nanoseconds next = NextTime();
    if (next == kNever) {
      return absl::InternalError("no event left: nothing can set what the host waits for");
    }
    now_ = waiting.is_paused_ ? next : std::min(next, deadline);
  }
  return absl::OkStatus();
}

void World::HoldPosts(int number, std::string_view reactors) {
  SimProcess& process = *processes_.at(number);
  if (process.is_dead_) return;
  process.held_ = std::string(reactors);
  for (SimReactor* const reactor : process.reactors_) reactor->LookAtPosts();
}

void World::ReleasePosts(int number) {
  SimProcess& process = *processes_.at(number);
  process.held_ = std::nullopt;
  for (SimReactor* const reactor : process.reactors_) reactor->LookAtPosts();
}

void World::Kill(int number) {
  SimProcess& process = *processes_.at(number);
  if (process.is_dead_) return;
  CHECK(running_ == nullptr || &running_->process() != &process)
      << "a process is killed from outside";
  ReleasePosts(number);
  process.is_dead_ = true;
  process.is_paused_ = false;
  process.own_now_ = now_;
  for (const auto& fn : on_killed_) fn(number);
}

void World::SetDescriptor(int number, DescriptorState state) {
  SimDescriptor& descriptor = descriptors_.at(number);
  descriptor.state = state;
  if (descriptor.watcher != nullptr) descriptor.watcher->Look(number);
}

// One process that has the simulation to itself.
class SoleProcess final : public Environment {
 public:
  explicit SoleProcess(uint64_t seed) : world_(seed), process_(world_.AddProcess("process")) {}

  Nanoseconds Now() const override { return process_.Now(); }
  std::unique_ptr<Reactor> StartReactor(std::string_view name) override {
    return process_.StartReactor(name);
  }
  std::unique_ptr<Event> MakeEvent() override { return process_.MakeEvent(); }
  absl::Status Await(Event& event, Nanoseconds timeout) override {
    return process_.Await(event, timeout);
  }
  bool is_simulated() const override { return true; }

 private:
  World world_;
  Environment& process_;
};

}  // namespace

std::unique_ptr<Environment> MakeSimulatedEnvironment(uint64_t seed) {
  return std::make_unique<SoleProcess>(seed);
}

std::unique_ptr<Simulation> MakeSimulation(uint64_t seed) { return std::make_unique<World>(seed); }

}  // namespace braid
