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
#include "api/tool/remote_clock.h"
#include "comm/control/control_channel.h"
#include "runtime/base/reactor.h"

namespace braid {

namespace launch {
class Clock;
class Failure;
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
    bool is_lost = false;
    // Of this attempt.
    bool has_ended = false;                // its ranks
    std::optional<LaunchFailure> failure;  // the first that it told; its time is of its clock
    Nanoseconds told = 0;                  // when, by this clock
    std::optional<LaunchFailure> loss;     // of the launcher itself
    RemoteClock clock;                     // is asked for its time once something has failed
    Nanoseconds asked = 0;                 // when that was done last
  };
  // The first failure of an attempt, and whose.
  struct First {
    LaunchFailure failure;  // its time is of this clock
    size_t launcher = 0;
  };

  // Once more, unless it is the first time.
  void Begin(int restarts);
  void OnReport(size_t number, const std::string& bytes);
  void OnFailure(size_t number, const launch::Failure& failed);
  void OnClock(size_t number, const launch::Clock& clock);
  void OnSignal(size_t number, int signal);
  void OnLost(size_t number, const absl::Status& reason);
  // After the first failure: ends all others, and asks for what tells which was the first.
  void EndAll();
  void AskTime(size_t number);
  // As far as is known.
  std::optional<First> FirstFailure() const;
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
  uint16_t port_ = 0;  // of this attempt
  bool is_finished_ = false;
  bool is_last_ = false;  // no attempt follows this one: a signal came, or a machine is lost
  // Of this attempt.
  bool is_ending_ = false;    // something has failed
  std::string interruption_;  // "ended by signal 15 (Terminated)", if that came before any failure
  int exit_code_ = 0;         // of the first machine whose ranks did not end well
};

}  // namespace braid
