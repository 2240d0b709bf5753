// Programs of simulated processes, of which each waits while the others go on: in the real world
// every process has a host thread, here each has a fiber of the one thread there is.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/reactor.h"
#include "runtime/base/simulation.h"

namespace braid {

class SimPrograms {
 public:
  // Both outlive this; nothing is killed after it. The observer is a process in which nothing
  // fails.
  SimPrograms(Simulation& world, Environment& observer);
  ~SimPrograms();
  SimPrograms(const SimPrograms&) = delete;
  SimPrograms& operator=(const SimPrograms&) = delete;

  // `program` waits by the environment that it is given, and by no other.
  void Add(int process, std::function<void(Environment&)> program);

  // Runs all programs to their ends. Which of those that could go on does is drawn by the
  // simulation's seed. A process whose program has not ended when `limit` has passed, or when
  // nothing can happen any more, is killed, so that its program ends by that.
  void Run(Nanoseconds limit);

 private:
  class Program;

  Program* FindNext();
  // When the first of those that wait has waited long enough.
  Nanoseconds EarliestDeadline() const;
  void Wake();

  Simulation& world_;
  Environment& observer_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::unique_ptr<Event> something_happened_;
};

}  // namespace braid
