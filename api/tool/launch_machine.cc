#include "api/tool/launch_machine.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "api/tool/launch.pb.h"
#include "runtime/base/process.h"

namespace braid {
namespace {

LaunchOutcome ReadOutcome(const launch::Outcome& outcome) {
  return {.exit_code = outcome.exit_code(), .output = outcome.output(), .cause = outcome.cause()};
}

}  // namespace

LaunchMachine::LaunchMachine(Reactor* reactor, Options options)
    : reactor_(reactor), options_(std::move(options)) {}

void LaunchMachine::Start() {
  options_.channel->SetHandlers([this](const std::string& bytes) { OnOrder(bytes); },
                                [this](const absl::Status& reason) { OnLost(reason); });
}

void LaunchMachine::OnOrder(const std::string& bytes) {
  if (is_finished_ || is_lost_) return;
  launch::Order order;
  if (!order.ParseFromString(bytes)) order.Clear();
  const bool is_idle = cluster_ == nullptr;
  switch (order.kind_case()) {
    case launch::Order::kBegin:
      if (is_idle) return Begin(order.begin());
      break;
    case launch::Order::kEnd:
      if (!is_idle) cluster_->EndSoon();
      return;
    case launch::Order::kSignal:
      return PassSignal(order.signal());
    case launch::Order::kClock:
      return TellTime(order.clock());
    case launch::Order::kFinish:
      if (is_idle) return Finish(ReadOutcome(order.finish()));
      break;
    default:
      break;
  }
  options_.channel->Close(absl::InvalidArgumentError(
      absl::StrFormat("its order of %d bytes cannot be read or followed", bytes.size())));
}

void LaunchMachine::Begin(const launch::Begin& begin) {
  first_.reset();
  const int restarts = static_cast<int>(begin.restarts());
  std::string preface;
  if (restarts > 0) {
    preface = TextOf(ReadOutcome(begin.before()),
                     absl::StrFormat("; restart %d of %d", restarts, options_.max_restarts));
  }
  cluster_ = std::make_unique<RunningCluster>(
      reactor_,
      RunningCluster::Options{
          .commands = options_.commands(restarts, static_cast<uint16_t>(begin.port())),
          .guard = options_.guard,
          .tag_output = options_.tag_output,
          .place = options_.place,
          .preface = std::move(preface),
          .on_failure = [this](const LaunchFailure& failure) { OnFailure(failure); },
          // Which is not done with itself yet.
          .on_end =
              [this](int exit_code) {
                reactor_->Post([this, exit_code] { OnEnded(exit_code); });
              }});
  // It came before there was anything to end.
  if (signal_.has_value()) cluster_->OnSignal(*signal_);
  cluster_->Start();
}

void LaunchMachine::OnSignal(int signal) {
  launch::Report report;
  report.set_signalled(signal);
  options_.channel->Send(report.SerializeAsString());
  PassSignal(signal);
}

void LaunchMachine::PassSignal(int signal) {
  if (!signal_.has_value()) signal_ = signal;
  if (cluster_ != nullptr) cluster_->OnSignal(signal);
}

void LaunchMachine::OnFailure(const LaunchFailure& failure) {
  if (!first_.has_value() || failure.CountsBefore(*first_)) first_ = failure;
  launch::Report report;
  launch::Failure& failed = *report.mutable_failed();
  failed.set_cause(failure.cause);
  failed.set_exit_code(failure.exit_code);
  failed.set_output(failure.output);
  failed.set_is_own(failure.is_own);
  failed.set_when(failure.when);
  options_.channel->Send(report.SerializeAsString());
}

void LaunchMachine::TellTime(Nanoseconds asked) {
  launch::Report report;
  report.mutable_clock()->set_asked(asked);
  report.mutable_clock()->set_shows(reactor_->Now());
  options_.channel->Send(report.SerializeAsString());
}

void LaunchMachine::OnEnded(int exit_code) {
  cluster_.reset();
  if (is_lost_) {
    return Finish(
        {.exit_code = first_->exit_code, .output = first_->output, .cause = first_->cause});
  }
  launch::Report report;
  report.mutable_ended()->set_exit_code(exit_code);
  options_.channel->Send(report.SerializeAsString());
}

void LaunchMachine::OnLost(const absl::Status& reason) {
  if (is_finished_ || std::exchange(is_lost_, true)) return;
  const LaunchFailure loss{
      .cause = absl::StrFormat("%s lost: %s", options_.master, std::string(reason.message())),
      .when = reactor_->Now()};
  if (!first_.has_value() || loss.CountsBefore(*first_)) first_ = loss;
  if (cluster_ != nullptr) return cluster_->EndSoon();
  Finish({.exit_code = first_->exit_code, .output = first_->output, .cause = first_->cause});
}

void LaunchMachine::Finish(const LaunchOutcome& outcome) {
  is_finished_ = true;
  options_.on_end(outcome);
}

std::string TextOf(const LaunchOutcome& outcome, const std::string& what_follows) {
  if (outcome.cause.empty()) return outcome.output;
  return absl::StrFormat("%sbraid launch: %s%s\n", outcome.output, outcome.cause, what_follows);
}

}  // namespace braid
