#include "api/tool/launch_master.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/tool/launch.pb.h"
#include "runtime/base/process.h"

namespace braid {
namespace {

// A machine's clock is not this one's: it says how long after the order to begin something was,
// which all had at about one time. When a report comes says less: this launcher may have waited for
// a processor, and then sees its own ranks' ends and the report that came before them at once.
LaunchFailure FailureOfReport(const launch::Failure& failed, Nanoseconds begun, Nanoseconds now) {
  return {.cause = failed.cause(),
          .exit_code = failed.exit_code(),
          .output = failed.output(),
          .is_own = failed.is_own(),
          .when = begun + std::clamp<Nanoseconds>(failed.since_begin(), 0, now - begun)};
}

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
    launchers_[number].has_ended = false;
  }
  restarts_ = restarts;
  first_.reset();
  exit_code_ = 0;
  begun_ = reactor_->Now();
  if (choose_port_) {
    const absl::StatusOr<uint16_t> port = choose_port_();
    if (!port.ok()) {
      first_ = {.failure = {.cause = std::string(port.status().message())}};
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
  if (first_.has_value()) text += "they are ended: " + first_->failure.cause + "\n";
  return text;
}

void LaunchMaster::OnReport(size_t number, const std::string& bytes) {
  launch::Report report;
  if (is_finished_) return;
  if (!report.ParseFromString(bytes)) report.Clear();
  switch (report.kind_case()) {
    case launch::Report::kFailed:
      return Fail(number, FailureOfReport(report.failed(), begun_, reactor_->Now()));
    case launch::Report::kSignalled:
      return OnSignal(number, report.signalled());
    case launch::Report::kEnded:
      launchers_[number].has_ended = true;
      if (exit_code_ == 0) exit_code_ = report.ended().exit_code();
      return EndIfDone();
    default:
      return launchers_[number].machine.channel->Close(absl::InvalidArgumentError(
          absl::StrFormat("its report of %d bytes cannot be read", bytes.size())));
  }
}

void LaunchMaster::OnSignal(size_t number, int signal) {
  is_last_ = true;
  if (!first_.has_value() && interruption_.empty()) {
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
  launchers_[number].has_ended = true;
  // Ranks that lose those of this machine may say so first; what failed there before does not
  // follow from it.
  const bool has_failed = first_.has_value() && first_->launcher == number;
  Fail(number, {.cause = absl::StrFormat("%s lost: %s", launchers_[number].machine.name,
                                         std::string(reason.message())),
                .is_own = !has_failed,
                .when = reactor_->Now()});
  EndIfDone();
}

void LaunchMaster::Fail(size_t number, LaunchFailure failure) {
  const bool is_first = !first_.has_value();
  if (is_first || failure.CountsBefore(first_->failure)) {
    first_ = {.failure = std::move(failure), .launcher = number};
  }
  if (!is_first) return;
  launch::Order order;
  order.set_end(true);
  for (size_t other = 0; other < launchers_.size(); ++other) Send(other, order);
}

void LaunchMaster::EndIfDone() {
  if (!std::ranges::all_of(launchers_, &Launcher::has_ended)) return;
  const bool is_well = !first_.has_value() && interruption_.empty();
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
  if (!interruption_.empty()) {
    outcome.set_cause(interruption_);
    outcome.set_exit_code(exit_code_);
  } else if (first_.has_value()) {
    outcome.set_cause(first_->failure.cause);
    outcome.set_exit_code(first_->failure.exit_code);
    // The others' users find it there.
    if (number == 0 || number == first_->launcher) outcome.set_output(first_->failure.output);
  }
  return outcome;
}

void LaunchMaster::Send(size_t number, const launch::Order& order) {
  launchers_[number].machine.channel->Send(order.SerializeAsString());
}

}  // namespace braid
