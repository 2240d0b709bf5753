// An actor's firing, on one thread and across two, beside what it cannot beat: an atomic exchange.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actor/actor_thread.h"
#include "actor/message_bus.h"
#include "benchmark/benchmark.h"
#include "glog/logging.h"
#include "runtime/base/reactor.h"

namespace braid {
namespace {

class Nothing : public Action {
 public:
  void Start(const Act&, ActDone done) override { done(absl::OkStatus()); }
};

// A chain of actors, dealt out to the threads in turn; each register has `slots`.
class Chain {
 public:
  Chain(uint32_t actors, uint16_t threads, uint32_t slots)
      : environment_(MakeRealEnvironment()), bus_(0, nullptr) {
    for (uint16_t t = 0; t < threads; ++t) {
      closed_.push_back(environment_->MakeEvent());
      reactors_.push_back(environment_->StartReactor("bench"));
      threads_.push_back(std::make_unique<ActorThread>(
          ActorThreadOptions{.thread = t,
                             .on_run_done =
                                 [this](int64_t) {
                                   if (left_.fetch_sub(1) == 1) done_->Set();
                                 },
                             .on_failure = [](const absl::Status& status) { LOG(FATAL) << status; },
                             .on_closed = [event = closed_.back().get()] { event->Set(); }},
          reactors_.back().get(), &bus_));
    }
    const auto id = [threads](uint32_t i) {
      return ActorId{0, static_cast<uint16_t>(i % threads), i};
    };
    for (uint32_t i = 0; i < actors; ++i) {
      ActorSpec spec{.id = id(i), .name = "x"};
      if (i > 0) spec.inputs.push_back({.reg = i - 1, .producer = id(i - 1), .slots = slots});
      if (i + 1 < actors) {
        spec.outputs.push_back({.reg = i, .slots = slots, .consumers = {id(i + 1)}});
      }
      CHECK(threads_[i % threads]->AddActor(spec, std::make_unique<Nothing>()).ok());
    }
    CHECK(bus_.Start().ok());
  }

  ~Chain() {
    for (const auto& thread : threads_) thread->Abort(absl::CancelledError("end"));
    for (const auto& event : closed_) CHECK(environment_->Await(*event, 10 * kSecond).ok());
    reactors_.clear();
    threads_.clear();
  }

  void Run(int64_t steps) {
    left_ = static_cast<int>(threads_.size());
    done_ = environment_->MakeEvent();
    for (const auto& thread : threads_) thread->Run(steps);
    CHECK(environment_->Await(*done_, 60 * kSecond).ok());
  }

 private:
  std::unique_ptr<Environment> environment_;
  MessageBus bus_;
  std::vector<std::unique_ptr<Event>> closed_;
  std::vector<std::unique_ptr<ActorThread>> threads_;
  std::vector<std::unique_ptr<Reactor>> reactors_;
  std::unique_ptr<Event> done_;
  std::atomic<int> left_{0};
};

// Items are firings.
void BM_ActorChain(benchmark::State& state) {
  const auto actors = static_cast<uint32_t>(state.range(0));
  Chain chain(actors, static_cast<uint16_t>(state.range(1)), static_cast<uint32_t>(state.range(2)));
  const int64_t steps = 200000 / actors;
  for (auto _ : state) chain.Run(steps);
  state.SetItemsProcessed(state.iterations() * steps * actors);
}
BENCHMARK(BM_ActorChain)
    ->ArgNames({"actors", "threads", "slots"})
    ->Args({2, 1, 2})
    ->Args({10, 1, 1})
    ->Args({10, 1, 2})
    ->Args({1000, 1, 2})
    ->Args({10, 2, 2})
    ->Args({10, 2, 8})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void BM_AtomicExchange(benchmark::State& state) {
  std::atomic<int> value{0};
  for (auto _ : state) benchmark::DoNotOptimize(value.exchange(1));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_AtomicExchange);

}  // namespace
}  // namespace braid

BENCHMARK_MAIN();
