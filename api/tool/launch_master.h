// Decides for the launchers of all machines: when their ranks start, that all end when one fails,
// which failure was the first, and whether they start once more. It is on machine 0, whose own
// launcher it knows as it does the others: by a channel (launch_machine.h is the other end).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/tool/launch_failure.h"
#include "comm/control/control_channel.h"
#include "runtime/base/reactor.h"

namespace braid {

namespace launch {
class Order;
class Outcome;
}  // namespace launch

// Made anywhere; the rest on the reactor's thread.
class LaunchMaster {
 public:
  struct Machine {
    std::string name;  // "machine 1 (hostb)"
    std::unique_ptr<ControlChannel> channel;
  };
  struct Options {
    std::vector<Machine> machines;  // by their ranks; one is alone
    int max_restarts = 0;
    // The port of machine 0 at which the ranks of the next attempt meet; empty: they know it.
    std::function<absl::StatusOr<uint16_t>()> choose_port;
  };
  LaunchMaster(Reactor* reactor, Options options);
  LaunchMaster(const LaunchMaster&) = delete;
  LaunchMaster& operator=(const LaunchMaster&) = delete;

  void Start();
  // What `braid status` says of the launch.
  std::string Describe() const;

 private:
  struct Launcher {
    Machine machine;
    bool has_ended = false;  // its ranks of this attempt
  };
  // The first failure of an attempt, and whose.
  struct First {
    LaunchFailure failure;
    size_t launcher = 0;
  };

  // Once more, unless it is the first time.
  void Begin(int restarts);
  void OnReport(size_t number, const std::string& bytes);
  void OnSignal(size_t number, int signal);
  void OnLost(size_t number, const absl::Status& reason);
  void Fail(size_t number, LaunchFailure failure);
  void EndIfDone();
  void Finish();
  // As this launcher is told it.
  launch::Outcome OutcomeFor(size_t number) const;
  void Send(size_t number, const launch::Order& order);

  Reactor* const reactor_;
  const int max_restarts_;
  const std::function<absl::StatusOr<uint16_t>()> choose_port_;
  std::vector<Launcher> launchers_;
  int restarts_ = 0;
  uint16_t port_ = 0;      // of this attempt
  Nanoseconds begun_ = 0;  // when it was ordered
  bool is_finished_ = false;
  bool is_last_ = false;  // no attempt follows this one: a signal came, or a machine is lost
  // Of this attempt.
  std::optional<First> first_;
  std::string interruption_;  // "ended by signal 15 (Terminated)", if that came before any failure
  int exit_code_ = 0;         // of the first machine whose ranks did not end well
};

}  // namespace braid
