// Runs something in every order in which its events can come. The choices of a run are enumerated
// depth first and replayed from the start; where a run can say what state it is in, a state that
// was seen before is not gone on from again, so that all states and all transitions are visited
// once. What is not explored: other lengths of time (timers run when nothing else can), and what
// threads do inside one event.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/seeded_choice.h"

namespace braid {

// One run, from its start; its destructor ends it, in any order.
class ExploredRun {
 public:
  virtual ~ExploredRun() = default;
  // One event, chosen by the Choice that it was made with; false if none is left.
  virtual bool Step() = 0;
  // All that the future depends on; empty: unknown, and every order is run.
  virtual std::vector<int64_t> State() const = 0;
  // What must hold in every state, and when no event is left.
  virtual absl::Status Check() const = 0;
  virtual absl::Status CheckEnd() const = 0;
};

struct ExploreOptions {
  int64_t max_runs = 1'000'000;
  // Only orders with at most this many choices other than the first (what has waited longest):
  // Emmi, Qadeer, Rakamaric, "Delay-bounded scheduling", POPL 2011. -1: all orders.
  int max_delays = -1;
};

struct Exploration {
  int64_t states = 0;       // different ones; 0 if they are unknown
  int64_t transitions = 0;  // from one to another
  int64_t runs = 0;         // from the start; one an order if the states are unknown
  double orders = 0;        // of events, from the start to an end: paths through the states
  int64_t ends = 0;         // states without an event left
  int longest = 0;          // events of a run
  bool is_complete = true;  // max_runs sufficed
  absl::Status failure;     // the first; a state that can come back is one: events without end
  std::vector<uint64_t> choices;  // that lead to it

  std::string ToString() const;
};

using MakeExploredRun = std::function<std::unique_ptr<ExploredRun>(Choice* order)>;
Exploration Explore(const MakeExploredRun& make, const ExploreOptions& options = {});

}  // namespace braid
