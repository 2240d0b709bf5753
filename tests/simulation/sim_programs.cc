#include "tests/simulation/sim_programs.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "glog/logging.h"
#include "tests/support/fiber.h"

namespace braid {
namespace {

constexpr size_t kStackBytes = size_t{512} << 10;

// Says that it was set: a program may wait for it.
class HeardEvent final : public Event {
 public:
  explicit HeardEvent(std::function<void()> on_set) : on_set_(std::move(on_set)) {}
  void Set() override {
    is_set_ = true;
    on_set_();
  }
  bool is_set() const override { return is_set_; }

 private:
  const std::function<void()> on_set_;
  bool is_set_ = false;
};

}  // namespace

// A program, and the environment of its process as it sees it.
class SimPrograms::Program final : public Environment {
 public:
  Program(SimPrograms& all, int process, std::function<void(Environment&)> main)
      : all_(all),
        process_(process),
        environment_(all.world_.process(process)),
        main_(std::move(main)),
        fiber_(kStackBytes, &Program::Begin, this) {}

  // ---- for its program

  Nanoseconds Now() const override { return environment_.Now(); }
  std::unique_ptr<Reactor> StartReactor(std::string_view name) override {
    return environment_.StartReactor(name);
  }
  std::unique_ptr<Event> MakeEvent() override {
    return std::make_unique<HeardEvent>([all = &all_] { all->Wake(); });
  }
  absl::Status Await(Event& event, Nanoseconds timeout) override {
    if (!all_.world_.is_alive(process_)) return environment_.Await(event, timeout);
    const Nanoseconds now = Now();
    waits_for_ = &event;
    deadline_ = timeout < kForever - now ? now + timeout : kForever;
    fiber_.Leave();
    waits_for_ = nullptr;
    if (!all_.world_.is_alive(process_)) return absl::AbortedError("the process was killed");
    return event.is_set() ? absl::OkStatus() : absl::DeadlineExceededError("not set in time");
  }
  bool is_simulated() const override { return true; }

  // ---- for who runs it

  bool has_ended() const { return has_ended_; }
  bool can_go_on() const {
    if (has_ended_ || all_.world_.is_paused(process_)) return false;
    return waits_for_ == nullptr || waits_for_->is_set() || Now() >= deadline_ ||
           !all_.world_.is_alive(process_);
  }
  Nanoseconds deadline() const {
    return has_ended_ || all_.world_.is_paused(process_) ? kForever : deadline_;
  }
  void GoOn() { fiber_.Enter(); }
  int process() const { return process_; }

 private:
  static void Begin(void* self) {
    auto* const program = static_cast<Program*>(self);
    program->main_(*program);
    program->has_ended_ = true;
    program->fiber_.Leave();
    LOG(FATAL) << "a program that has ended goes on";
  }

  SimPrograms& all_;
  const int process_;
  Environment& environment_;
  const std::function<void(Environment&)> main_;
  Event* waits_for_ = nullptr;  // null: it has not begun
  Nanoseconds deadline_ = kForever;
  bool has_ended_ = false;
  Fiber fiber_;
};

SimPrograms::SimPrograms(Simulation& world, Environment& observer)
    : world_(world), observer_(observer), something_happened_(observer.MakeEvent()) {
  world.OnKilled([this](int) { Wake(); });
}

SimPrograms::~SimPrograms() = default;

void SimPrograms::Add(int process, std::function<void(Environment&)> program) {
  programs_.push_back(std::make_unique<Program>(*this, process, std::move(program)));
}

void SimPrograms::Wake() { something_happened_->Set(); }

SimPrograms::Program* SimPrograms::FindNext() {
  std::vector<Program*> ready;
  for (const auto& program : programs_) {
    if (program->can_go_on()) ready.push_back(program.get());
  }
  return ready.empty() ? nullptr : ready[world_.Below(ready.size())];
}

Nanoseconds SimPrograms::EarliestDeadline() const {
  Nanoseconds earliest = kForever;
  for (const auto& program : programs_) earliest = std::min(earliest, program->deadline());
  return earliest;
}

void SimPrograms::Run(Nanoseconds limit) {
  const auto have_ended = [this] {
    return std::ranges::all_of(programs_, [](const auto& program) { return program->has_ended(); });
  };
  while (!have_ended()) {
    if (Program* const next = FindNext(); next != nullptr) {
      next->GoOn();
      continue;
    }
    something_happened_ = observer_.MakeEvent();
    const Nanoseconds until = std::min(EarliestDeadline(), limit);
    const absl::Status status = observer_.Await(*something_happened_, until - world_.Now());
    if (status.ok() || (absl::IsDeadlineExceeded(status) && world_.Now() < limit)) continue;
    for (const auto& program : programs_) {
      if (program->has_ended()) continue;
      if (world_.is_paused(program->process())) world_.Resume(program->process());
      world_.Kill(program->process());
    }
  }
}

}  // namespace braid
