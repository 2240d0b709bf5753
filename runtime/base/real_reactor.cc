// The real reactor: a thread that sleeps on a futex, or, while it watches descriptors, in an epoll
// set with an eventfd that is written only to wake a sleeper. Most reactors, those of actor threads
// for instance, never watch one and so have none of their own.
#include "runtime/base/real_reactor.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/mutex.h"
#include "runtime/base/processors.h"
#include "runtime/base/spin_budget.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_limit.h"
#include "runtime/base/timer_queue.h"

namespace braid {
namespace {

// What an epoll event carries: these two, or the number of a watch.
constexpr uint64_t kWakeUp = 0;
constexpr uint64_t kTimer = 1;
constexpr uint64_t kFirstWatch = 2;

// Room for this many posted functions, and lookouts, from the start: a queue posts one at a time,
// so that a step in which the thread came late finds room as well.
constexpr size_t kMostPosted = 64;

// In place of std::terminate: what CheckThreads found free was taken meanwhile.
[[noreturn]] void EndWithoutThread(std::string_view name, const std::system_error& error) {
  const absl::Status limits = CheckThreads(1);
  std::fprintf(stderr, "error: thread '%s' cannot be started: %s\n", std::string(name).c_str(),
               limits.ok() ? error.what() : std::string(limits.message()).c_str());
  _exit(1);
}

class RealReactor : public Reactor {
 public:
  RealReactor(std::string_view name, Nanoseconds start) : start_(start) {
    posted_.reserve(kMostPosted);
    running_.reserve(kMostPosted);
    lookouts_.reserve(kMostPosted);
    try {
      thread_ = std::thread([this] { Loop(); });
    } catch (const std::system_error& error) {
      EndWithoutThread(name, error);
    }
    pthread_setname_np(thread_.native_handle(), std::string(name.substr(0, 15)).c_str());
  }

  ~RealReactor() override {
    CHECK(!InThread()) << "a reactor cannot be destroyed by its own thread";
    Post([this] { is_stopping_ = true; });
    thread_.join();
    int posting = 0;
    while ((posting = posting_.load(std::memory_order_acquire)) > 0) posting_.wait(posting);
  }

  Nanoseconds Now() const override { return MonotonicClock() - start_; }

  void Post(absl::AnyInvocable<void()> fn) override {
    {
      MutexLock lock(posted_mutex_);
      posted_.push_back(std::move(fn));
      posting_.fetch_add(1, std::memory_order_relaxed);
    }
    has_posted_.store(true, std::memory_order_release);
    Wake();
    if (posting_.fetch_sub(1, std::memory_order_release) == 1) posting_.notify_all();
  }

