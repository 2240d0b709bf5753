// The master's part of a world's store: the keys and values that ranks have set, and the requests
// that wait for keys that no rank has set yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/reactor.h"

namespace braid {

namespace control {
class ControlMessage;
class StoreAnswer;
class StoreRequest;
}  // namespace control

namespace dist {

constexpr int64_t kMostStoreKeyBytes = int64_t{64} << 10;
// Of a value, and of all keys of one request.
constexpr int64_t kMostStoreValueBytes = int64_t{16} << 20;

// INVALID_ARGUMENT, with both values, for what no rank may ask.
absl::Status CheckStoreRequest(const control::StoreRequest& request);

// On the coordinator's thread.
class StoredKeys {
 public:
  struct Options {
    Reactor* reactor = nullptr;  // borrowed; the coordinator's
    std::function<void(uint16_t node, const control::ControlMessage&)> send;
  };
  explicit StoredKeys(Options options) : options_(std::move(options)) {}

  // Answers it at once or, if it waits for keys, when all of them have come or its time is over.
  // Takes its bytes. An error if no rank may ask this: there is no answer then.
  absl::Status OnRequest(uint16_t node, control::StoreRequest* request);
  // The session has failed, which ends the ranks' calls: nothing is kept or answered any more.
  void Close();

 private:
  struct Asker {
    uint16_t node = 0;
    uint64_t number = 0;  // of its request
    auto operator<=>(const Asker&) const = default;
  };
  struct Waiting {
    size_t keys = 0;
    std::set<std::string> missing;
    bool wants_value = false;  // of the one key
    Nanoseconds timeout = 0;
    TimerId timer = 0;
  };

  void Put(const std::string& key, std::string value);
  void Add(const Asker& asker, const std::string& key, int64_t amount);
  void CompareSet(const Asker& asker, control::StoreRequest* request);
  void Await(const Asker& asker, const control::StoreRequest& request);
  void OnOverdue(const Asker& asker);
  void Answer(const Asker& asker, control::StoreAnswer answer);
  void Refuse(const Asker& asker, const absl::Status& error);

  const Options options_;
  std::unordered_map<std::string, std::string> values_;
  std::map<Asker, Waiting> waiting_;
  std::unordered_map<std::string, std::set<Asker>> askers_;  // by the key that is missing
  bool is_closed_ = false;
};

}  // namespace dist
}  // namespace braid
