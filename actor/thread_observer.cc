#include "actor/thread_observer.h"

namespace braid {
namespace {

// Acts of at least this length are timed one by one: against it a look at the clock is nothing.
constexpr Nanoseconds kTimedAct = 5 * kMicrosecond;

}  // namespace

void ThreadObserver::OnPollBegin() {
  const Nanoseconds began = clock_.Now();
  if (has_more_) JudgePace(began - poll_began_);
  SetNow(poll_began_ = began);
}

void ThreadObserver::OnIdle() {
  if (load_.is_idle()) return;
  const Nanoseconds now = clock_.Now();
  JudgePace(now - poll_began_);
  load_.BeginIdle(now);
}

void ThreadObserver::OnMailWhileIdle(const ThreadId& cause, bool has_work) {
  if (!has_work && cause.node != ThreadId::kHost) return;
  load_.EndIdle(now_, cause);
  // From a Run on it is others who are waited for.
  if (!has_work) load_.BeginIdle(now_);
}

void ThreadObserver::OnActEndOutsidePoll(const Action& action) {
  if (!load_.is_idle()) return;
  LookAtClock();
  load_.EndIdle(now_, action.LastAwaited());
}

void ThreadObserver::JudgePace(Nanoseconds time) {
  const int64_t acts = acts_done() - acts_judged_;
  if (acts == 0) return;
  acts_judged_ += acts;
  is_timing_ = time >= acts * kTimedAct;
}

void ActorObserver::Measure() {
  const Nanoseconds began = thread_.now();
  thread_.LookAtClock();
  ++timed_acts_;
  act_time_ += thread_.now() - began;
}

void ActorObserver::OnTimedEnd(int64_t index) {
  Measure();
  Record(ActorEvent::Kind::kEnd, index);
}

void ActorObserver::OnActGoesOn(int64_t index) {
  since_ = thread_.now();
  if (thread_.is_timing()) Measure();
  Record(ActorEvent::Kind::kGoesOn, index);
}

}  // namespace braid