  // The exchange publishes what the caller wrote before (to its own queue) to the loop, which
  // exchanges too before it looks.
  void Wake() override {
    if (signal_.load(std::memory_order_relaxed) == kAsleep) woken_at_.store(MonotonicClock());
    const int before = signal_.exchange(kSignalled, std::memory_order_acq_rel);
    if (before == kAsleep || before == kPolling) {
      loops_awake.fetch_add(1, std::memory_order_relaxed);
    }
    if (before == kAsleep) {
      syscall(SYS_futex, &signal_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    } else if (before == kPolling) {
      const uint64_t one = 1;
      PCHECK(write(wake_up_.number(), &one, sizeof(one)) == sizeof(one));
    } else if (before == kFree) {
      MutexLock lock(loan_mutex_);
      if (driver_ == Driver::kNobody) driver_ = Driver::kOwnThread;
      loan_changed_.notify_all();
    }
  }

  bool RunUntil(absl::AnyInvocable<void()> first, absl::FunctionRef<bool()> is_done) override {
    if (InThread()) return Reactor::RunUntil(std::move(first), is_done);
    const bool was_free = BorrowFree();
    if (first) Post(std::move(first));
    if (!was_free && !BorrowFromOwnThread()) return false;
    while (!is_stopping_ && !is_done()) Round(is_done, /*is_lent=*/true);
    GiveBack();
    return true;
  }

  void SetPollable(Pollable* pollable) override {
    pollable_.store(pollable, std::memory_order_release);
    Wake();
  }

  void RemovePollable(Pollable* pollable) override {
    CHECK(InThread()) << "a pollable is removed on the reactor's thread";
    pollable_.compare_exchange_strong(pollable, nullptr, std::memory_order_acq_rel);
  }

  TimerId RunAfter(Nanoseconds delay, absl::AnyInvocable<void()> fn) override {
    CHECK(InThread());
    const TimerId id = next_timer_++;
    timers_.Add(id, Now() + std::min(delay, kForever), /*tie=*/0, std::move(fn));
    return id;
  }

  void CancelTimer(TimerId id) override {
    CHECK(InThread());
    timers_.Cancel(id);
  }

  absl::Status Watch(int descriptor, Readiness interest,
                     std::function<void(Readiness)> fn) override {
    CHECK(InThread());
    BRAID_RETURN_IF_ERROR(OpenPoll());
    const auto known = watch_of_.find(descriptor);
    const bool is_new = known == watch_of_.end();
    epoll_event event{};
    event.events = EventsOf(interest);
    event.data.u64 = next_watch_;
    if (epoll_ctl(epoll_.number(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, descriptor, &event) !=
        0) {
      return absl::ErrnoToStatus(errno, absl::StrFormat("cannot watch descriptor %d", descriptor));
    }
    if (!is_new) watches_.erase(known->second);
    watch_of_[descriptor] = next_watch_;
    watches_[next_watch_] = std::make_shared<WatchFunction>(std::move(fn));
    ++next_watch_;
    return absl::OkStatus();
  }

  absl::Status SetInterest(int descriptor, Readiness interest) override {
    CHECK(InThread());
    const auto known = watch_of_.find(descriptor);
    CHECK(known != watch_of_.end()) << "descriptor " << descriptor << " is not watched";
    epoll_event event{};
    event.events = EventsOf(interest);
    event.data.u64 = known->second;
    if (epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, descriptor, &event) == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrFormat("cannot watch descriptor %d", descriptor));
  }

  void Unwatch(int descriptor) override {
    CHECK(InThread());
    const auto known = watch_of_.find(descriptor);
    if (known == watch_of_.end()) return;
    // Fails if it was closed: as good.
    epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr);
    watches_.erase(known->second);
    watch_of_.erase(known);
  }

  void LookOut(Lookout* lookout) override {
    CHECK(InThread());
    if (std::ranges::find(lookouts_, lookout) == lookouts_.end()) lookouts_.push_back(lookout);
  }

  void LookAway(Lookout* lookout) override {
    CHECK(InThread());
    std::erase(lookouts_, lookout);
  }
  bool looks_out() const override { return true; }

  bool InThread() const override {
    return thread_id_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

 private:
  using WatchFunction = std::function<void(Readiness)>;
  // Asleep: on the futex. Free: nobody drives the loop.
  enum Signal : int { kAwake, kSignalled, kAsleep, kPolling, kFree };
  enum class Driver { kOwnThread, kNobody, kBorrower };

  static uint32_t EventsOf(Readiness interest) {
    return (interest.readable ? EPOLLIN : 0u) | (interest.writable ? EPOLLOUT : 0u);
  }

  // What waiting for descriptors takes; once.
  absl::Status OpenPoll() {
    if (epoll_.is_open()) return absl::OkStatus();
    Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
    Descriptor wake_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    Descriptor timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (epoll.number() < 0 || wake_up.number() < 0 || timer.number() < 0 ||
        !AddOwn(epoll.number(), wake_up.number(), kWakeUp) ||
        !AddOwn(epoll.number(), timer.number(), kTimer)) {
      return absl::ErrnoToStatus(errno, "cannot wait for descriptors");
    }
    epoll_ = std::move(epoll);
    wake_up_ = std::move(wake_up);
    timer_ = std::move(timer);
    return absl::OkStatus();
  }

  static bool AddOwn(int epoll, int descriptor, uint64_t what) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = what;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
  }

