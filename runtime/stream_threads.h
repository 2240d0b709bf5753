// The threads of a node's devices: one for each number that plans say, whatever jobs there are.
// Jobs run one after another, so they share them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "absl/status/status.h"
#include "runtime/base/reactor.h"

namespace braid {

// Everything happens on the node's control thread.
class StreamThreads {
 public:
  StreamThreads(Environment* environment, uint16_t node)
      : environment_(*environment), node_(node) {}

  // Starts those that have not started. RESOURCE_EXHAUSTED if the system lets no more be started.
  absl::Status Start(const std::set<uint16_t>& numbers);
  // One that was started.
  Reactor& Of(uint16_t number) { return *reactors_.at(number); }

 private:
  Environment& environment_;
  const uint16_t node_;
  std::map<uint16_t, std::unique_ptr<Reactor>> reactors_;
};

}  // namespace braid
