// A small cluster for actor tests: nodes, threads and actors whose registers hold real numbers, so
// that a wrong order shows as a wrong value, and whose slots notice a write while read.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "actor/action.h"
#include "actor/actor_spec.h"
#include "actor/actor_thread.h"
#include "actor/message_bus.h"
#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/base/seeded_choice.h"

namespace braid {

enum class Completion { kInside, kLaterOnThread, kFromElsewhere };

struct ActorOptions {
  uint16_t node = 0;
  uint16_t thread = 0;
  uint32_t acts_per_step = 1;
  uint32_t lanes = 0;
  Completion completion = Completion::kInside;
  int64_t fails_at = -1;  // act
};

struct EdgeOptions {
  uint32_t slots = 1;
  uint32_t fill_period = 1;
  uint32_t use_period = 1;
  uint32_t tokens = 0;
  int32_t fill_lane = kNoLane;
  int32_t use_lane = kNoLane;
};

class ActorCluster {
 public:
  // Shuffled under simulation. `seed` draws orders and delays, unless `make_order` gives each
  // thread its order.
  using MakeOrder = std::function<std::unique_ptr<Choice>()>;
  ActorCluster(Environment* environment, uint64_t seed, MakeOrder make_order = nullptr)
      : environment_(*environment),
        seed_(seed),
        make_order_(std::move(make_order)),
        elsewhere_(environment->StartReactor("elsewhere")) {}

  ~ActorCluster() { Close(); }

  int AddActor(const std::string& name, ActorOptions options = {}) {
    const int actor = static_cast<int>(actors_.size());
    actors_.push_back(std::make_unique<Actor>());
    actors_.back()->options = options;
    actors_.back()->spec = {.id = {options.node, options.thread, static_cast<uint32_t>(actor)},
                            .name = name,
                            .inputs = {},
                            .outputs = {},
                            .acts_per_step = options.acts_per_step,
                            .lanes = options.lanes};
    return actor;
  }

  // The register's number.
  RegisterId AddRegister(int producer, const std::vector<int>& consumers,
                         EdgeOptions options = {}) {
    const auto reg = static_cast<RegisterId>(registers_.size());
    registers_.push_back(std::make_unique<Register>());
    registers_.back()->slots = std::vector<Slot>(options.slots);
    OutputSpec output{.reg = reg,
                      .slots = options.slots,
                      .period = options.fill_period,
                      .initial_tokens = options.tokens,
                      .consumers = {},
                      .lane = options.fill_lane};
    for (const int consumer : consumers) {
      output.consumers.push_back(actors_[consumer]->spec.id);
      actors_[consumer]->spec.inputs.push_back({.reg = reg,
                                                .producer = actors_[producer]->spec.id,
                                                .slots = options.slots,
                                                .period = options.use_period,
                                                .initial_tokens = options.tokens,
                                                .lane = options.use_lane});
    }
    actors_[producer]->spec.outputs.push_back(output);
    return reg;
  }

  ActorSpec& spec(int actor) { return actors_[actor]->spec; }