  void Loop() {
    thread_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    loops_awake.fetch_add(1, std::memory_order_relaxed);
    const auto is_wanted = [this] { return is_wanted_.load(std::memory_order_acquire); };
    while (!is_stopping_) {
      Round(is_wanted, /*is_lent=*/false);
      if (is_wanted()) Lend();
    }
    loops_awake.fetch_sub(1, std::memory_order_relaxed);
  }

  // Does what there is to do; sleeps if there is nothing and `is_done` is false.
  void Round(absl::FunctionRef<bool()> is_done, bool is_lent) {
    if (signal_.load(std::memory_order_relaxed) == kSignalled) {
      signal_.exchange(kAwake, std::memory_order_acq_rel);
    }
    RunPosted();
    RunTimers();
    LookAround();
    Pollable* pollable = pollable_.load(std::memory_order_acquire);
    const bool has_more = pollable != nullptr && pollable->Poll();
    if (is_stopping_ || is_done()) {
      if (has_more) signal_.store(kSignalled, std::memory_order_release);
      return;
    }
    if (has_more) {
      if (!watches_.empty()) RunReady(/*timeout=*/0);
      return;
    }
    if ((MaySpin(is_lent) && Spin()) || !LetLookoutsSleep()) {
      // Whoever has much to do there does not keep others from being heard.
      if (++deaf_rounds_ >= kDeafRounds && !watches_.empty()) RunReady(/*timeout=*/0);
      return;
    }
    int awake = kAwake;
    // Before it says so: whoever wakes it counts it at once.
    loops_awake.fetch_sub(1, std::memory_order_relaxed);
    const Signal asleep = watches_.empty() ? kAsleep : kPolling;
    if (signal_.compare_exchange_strong(awake, asleep, std::memory_order_acq_rel)) {
      const Nanoseconds began = MonotonicClock();
      if (asleep == kAsleep) {
        Sleep();
      } else {
        ArmTimer();
        RunReady(/*timeout=*/-1);
      }
      const Nanoseconds woken_at = woken_at_.load(std::memory_order_relaxed);
      const Nanoseconds now = MonotonicClock();
      if (now - began < LongestSpin()) budget_.Pay(LongestSpin());
      if (woken_at >= began) budget_.NoteTurn(woken_at, now);
    } else {
      loops_awake.fetch_add(1, std::memory_order_relaxed);
      if (!watches_.empty()) RunReady(/*timeout=*/0);
    }
  }

  // Whether something was there. All have their turn, though one may always find something; what is
  // found may change the list.
  bool LookAround() {
    bool found = false;
    for (size_t i = 0; i < lookouts_.size(); ++i) found = lookouts_[i]->Look() || found;
    return found;
  }

  bool LetLookoutsSleep() {
    while (!lookouts_.empty()) {
      if (!lookouts_.back()->Sleep()) return false;
      lookouts_.pop_back();
    }
    return true;
  }

  // Whoever has borrowed the loop waits for what comes from elsewhere. The loop's own thread looks
  // for what other threads signal, for which it need not ask the system, while each thread that
  // runs a loop has a processor, and no other program wants one.
  bool MaySpin(bool is_lent) const {
    if (is_lent) return !watches_.empty();
    return watches_.empty() && HasProcessor() && budget_.MayLook(MonotonicClock());
  }
  Nanoseconds LongestSpin() const { return watches_.empty() ? kLongestLook : kLongestSpin; }
  bool HasProcessor() const { return loops_awake.load(std::memory_order_relaxed) <= processors_; }

