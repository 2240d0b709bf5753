// One rank's end of a world's store: sends the master what the program asks of it, and gives the
// program the answers. The store itself is at the master (stored_keys.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

namespace control {
class ControlMessage;
class StoreAnswer;
class StoreRequest;
}  // namespace control

namespace dist {

// Everything happens on the node's control thread.
class StoreEnd {
 public:
  // What the master answers, be it an error of this request alone; else why there is no answer.
  using Done = std::function<void(absl::StatusOr<control::StoreAnswer>)>;

  explicit StoreEnd(std::function<void(const control::ControlMessage&)> send)
      : send_(std::move(send)) {}

  // A request that passes CheckStoreRequest; it gets its number here. `call` made it: "Store::Get
  // (train.cc:12)". `done` comes once, maybe inside this call.
  void Ask(control::StoreRequest request, std::string call, Done done);

  // The calls that wait for keys.
  std::vector<std::string> Waits() const;

  // Takes its bytes. An error for what was not asked.
  absl::Status OnAnswer(control::StoreAnswer* answer);

  // What waits for an answer, and all later requests, get `reason`.
  void Close(const absl::Status& reason);

 private:
  struct Open {
    Done done;
    std::string waits;  // the call, if it waits for keys; else ""
  };

  const std::function<void(const control::ControlMessage&)> send_;
  uint64_t last_ = 0;              // request
  std::map<uint64_t, Open> open_;  // by request
  absl::Status closed_;
};

}  // namespace dist
}  // namespace braid
