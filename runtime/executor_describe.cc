// What an Executor says of itself: states of its actors and threads for reports, and their last
// events after a failure.
#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/control.pb.h"
#include "runtime/executor.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

// A thread that has not answered by then is inside an act.
constexpr Nanoseconds kAnswerLimit = kSecond / 2;
// Of a report: a node with more says how many it left out.
constexpr size_t kMaxDescribedActors = 2000;

void SetPlace(const ActorId& id, control::ActorPlace& place) {
  place.set_node(id.node);
  place.set_thread(id.thread);
  place.set_task(id.task);
}

bool IsActing(const ActorReport& actor) {
  return !actor.waits.empty() && actor.waits[0].what == Wait::For::kAction;
}

// The first kMaxDescribedActors in the order in which they matter: acts under way, and what actors
// of other threads wait for, then what those wait for here, and so on; then the rest.
std::vector<const ActorReport*> ChooseActors(const std::vector<ActorReport>& actors) {
  std::map<uint32_t, const ActorReport*> actor_of_task;
  for (const ActorReport& actor : actors) actor_of_task[actor.id.task] = &actor;
  std::vector<const ActorReport*> chosen;
  std::set<const ActorReport*> known;
  const auto add = [&](const ActorReport* actor) {
    if (known.insert(actor).second) chosen.push_back(actor);
  };
  for (const ActorReport& actor : actors) {
    if (IsActing(actor)) add(&actor);
  }
  for (const ActorReport& actor : actors) {
    if (!actor.sent.empty() || !actor.acknowledged.empty()) add(&actor);
  }
  for (size_t i = 0; i < chosen.size() && i < kMaxDescribedActors; ++i) {
    for (const Wait& wait : chosen[i]->waits) {
      const auto peer = actor_of_task.find(wait.peer.task);
      if (wait.peer.node == chosen[i]->id.node && peer != actor_of_task.end()) add(peer->second);
    }
  }
  for (const ActorReport& actor : actors) add(&actor);
  if (chosen.size() > kMaxDescribedActors) chosen.resize(kMaxDescribedActors);
  return chosen;
}

}  // namespace

std::string Executor::TitleOf(const plan::Task& task) {
  if (const auto* compute = std::get_if<plan::Compute>(&task.work);
      compute != nullptr && !compute->kernels.empty()) {
    const compiler::KernelCall& first = *compute->kernels.front().call;
    const compiler::KernelCall& last = *compute->kernels.back().call;
    std::string title = absl::StrFormat("%s '%s'", first.op, first.name);
    std::vector<std::string> notes;
    if (compute->kernels.size() > 1) {
      title += absl::StrFormat(" to %s '%s'", last.op, last.name);
      notes.push_back(absl::StrFormat("%d ops", compute->kernels.size()));
    }
    const std::string location = first.location.ToString();
    if (!location.empty()) notes.push_back(location);
    return notes.empty() ? title : title + " (" + absl::StrJoin(notes, ", ") + ")";
  }
  if (const auto* transfer = std::get_if<plan::Transfer>(&task.work)) {
    return absl::StrFormat("transfer '%s' to node %d", task.name, transfer->peer);
  }
  if (const auto* collective = std::get_if<plan::Collective>(&task.work)) {
    return absl::StrFormat("%s '%s'", CollectiveKindName(collective->kind), task.name);
  }
  if (std::holds_alternative<plan::VariableOwner>(task.work)) {
    return absl::StrFormat("variables '%s'", task.name);
  }
  return absl::StrFormat("copy '%s'", task.name);
}

void Executor::DescribeActor(const ActorReport& actor, Nanoseconds now,
                             control::ActorState& state) const {
  const auto description = descriptions_.find(actor.id.task);
  state.set_thread(actor.id.thread);
  state.set_task(actor.id.task);
  if (description != descriptions_.end()) {
    state.set_title(description->second.title);
    state.set_collective(description->second.collective);
  }
  state.set_acts_done(actor.acts_done);
  state.set_acts_credited(actor.acts_credited);
  state.set_since(std::max<Nanoseconds>(now - actor.since, 0));
  state.set_doing(actor.waits.empty() ? control::ActorState::NEXT : control::ActorState::WAITING);
  for (const Wait& wait : actor.waits) {
    switch (wait.what) {
      case Wait::For::kAction:
        state.set_doing(control::ActorState::ACTING);
        break;
      case Wait::For::kCredit:
        state.set_doing(control::ActorState::DONE);
        break;
      case Wait::For::kReady:
      case Wait::For::kAck: {
        control::WaitFor& out = *state.add_waits();
        out.set_is_ack(wait.what == Wait::For::kAck);
        out.set_register_(wait.reg);
        out.set_slot(wait.slot);
        out.set_piece(wait.piece);
        SetPlace(wait.peer, *out.mutable_peer());
        break;
      }
    }
  }
  for (const ThreadId& thread : actor.awaits) {
    if (thread.node < 0) continue;
    SetPlace({static_cast<uint16_t>(thread.node), static_cast<uint16_t>(std::max(thread.thread, 0)),
              kWholeThread},
             *state.add_awaits());
  }
  const auto count = [](const std::vector<EndCount>& counts, auto* out) {
    for (const EndCount& count : counts) {
      control::EndCount& end = *out->Add();
      end.set_register_(count.reg);
      end.set_pieces(count.pieces);
    }
  };
  count(actor.sent, state.mutable_sent());
  count(actor.acknowledged, state.mutable_acknowledged());
}

