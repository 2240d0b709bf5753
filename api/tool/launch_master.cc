#include "api/tool/launch_master.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/tool/launch.pb.h"
#include "runtime/base/process.h"

namespace braid {
namespace {

// So many times a launcher is asked what its clock shows: on a machine that has much else to do,
// one answer of some is quick.
constexpr int kClockTrips = 8;

// What a machine says of its clock, so that it can be added up.
Nanoseconds Bounded(int64_t time) { return std::clamp<Nanoseconds>(time, -kForever, kForever); }

}  // namespace

LaunchMaster::LaunchMaster(Reactor* reactor, Options options)
    : reactor_(reactor),
      max_restarts_(options.max_restarts),
      choose_port_(std::move(options.choose_port)) {
  for (Machine& machine : options.machines) launchers_.push_back({.machine = std::move(machine)});
}

void LaunchMaster::Start() {
  for (size_t number = 0; number < launchers_.size(); ++number) {
    launchers_[number].machine.channel->SetHandlers(
        [this, number](const std::string& bytes) { OnReport(number, bytes); },
        [this, number](const absl::Status& reason) { OnLost(number, reason); });
  }
  Begin(0);
}

void LaunchMaster::Begin(int restarts) {
  std::vector<launch::Order> orders(launchers_.size());
  for (size_t number = 0; number < orders.size(); ++number) {
    orders[number].mutable_begin()->set_restarts(static_cast<uint32_t>(restarts));
    if (restarts > 0) *orders[number].mutable_begin()->mutable_before() = OutcomeFor(number);
  }
  for (Launcher& launcher : launchers_) launcher = {.machine = std::move(launcher.machine)};
  restarts_ = restarts;
  is_ending_ = false;
  exit_code_ = 0;
  if (choose_port_) {
    const absl::StatusOr<uint16_t> port = choose_port_();
    if (!port.ok()) {
      launchers_[0].failure = {.cause = std::string(port.status().message())};
      return Finish();
    }
    port_ = *port;
    for (launch::Order& order : orders) order.mutable_begin()->set_port(port_);
  }
  for (size_t number = 0; number < orders.size(); ++number) Send(number, orders[number]);
}

std::string LaunchMaster::Describe() const {
  std::string text = absl::StrFormat(
      "a launch on %d machines, restarted %d of %d times; its ranks meet at port %d of %s\n",
      launchers_.size(), restarts_, max_restarts_, port_, launchers_[0].machine.name);
  for (const Launcher& launcher : launchers_) {
    text += absl::StrFormat("%s: %s\n", launcher.machine.name,
                            launcher.has_ended ? "its ranks have ended" : "its ranks run");
  }
  const std::optional<First> first = FirstFailure();
  if (first.has_value()) text += "they are ended: " + first->failure.cause + "\n";
  return text;
}

void LaunchMaster::OnReport(size_t number, const std::string& bytes) {
  launch::Report report;
  if (is_finished_) return;
  if (!report.ParseFromString(bytes)) report.Clear();
  switch (report.kind_case()) {
    case launch::Report::kFailed:
      return OnFailure(number, report.failed());
    case launch::Report::kSignalled:
      return OnSignal(number, report.signalled());
    case launch::Report::kEnded:
      launchers_[number].has_ended = true;
      if (exit_code_ == 0) exit_code_ = report.ended().exit_code();
      return EndIfDone();
    case launch::Report::kClock:
      return OnClock(number, report.clock());
    default:
      return launchers_[number].machine.channel->Close(absl::InvalidArgumentError(
          absl::StrFormat("its report of %d bytes cannot be read", bytes.size())));
  }
}

void LaunchMaster::OnFailure(size_t number, const launch::Failure& failed) {
  Launcher& launcher = launchers_[number];
  LaunchFailure failure{.cause = failed.cause(),
                        .exit_code = failed.exit_code(),
                        .output = failed.output(),
                        .is_own = failed.is_own(),
                        .when = Bounded(failed.when())};
  if (!launcher.failure.has_value() || failure.CountsBefore(*launcher.failure)) {
    launcher.failure = std::move(failure);
    launcher.told = reactor_->Now();
  }
  EndAll();
}

void LaunchMaster::OnClock(size_t number, const launch::Clock& clock) {
  Launcher& launcher = launchers_[number];
  if (!is_ending_ || launcher.clock.trips() == kClockTrips || clock.asked() != launcher.asked) {
    return launcher.machine.channel->Close(
        absl::InvalidArgumentError("it says what its clock shows, and was not asked"));
  }
  launcher.clock.Add(clock.asked(), Bounded(clock.shows()), reactor_->Now());
  if (launcher.clock.trips() < kClockTrips) return AskTime(number);
  EndIfDone();
}

void LaunchMaster::OnSignal(size_t number, int signal) {
  is_last_ = true;
  if (!is_ending_ && interruption_.empty()) {
    const bool is_alone = launchers_.size() == 1;
    interruption_ = (is_alone ? "" : launchers_[number].machine.name + ": ") + "ended by " +
                    DescribeSignal(signal);
  }
  launch::Order order;
  order.set_signal(signal);
  for (size_t other = 0; other < launchers_.size(); ++other) {
    if (other != number) Send(other, order);
  }
}

void LaunchMaster::OnLost(size_t number, const absl::Status& reason) {
  if (is_finished_) return;
  is_last_ = true;
  // Ranks that lose those of this machine may say so first; what failed there before does not
  // follow from it.
  const std::optional<First> first = FirstFailure();
  const bool has_failed = first.has_value() && first->launcher == number;
  Launcher& launcher = launchers_[number];
  launcher.is_lost = launcher.has_ended = true;
  launcher.loss = {
      .cause = absl::StrFormat("%s lost: %s", launcher.machine.name, std::string(reason.message())),
      .is_own = !has_failed,
      .when = reactor_->Now()};
  EndAll();
  EndIfDone();
}

void LaunchMaster::EndAll() {
  if (std::exchange(is_ending_, true)) return;
  launch::Order order;
  order.set_end(true);
  for (size_t number = 0; number < launchers_.size(); ++number) {
    Send(number, order);
    AskTime(number);
  }
}

void LaunchMaster::AskTime(size_t number) {
  launchers_[number].asked = reactor_->Now();
  launch::Order order;
  order.set_clock(launchers_[number].asked);
  Send(number, order);
}

// When a report comes says little: this launcher may have waited for a processor, and then sees its
// own ranks' ends and the report that came before them at once.
std::optional<LaunchMaster::First> LaunchMaster::FirstFailure() const {
  std::optional<First> first;
  const auto consider = [&](const LaunchFailure& failure, size_t number) {
    if (first.has_value() && !failure.CountsBefore(first->failure)) return;
    first = {.failure = failure, .launcher = number};
  };
  for (size_t number = 0; number < launchers_.size(); ++number) {
    const Launcher& launcher = launchers_[number];
    if (launcher.failure.has_value()) {
      LaunchFailure failure = *launcher.failure;
      const bool is_known = launcher.clock.trips() > 0;
      failure.when =
          is_known ? std::min(launcher.clock.HereAt(failure.when), launcher.told) : launcher.told;
      consider(failure, number);
    }
    if (launcher.loss.has_value()) consider(*launcher.loss, number);
  }
  return first;
}

void LaunchMaster::EndIfDone() {
  for (const Launcher& launcher : launchers_) {
    if (!launcher.has_ended) return;
    if (is_ending_ && !launcher.is_lost && launcher.clock.trips() < kClockTrips) return;
  }
  const bool is_well = !is_ending_ && interruption_.empty();
  if (is_well || is_last_ || restarts_ == max_restarts_) return Finish();
  Begin(restarts_ + 1);
}

void LaunchMaster::Finish() {
  is_finished_ = true;
  for (size_t number = 0; number < launchers_.size(); ++number) {
    launch::Order order;
    *order.mutable_finish() = OutcomeFor(number);
    Send(number, order);
  }
}

launch::Outcome LaunchMaster::OutcomeFor(size_t number) const {
  launch::Outcome outcome;
  const std::optional<First> first = FirstFailure();
  if (!interruption_.empty()) {
    outcome.set_cause(interruption_);
    outcome.set_exit_code(exit_code_);
  } else if (first.has_value()) {
    outcome.set_cause(first->failure.cause);
    outcome.set_exit_code(first->failure.exit_code);
    // The others' users find it there.
    if (number == 0 || number == first->launcher) outcome.set_output(first->failure.output);
  }
  return outcome;
}

void LaunchMaster::Send(size_t number, const launch::Order& order) {
  launchers_[number].machine.channel->Send(order.SerializeAsString());
}

}  // namespace braid
