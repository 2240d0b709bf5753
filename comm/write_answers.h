// How Writes of a link have ended: kept until the link's reactor tells whoever waits, outside of
// the link's locks.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "comm/transport.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"

namespace braid {

class WriteAnswers {
 public:
  explicit WriteAnswers(size_t first) { answers_.reserve(first); }

  // Any thread. Without a callback nobody waits.
  void Add(Link::DoneCallback done, absl::Status status) {
    if (!done) return;
    MutexLock lock(mutex_);
    answers_.push_back({std::move(done), std::move(status)});
  }
  // An answer may lead back here: what is answered is not the member meanwhile.
  void GiveAll() {
    std::vector<Answer> answers = Take();
    Give(answers);
    answers.clear();
    MutexLock lock(mutex_);
    if (answers_.empty() && answers_.capacity() < answers.capacity()) answers_.swap(answers);
  }
  // The same, by the reactor, on which this may be gone by then.
  void PostAll(Reactor& reactor) {
    std::vector<Answer> answers = Take();
    if (answers.empty()) return;
    reactor.Post([answers = std::move(answers)] { Give(answers); });
  }

 private:
  struct Answer {
    Link::DoneCallback done;
    absl::Status status;
  };

  std::vector<Answer> Take() {
    MutexLock lock(mutex_);
    return std::exchange(answers_, {});
  }
  static void Give(const std::vector<Answer>& answers) {
    for (const Answer& answer : answers) answer.done(answer.status);
  }

  Mutex mutex_;
  std::vector<Answer> answers_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