  // True if something came.
  bool Spin() {
    const Nanoseconds began = MonotonicClock();
    Nanoseconds looked = began;
    bool is_alone = true;
    do {
      for (int i = 0; i < kLooks && (!lookouts_.empty() || watches_.empty()); ++i) {
        if (signal_.load(std::memory_order_relaxed) == kSignalled || LookAround()) {
          budget_.Pay(LongestSpin());
          return true;
        }
      }
      if ((!watches_.empty() && RunReady(/*timeout=*/0) > 0) ||
          signal_.load(std::memory_order_relaxed) == kSignalled) {
        budget_.Pay(LongestSpin());
        return true;
      }
      if (!watches_.empty()) sched_yield();  // there may be more ranks than processors
      const Nanoseconds before = std::exchange(looked, MonotonicClock());
      is_alone = !watches_.empty() || (budget_.NoteTurn(before, looked) && HasProcessor());
    } while (looked - began < budget_.spin() && is_alone);
    budget_.Fail(is_alone);
    return false;
  }

  // ---- Lending the loop: who drives is decided under loan_mutex_, which hands over what is the
  // loop's own.

  bool BorrowFree() {
    MutexLock lock(loan_mutex_);
    if (driver_ != Driver::kNobody) return false;
    TakeLoop();
    return true;
  }

  // False if another thread has borrowed it.
  bool BorrowFromOwnThread() {
    std::unique_lock<std::mutex> lock(loan_mutex_.native());
    if (is_wanted_.load(std::memory_order_relaxed) || driver_ == Driver::kBorrower) return false;
    is_wanted_.store(true, std::memory_order_release);
    if (driver_ == Driver::kOwnThread) {
      lock.unlock();
      Wake();
      lock.lock();
      loan_changed_.wait(lock, [this] { return driver_ == Driver::kNobody; });
    }
    is_wanted_.store(false, std::memory_order_relaxed);
    TakeLoop();
    return true;
  }

  // Whether something may come that tells no driver of itself. By who drives.
  bool NeedsLooks() const { return !watches_.empty() || !timers_.empty() || !lookouts_.empty(); }

  void TakeLoop() {
    driver_ = Driver::kBorrower;
    ++loans_;
    loops_awake.fetch_add(1, std::memory_order_relaxed);
    thread_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    // What was signalled before stays so, for a round or for whoever drives next.
    int free = kFree;
    signal_.compare_exchange_strong(free, kAwake, std::memory_order_acq_rel);
  }

  void GiveBack() {
    // What the last round has posted to itself, or left undone, would wake the own thread.
    constexpr int kMostRounds = 4;
    for (int i = 0; i < kMostRounds && signal_.load(std::memory_order_relaxed) == kSignalled; ++i) {
      Round([] { return true; }, /*is_lent=*/true);
    }
    loops_awake.fetch_sub(1, std::memory_order_relaxed);
    MutexLock lock(loan_mutex_);
    thread_id_.store({}, std::memory_order_relaxed);
    int awake = kAwake;
    const bool is_idle =
        !is_stopping_ && signal_.compare_exchange_strong(awake, kFree, std::memory_order_acq_rel);
    driver_ = is_idle ? Driver::kNobody : Driver::kOwnThread;
    needs_looks_ = NeedsLooks();
    // Else its own thread looks by itself, after a while, or need not look.
    if (!is_idle || (is_own_thread_asleep_ && needs_looks_) ||
        is_wanted_.load(std::memory_order_relaxed)) {
      loan_changed_.notify_all();
    }
  }

