#include "tests/simulation/explored_environment.h"

#include <algorithm>

#include "glog/logging.h"

namespace braid {
namespace {

class ExploredEvent final : public Event {
 public:
  void Set() override { is_set_ = true; }
  bool is_set() const override { return is_set_; }

 private:
  bool is_set_ = false;
};

}  // namespace

class ExploredEnvironment::ExploredReactor final : public Reactor {
 public:
  explicit ExploredReactor(ExploredEnvironment* environment) : environment_(*environment) {
    environment_.reactors_.push_back(this);
    number_ = environment_.reactors_.size();
  }

  // As a real one: the work that was posted before still runs.
  ~ExploredReactor() override {
    for (auto& [poster, work] : posted_) {
      for (size_t left = work.size(); left > 0; --left) environment_.Run(this, Take(poster));
    }
    std::erase_if(environment_.runnable_,
                  [this](const Source& source) { return source.reactor == this; });
    std::erase_if(environment_.timers_,
                  [this](const auto& timer) { return timer.second.reactor == this; });
    environment_.reactors_[number_ - 1] = nullptr;
  }

  Nanoseconds Now() const override { return 0; }
  void Post(absl::AnyInvocable<void()> fn) override {
    const size_t poster = environment_.running_ == nullptr ? 0 : environment_.running_->number_;
    posted_[poster].push_back(std::move(fn));
    environment_.MakeRunnable({this, poster});
  }
  void Wake() override {
    if (pollable_ != nullptr) environment_.MakeRunnable({this, kPoll});
  }
  void SetPollable(Pollable* pollable) override {
    pollable_ = pollable;
    Wake();
  }
  void RemovePollable(Pollable* pollable) override {
    if (pollable_ == pollable) pollable_ = nullptr;
  }
  TimerId RunAfter(Nanoseconds delay, absl::AnyInvocable<void()> fn) override {
    const TimerId id = environment_.next_timer_++;
    environment_.timers_[{delay, id}] = {this, std::move(fn)};
    return id;
  }
  void CancelTimer(TimerId id) override {
    std::erase_if(environment_.timers_,
                  [id](const auto& timer) { return timer.first.second == id; });
  }
  absl::Status Watch(int, Readiness, std::function<void(Readiness)>) override {
    return absl::UnimplementedError("an explored reactor has no descriptors");
  }
  absl::Status SetInterest(int, Readiness) override {
    return absl::UnimplementedError("an explored reactor has no descriptors");
  }
  void Unwatch(int) override {}
  bool InThread() const override { return environment_.running_ == this; }

  absl::AnyInvocable<void()> Take(size_t poster) {
    std::deque<absl::AnyInvocable<void()>>& work = posted_[poster];
    absl::AnyInvocable<void()> fn = std::move(work.front());
    work.pop_front();
    return fn;
  }
  bool has_posted(size_t poster) const {
    const auto found = posted_.find(poster);
    return found != posted_.end() && !found->second.empty();
  }
  void Poll() {
    if (pollable_ != nullptr && pollable_->Poll()) Wake();
  }
  void AppendState(std::vector<int64_t>* state) const {
    for (const auto& [poster, work] : posted_) {
      if (!work.empty()) {
        state->insert(state->end(),
                      {static_cast<int64_t>(poster), static_cast<int64_t>(work.size())});
      }
    }
  }

 private:
  ExploredEnvironment& environment_;
  size_t number_ = 0;
  std::map<size_t, std::deque<absl::AnyInvocable<void()>>> posted_;  // by the poster's number
  Pollable* pollable_ = nullptr;
};

ExploredEnvironment::~ExploredEnvironment() {
  CHECK(std::all_of(reactors_.begin(), reactors_.end(), [](auto* r) { return r == nullptr; }))
      << "reactors must be destroyed before their environment";
}

void ExploredEnvironment::MakeRunnable(const Source& source) {
  if (std::find(runnable_.begin(), runnable_.end(), source) == runnable_.end()) {
    runnable_.push_back(source);
  }
}

void ExploredEnvironment::Run(ExploredReactor* reactor, absl::AnyInvocable<void()> fn) {
  last_ = reactor;
  ExploredReactor* const outer = std::exchange(running_, reactor);
  fn();
  running_ = outer;
}

bool ExploredEnvironment::Step() {
  if (runnable_.empty()) {
    if (timers_.empty()) return false;
    Timer timer = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    Run(timer.reactor, std::move(timer.fn));
    return true;
  }
  const size_t chosen = order_.Below(runnable_.size());
  const Source source = runnable_[chosen];
  // Not runnable while it runs: a Wake meanwhile counts.
  runnable_.erase(runnable_.begin() + static_cast<std::ptrdiff_t>(chosen));
  if (source.poster == kPoll) {
    Run(source.reactor, [&source] { source.reactor->Poll(); });
    return true;
  }
  absl::AnyInvocable<void()> fn = source.reactor->Take(source.poster);
  if (source.reactor->has_posted(source.poster)) MakeRunnable(source);
  Run(source.reactor, std::move(fn));
  return true;
}

const Reactor* ExploredEnvironment::last() const { return last_; }

void ExploredEnvironment::AppendState(std::vector<int64_t>* state) const {
  for (ExploredReactor* reactor : reactors_) {
    const bool is_polled =
        std::find(runnable_.begin(), runnable_.end(), Source{reactor, kPoll}) != runnable_.end();
    state->push_back(is_polled ? -1 : -2);
    if (reactor != nullptr) reactor->AppendState(state);
  }
  state->push_back(static_cast<int64_t>(timers_.size()));
}

std::unique_ptr<Reactor> ExploredEnvironment::StartReactor(std::string_view) {
  return std::make_unique<ExploredReactor>(this);
}

std::unique_ptr<Event> ExploredEnvironment::MakeEvent() {
  return std::make_unique<ExploredEvent>();
}

absl::Status ExploredEnvironment::Await(Event& event, Nanoseconds) {
  while (!event.is_set()) {
    if (!Step()) {
      return absl::InternalError("no event left: nothing can set what the host waits for");
    }
  }
  return absl::OkStatus();
}

}  // namespace braid