  absl::Status Start() {
    for (const auto& actor : actors_) {
      ActorThread& thread = ThreadOf(actor->spec.id.node, actor->spec.id.thread);
      const absl::Status status =
          thread.AddActor(actor->spec, std::make_unique<Work>(this, actor.get(), &thread));
      if (!status.ok()) return status;
    }
    for (auto& [number, node] : nodes_) {
      const absl::Status status = node->bus.Start();
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Gives credits and returns.
  void Run(int64_t steps) {
    steps_ += steps;
    for (auto& thread : threads_) thread->thread->Run(steps);
  }

  // Waits until every thread reported all steps, or one failed.
  absl::Status AwaitRun(Nanoseconds timeout = 30 * kSecond) {
    for (auto& thread : threads_) {
      while (true) {
        {
          MutexLock lock(mutex_);
          if (!failures_.empty()) return failures_.front();
          if (!thread->runs_done.empty() && thread->runs_done.back() == steps_) break;
          changed_ = environment_.MakeEvent();
        }
        const absl::Status status = environment_.Await(*changed_, timeout);
        MutexLock lock(mutex_);
        changed_.reset();
        if (!status.ok() && failures_.empty()) return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunAndAwait(int64_t steps) {
    Run(steps);
    return AwaitRun();
  }

  // Ends all threads; after this, results may be read.
  void Close() {
    if (is_closed_) return;
    is_closed_ = true;
    for (auto& thread : threads_) thread->thread->Abort(absl::CancelledError("test ends"));
    for (auto& thread : threads_) {
      EXPECT_EQ(environment_.Await(*thread->closed, 30 * kSecond), absl::OkStatus());
    }
    for (auto& [number, node] : nodes_) node->link.reset();
    for (auto& thread : threads_) thread->reactor.reset();
    elsewhere_.reset();
  }

  // What each act of the actor computed, in order. After Close, or at a simulated standstill.
  const std::vector<int64_t>& values(int actor) const { return actors_[actor]->values; }
  // For which lane each act was, of an actor that fires on `any`.
  const std::vector<int32_t>& lanes(int actor) const { return actors_[actor]->lanes; }
  // Steps as reported by a thread.
  const std::vector<int64_t>& runs_done(size_t thread) const { return threads_[thread]->runs_done; }
  // The actors in the order in which their acts started. Simulated only.
  const std::vector<int>& order() const { return order_; }
  std::vector<absl::Status> failures() const { return failures_; }
  int64_t conflicts() const { return conflicts_; }  // writes while read, reads while written
  int max_acts_at_once() const { return max_acting_; }
  ActorThread& ThreadOf(uint16_t node, uint16_t thread) {
    for (auto& known : threads_) {
      if (known->node == node && known->thread->number() == thread) return *known->thread;
    }
    threads_.push_back(std::make_unique<Thread>());
    Thread* const made = threads_.back().get();
    made->node = node;
    made->reactor = environment_.StartReactor(absl::StrFormat("actors %d/%d", node, thread));
    made->closed = environment_.MakeEvent();
    made->thread = std::make_unique<ActorThread>(
        ActorThreadOptions{.thread = thread,
                           .order = OrderOfNextThread(),
                           .on_run_done =
                               [this, made](int64_t steps) {
                                 MutexLock lock(mutex_);
                                 made->runs_done.push_back(steps);
                                 if (changed_) changed_->Set();
                               },
                           .on_failure =
                               [this](absl::Status status) {
                                 MutexLock lock(mutex_);
                                 failures_.push_back(std::move(status));
                                 if (changed_) changed_->Set();
                               },
                           .on_closed = [made] { made->closed->Set(); }},
        made->reactor.get(), &NodeOf(node).bus);
    return *made->thread;
  }
  // Of all actors, thread by thread. Simulated only.
  std::vector<ActorReport> Describe() const {
    std::vector<ActorReport> reports;
    for (const auto& thread : threads_) {
      for (ActorReport& report : thread->thread->Describe()) reports.push_back(std::move(report));
    }
    return reports;
  }
  // What the future depends on, the reactors' queues aside: two clusters of one graph with equal
  // states and queues go on in the same ways. Counters say which mails lie unread: what an actor
  // tells another is the same sequence in every order. Simulated only; acts do not end by timers.
  void AppendState(std::vector<int64_t>* state) const {
    for (const ActorReport& report : Describe()) {
      state->insert(state->end(),
                    {report.acts_done, report.acts_credited,
                     !report.waits.empty() && report.waits[0].what == Wait::For::kAction});
      for (const QueueDepth& queue : report.queues) state->push_back(queue.used);
    }
    for (const auto& [number, node] : nodes_) {
      for (const auto& [sender, messages] : node->arriving) {
        state->insert(state->end(), {sender.first, sender.second, -1});
        for (const Message& m : messages) {
          state->insert(state->end(), {m.dst.task, m.reg, static_cast<int>(m.kind), m.piece});
        }
      }
    }
    for (const auto& [thread, tasks] : ending_) {
      state->push_back(-2);
      state->insert(state->end(), tasks.begin(), tasks.end());
    }
    for (const auto& reg : registers_) {
      for (const Slot& slot : reg->slots) {
        state->insert(state->end(), {slot.value, slot.readers, slot.writers});
      }
    }
    for (const auto& actor : actors_) {
      state->push_back(-3);
      state->insert(state->end(), actor->values.begin(), actor->values.end());
    }
    state->insert(state->end(), {conflicts_, static_cast<int64_t>(failures_.size())});
  }
  MessageBus& bus(uint16_t node) { return NodeOf(node).bus; }
  int64_t remote_messages() const { return remote_messages_; }

 private:
  struct Slot {
    int64_t value = 0;
    std::atomic<int> readers{0};
    std::atomic<int> writers{0};
    Slot() = default;
    Slot(const Slot&) {}
  };
  struct Register {
    std::vector<Slot> slots;
  };
  struct Actor {
    ActorOptions options;
    ActorSpec spec;
    std::vector<int64_t> values;
    std::vector<int32_t> lanes;
  };
  struct Thread {
    uint16_t node;
    std::unique_ptr<Event> closed;
    std::unique_ptr<ActorThread> thread;  // outlives its reactor
    std::unique_ptr<Reactor> reactor;
    std::vector<int64_t> runs_done;
  };
  // Messages between nodes go through the receiver's link, as bytes.
  struct Node : RemoteSender {
    Node(ActorCluster* cluster, uint16_t number)
        : cluster(*cluster),
          bus(number, this),
          link(cluster->environment_.StartReactor(absl::StrFormat("link %d", number))) {}
    absl::Status Send(const Message& message) override {
      const MessageBytes bytes = Encode(message);
      Node& peer = *cluster.nodes_.at(message.dst.node);
      ++cluster.remote_messages_;
      {
        MutexLock lock(cluster.mutex_);
        peer.arriving[{message.src.node, message.src.thread}].push_back(message);
      }
      peer.link->Post([&peer, bytes] {
        const auto message = Decode(bytes);
        ASSERT_TRUE(message.ok());
        {
          MutexLock lock(peer.cluster.mutex_);
          peer.arriving[{message->src.node, message->src.thread}].pop_front();
        }
        EXPECT_EQ(peer.bus.Deliver(*message), absl::OkStatus());
      });
      return absl::OkStatus();
    }
    ActorCluster& cluster;
    MessageBus bus;
    std::unique_ptr<Reactor> link;
    // What is on its way here, by the sending thread.
    std::map<std::pair<uint16_t, uint16_t>, std::deque<Message>> arriving;
  };

  // out = 31 * (sum of the inputs) + 7 * act + actor, summed up over a slot's fillings.
  class Work : public Action {
   public:
    Work(ActorCluster* cluster, Actor* actor, ActorThread* thread)
        : cluster_(*cluster),
          actor_(*actor),
          thread_(*thread),
          choice_(cluster->seed_ + actor->spec.id.task) {}

    void Start(const Act& act, ActDone done) override {
      const int acting = ++cluster_.acting_;
      if (cluster_.environment_.is_simulated()) {
        cluster_.order_.push_back(static_cast<int>(actor_.spec.id.task));
        cluster_.max_acting_ = std::max(cluster_.max_acting_, acting);
      }
      Begin(act);
      switch (actor_.options.completion) {
        case Completion::kInside:
          return End(act, done);
        case Completion::kLaterOnThread:
          thread_.reactor().RunAfter(static_cast<Nanoseconds>(choice_.Below(20 * kMicrosecond)),
                                     [this, act, done] { End(act, done); });
          return;
        case Completion::kFromElsewhere:
          cluster_.PostElsewhere(actor_.spec.id, [this, act, done] { End(act, done); });
          return;
      }
    }

   private:
    // Whether the act uses such an end.
    template <typename End>
    static bool Uses(const Act& act, const End& end) {
      return end.lane == kNoLane || end.lane == act.lane;
    }
    Slot& Input(const Act& act, size_t i) {
      return cluster_.registers_[actor_.spec.inputs[i].reg]->slots[act.input_slots[i]];
    }
    Slot& Output(const Act& act, size_t i) {
      return cluster_.registers_[actor_.spec.outputs[i].reg]->slots[act.output_slots[i]];
    }
    void Begin(const Act& act) {
      for (size_t i = 0; i < act.input_slots.size(); ++i) {
        if (!Uses(act, actor_.spec.inputs[i])) continue;
        ++Input(act, i).readers;
        if (Input(act, i).writers != 0) ++cluster_.conflicts_;
      }
      for (size_t i = 0; i < act.output_slots.size(); ++i) {
        if (!Uses(act, actor_.spec.outputs[i])) continue;
        if (++Output(act, i).writers != 1 || Output(act, i).readers != 0) ++cluster_.conflicts_;
      }
    }
    void End(const Act& act, ActDone done) {
      int64_t value = 7 * act.index + actor_.spec.id.task;
      for (size_t i = 0; i < act.input_slots.size(); ++i) {
        if (!Uses(act, actor_.spec.inputs[i])) continue;
        value += 31 * Input(act, i).value % 1000003;
        --Input(act, i).readers;
      }
      for (size_t i = 0; i < act.output_slots.size(); ++i) {
        if (!Uses(act, actor_.spec.outputs[i])) continue;
        Slot& slot = Output(act, i);
        if (act.index % actor_.spec.outputs[i].period == 0) slot.value = 0;
        slot.value += value;
        if (slot.readers != 0) ++cluster_.conflicts_;
        --slot.writers;
      }
      actor_.values.push_back(value);
      if (act.lane != kNoLane) actor_.lanes.push_back(act.lane);
      --cluster_.acting_;
      done(act.index == actor_.options.fails_at ? absl::DataLossError("the disk is wet")
                                                : absl::OkStatus());
    }

    ActorCluster& cluster_;
    Actor& actor_;
    ActorThread& thread_;
    SeededChoice choice_;
  };

  Node& NodeOf(uint16_t node) {
    auto& known = nodes_[node];
    if (known == nullptr) known = std::make_unique<Node>(this, node);
    return *known;
  }

  std::unique_ptr<Choice> OrderOfNextThread() const {
    if (make_order_) return make_order_();
    if (!environment_.is_simulated()) return nullptr;
    return std::make_unique<SeededChoice>(seed_ * 1000 + threads_.size());
  }

  void PostElsewhere(const ActorId& actor, std::function<void()> fn) {
    const std::pair thread(actor.node, actor.thread);
    {
      MutexLock lock(mutex_);
      ending_[thread].push_back(actor.task);
    }
    elsewhere_->Post([this, thread, fn = std::move(fn)] {
      {
        MutexLock lock(mutex_);
        ending_[thread].pop_front();
      }
      fn();
    });
  }

  Environment& environment_;
  const uint64_t seed_;
  const MakeOrder make_order_;
  std::map<uint16_t, std::unique_ptr<Node>> nodes_;  // buses outlive threads
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<std::unique_ptr<Register>> registers_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::unique_ptr<Reactor> elsewhere_;
  int64_t steps_ = 0;
  bool is_closed_ = false;
  Mutex mutex_;
  std::unique_ptr<Event> changed_;
  std::vector<absl::Status> failures_;
  std::map<std::pair<uint16_t, uint16_t>, std::deque<uint32_t>> ending_;  // elsewhere, by thread
  std::vector<int> order_;
  std::atomic<int64_t> conflicts_{0};
  std::atomic<int64_t> remote_messages_{0};
  std::atomic<int> acting_{0};
  int max_acting_ = 0;
};

}  // namespace braid