  // The loop's own thread, until it has the loop again: something is to be done that no borrower
  // does, or nobody has borrowed it for a while, and not all that may come says so.
  void Lend() {
    loops_awake.fetch_sub(1, std::memory_order_relaxed);
    std::unique_lock<std::mutex> lock(loan_mutex_.native());
    thread_id_.store({}, std::memory_order_relaxed);
    driver_ = Driver::kNobody;
    needs_looks_ = NeedsLooks();
    loan_changed_.notify_all();
    Nanoseconds patience = kShortestLoan;
    uint64_t seen = loans_;
    while (driver_ != Driver::kOwnThread) {
      is_own_thread_asleep_ = driver_ == Driver::kBorrower ? loans_ == seen : !needs_looks_;
      seen = loans_;
      if (is_own_thread_asleep_) {
        loan_changed_.wait(lock);
      } else if (loan_changed_.wait_for(lock, std::chrono::nanoseconds(patience)) ==
                     std::cv_status::timeout &&
                 driver_ == Driver::kNobody && loans_ == seen && !is_wanted_) {
        driver_ = Driver::kOwnThread;
      }
      is_own_thread_asleep_ = false;
      patience = std::min(2 * patience, kLongestLoan);
    }
    thread_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    loops_awake.fetch_add(1, std::memory_order_relaxed);
    signal_.exchange(kAwake, std::memory_order_acq_rel);
  }

  void RunPosted() {
    if (!has_posted_.load(std::memory_order_acquire)) return;
    running_.clear();
    {
      MutexLock lock(posted_mutex_);
      has_posted_.store(false, std::memory_order_relaxed);
      running_.swap(posted_);
    }
    for (absl::AnyInvocable<void()>& fn : running_) {
      fn();
      fn = nullptr;
    }
  }

  void RunTimers() {
    if (timers_.empty()) return;
    const Nanoseconds now = Now();
    while (!timers_.empty() && timers_.earliest() <= now) timers_.TakeEarliest()();
  }

  // When the earliest timer is due, on CLOCK_MONOTONIC; kNever if there is none.
  Nanoseconds Deadline() const {
    return timers_.empty() ? kNever : std::max<Nanoseconds>(start_ + timers_.earliest(), 1);
  }

  static timespec TimeOf(Nanoseconds at) {
    timespec time{};
    time.tv_sec = at / kSecond;
    time.tv_nsec = at % kSecond;
    return time;
  }