void Executor::DescribeThread(const ThreadAnswer& answer, control::ThreadState& state) const {
  state.set_window(answer.load.window);
  state.set_idle(answer.load.idle);
  state.set_idle_now(answer.load.idle_now);
  for (const auto& [peer, time] : answer.load.waited) {
    if (peer.node == ThreadId::kHost) {
      state.set_for_program(time);
    } else if (peer.node >= 0) {
      control::ThreadState::Wait& wait = *state.add_waits();
      SetPlace({static_cast<uint16_t>(peer.node), static_cast<uint16_t>(std::max(peer.thread, 0)),
                kWholeThread},
               *wait.mutable_peer());
      wait.set_time(time);
    }
  }
  for (const ActorReport& actor : answer.actors) {
    if (actor.timed_acts == 0 || actor.act_time / actor.timed_acts <= state.slowest_time())
      continue;
    state.set_slowest_time(actor.act_time / actor.timed_acts);
    const auto description = descriptions_.find(actor.id.task);
    if (description != descriptions_.end()) state.set_slowest(description->second.title);
  }
}

void Executor::Describe(std::function<void(control::NodeReport)> done) {
  // Shared by the calls that come back from the threads, some maybe after this object.
  struct Answers {
    std::map<uint16_t, ThreadAnswer> of_thread;
    std::set<uint16_t> missing;
    bool is_told = false;
  };
  auto answers = std::make_shared<Answers>();
  for (const auto& [number, thread] : threads_) answers->missing.insert(number);
  const auto tell = [this, is_alive = is_alive_, answers, done = std::move(done)] {
    if (!*is_alive || std::exchange(answers->is_told, true)) return;
    control::NodeReport report;
    report.set_node(resources_.node);
    report.set_job(job_name_);
    report.set_acts_done(acts_done());
    report.set_is_running(is_running());
    std::vector<ActorReport> actors;
    const Nanoseconds now = resources_.control->Now();
    Nanoseconds advanced = -1;
    const auto advance = [&advanced](Nanoseconds ago) {
      advanced =
          advanced < 0 ? std::max<Nanoseconds>(ago, 0) : std::clamp<Nanoseconds>(ago, 0, advanced);
    };
    for (const auto& [number, thread] : threads_) {
      control::ThreadState& state = *report.add_threads();
      state.set_thread(number);
      if (answers->missing.contains(number)) {
        DescribeRunning(thread, state);
        if (!state.running().empty()) advance(state.running_for());
        continue;
      }
      ThreadAnswer& answer = answers->of_thread[number];
      DescribeThread(answer, state);
      actors.insert(actors.end(), std::make_move_iterator(answer.actors.begin()),
                    std::make_move_iterator(answer.actors.end()));
    }
    for (const ActorReport& actor : actors) {
      if (actor.acts_done > 0 || IsActing(actor)) advance(now - actor.since);
    }
    report.set_advanced(advanced);
    const std::vector<const ActorReport*> chosen = ChooseActors(actors);
    report.set_actors_left_out(static_cast<uint32_t>(actors.size() - chosen.size()));
    for (const ActorReport* actor : chosen) DescribeActor(*actor, now, *report.add_actors());
    done(std::move(report));
  };
  if (threads_.empty()) return tell();
  resources_.control->RunAfter(kAnswerLimit, tell);
  for (auto& [number, thread] : threads_) {
    thread.reactor->Post([control = resources_.control, number = number,
                          actors = thread.actors.get(), answers, tell] {
      control->Post(
          [number, answers, tell,
           answer = ThreadAnswer{actors->Describe(), actors->load(control->Now())}]() mutable {
            if (answers->is_told || answers->missing.erase(number) == 0) return;
            answers->of_thread[number] = std::move(answer);
            if (answers->missing.empty()) tell();
          });
    });
  }
}

void Executor::DescribeRunning(const Thread& thread, control::ThreadState& state) const {
  state.set_is_silent(true);
  const ActorThread::RunningAct running = thread.actors->running();
  if (running.spec == nullptr) return;
  const uint32_t task = running.spec->id.task;
  state.set_running_task(task);
  state.set_running_for(std::max<Nanoseconds>(resources_.control->Now() - running.since, 0));
  const auto description = descriptions_.find(task);
  if (description == descriptions_.end()) return;
  const ComputeAction* compute = description->second.compute;
  state.set_running(compute != nullptr ? compute->RunningCall() : description->second.title);
}

std::string Executor::DescribeEvents() const {
  std::string text;
  const Nanoseconds now = resources_.control->Now();
  for (const auto& [number, thread] : threads_) {
    absl::StrAppendFormat(&text, "\njob '%s', node %d, thread %d (device %d):\n", job_name_,
                          resources_.node, number, DeviceOfThread(number));
    for (const std::string& line : thread.actors->DescribeEvents(now)) text += line + "\n";
    control::ThreadState state;
    DescribeRunning(thread, state);
    if (!state.running().empty()) {
      absl::StrAppendFormat(&text, "it is inside %s, for %.6f s\n", state.running(),
                            static_cast<double>(state.running_for()) / kSecond);
    }
  }
  return text;
}

}  // namespace braid