  // Until Wake or the earliest timer; or for less, since the loop looks again.
  void Sleep() {
    const Nanoseconds deadline = Deadline();
    const timespec until = TimeOf(deadline == kNever ? 0 : deadline);
    syscall(SYS_futex, &signal_, FUTEX_WAIT_BITSET_PRIVATE, kAsleep,
            deadline == kNever ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
    WakeUp();
  }

  // A round follows, also if the loop is lent or given back before.
  void WakeUp() {
    const int before = signal_.exchange(kSignalled, std::memory_order_acq_rel);
    if (before != kSignalled) loops_awake.fetch_add(1, std::memory_order_relaxed);
  }

  void ArmTimer() {
    const Nanoseconds wanted = Deadline();
    if (wanted == armed_) return;
    itimerspec spec{};  // all zero disarms
    if (wanted != kNever) spec.it_value = TimeOf(wanted);
    PCHECK(timerfd_settime(timer_.number(), TFD_TIMER_ABSTIME, &spec, nullptr) == 0);
    armed_ = wanted;
  }

  // Waits in the kernel and calls what became ready. `timeout` as of epoll_wait: 0 or -1. How many
  // descriptors were.
  int RunReady(int timeout) {
    deaf_rounds_ = 0;
    std::array<epoll_event, 64> events;
    const int n = epoll_wait(epoll_.number(), events.data(), events.size(), timeout);
    const int error = errno;
    if (timeout != 0) WakeUp();
    PCHECK(n >= 0 || error == EINTR) << "epoll_wait";
    for (int i = 0; i < n; ++i) {
      const uint64_t what = events[i].data.u64;
      uint64_t count;
      if (what == kWakeUp) {
        [[maybe_unused]] const ssize_t bytes = read(wake_up_.number(), &count, sizeof(count));
        continue;
      }
      if (what == kTimer) {
        [[maybe_unused]] const ssize_t bytes = read(timer_.number(), &count, sizeof(count));
        armed_ = kNever;
        continue;
      }
      const auto watch = watches_.find(what);
      if (watch == watches_.end()) continue;  // unwatched by a call earlier in this batch
      const bool is_broken = (events[i].events & (EPOLLERR | EPOLLHUP)) != 0;
      // Shared with this frame: the function may unwatch its own descriptor.
      const std::shared_ptr<WatchFunction> fn = watch->second;
      (*fn)({.readable = is_broken || (events[i].events & EPOLLIN) != 0,
             .writable = is_broken || (events[i].events & EPOLLOUT) != 0});
    }
    return n;
  }

  static constexpr Nanoseconds kNever = -1;
  // About as long as a wake-up takes; and as what a device of a step waits for another, where no
  // system call is made meanwhile.
  static constexpr Nanoseconds kLongestSpin = 40 * kMicrosecond;
  static constexpr Nanoseconds kLongestLook = 100 * kMicrosecond;
  // As many as take about as long as the system calls between them.
  static constexpr int kLooks = 100;
  // In which lookouts found something and no descriptor was looked at.
  static constexpr int kDeafRounds = 16;
  // How long a loop that was lent stays free for the next to borrow it, while it often is.
  static constexpr Nanoseconds kShortestLoan = 100 * kMicrosecond;
  static constexpr Nanoseconds kLongestLoan = kMillisecond;

  // Threads of the process that drive a loop and do not sleep, or were woken and will do so.
  alignas(64) inline static std::atomic<int> loops_awake{0};

  const Nanoseconds start_;
  const int processors_ = UsableProcessors();  // its own thread's
  Descriptor epoll_;                           // none until something is watched; so the next two
  Descriptor wake_up_;
  Descriptor timer_;

  alignas(64) std::atomic<int> signal_{kAwake};
  static_assert(std::atomic<int>::is_always_lock_free && sizeof(std::atomic<int>) == sizeof(int));
  // By who is about to wake a sleeper of the futex: once woken, that one may end, and this with it.
  std::atomic<Nanoseconds> woken_at_{0};
  alignas(64) std::atomic<bool> has_posted_{false};
  std::atomic<Pollable*> pollable_{nullptr};
  std::atomic<std::thread::id> thread_id_{};
  Mutex posted_mutex_;
  std::vector<absl::AnyInvocable<void()>> posted_ BRAID_GUARDED_BY(posted_mutex_);
  // Posts that still use this object. What they posted may have run, and somebody who heard of it
  // be destroying the reactor.
  std::atomic<int> posting_{0};

  // The loop's own.
  std::vector<absl::AnyInvocable<void()>> running_;
  TimerQueue<absl::AnyInvocable<void()>> timers_;
  TimerId next_timer_ = 1;
  Nanoseconds armed_ = kNever;
  std::unordered_map<int, uint64_t> watch_of_;  // descriptor -> watch
  std::unordered_map<uint64_t, std::shared_ptr<WatchFunction>> watches_;
  uint64_t next_watch_ = kFirstWatch;
  std::vector<Lookout*> lookouts_;  // that do not sleep
  bool is_stopping_ = false;
  SpinBudget budget_{kLongestLook};
  int deaf_rounds_ = 0;

  Mutex loan_mutex_;
  std::condition_variable loan_changed_;
  // Under loan_mutex_. Whoever drives has what is the loop's own.
  Driver driver_ = Driver::kOwnThread;
  uint64_t loans_ = 0;
  bool is_own_thread_asleep_ = false;  // until it is told
  bool needs_looks_ = true;
  std::atomic<bool> is_wanted_{false};

  std::thread thread_;
};

}  // namespace

Nanoseconds MonotonicClock() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

std::unique_ptr<Reactor> StartRealReactor(std::string_view name, Nanoseconds start) {
  return std::make_unique<RealReactor>(name, start);
}

}  // namespace braid
