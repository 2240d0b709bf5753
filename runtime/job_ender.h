// Where jobs end: destructors of kernels are users' code and may take as long as they like. They
// run on a thread of their own, so that a node hears its master and its peers meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/job_loader.h"

namespace braid {

class JobEnder {
 public:
  struct Options {
    uint16_t node = 0;
    Environment* environment = nullptr;  // both borrowed
    Reactor* control = nullptr;
  };
  explicit JobEnder(const Options& options);
  JobEnder(const JobEnder&) = delete;
  JobEnder& operator=(const JobEnder&) = delete;

  struct Request {
    JobId job = 0;
    std::string name;                   // the job's, for messages
    absl::AnyInvocable<void() &&> end;  // destroys what is left of it; also if it is not called
  };
  // One after another. `ended` on the control thread; may be empty.
  void End(Request request, std::function<void()> ended);

  // What it is inside of. Any thread.
  std::optional<JobLoader::Doing> doing() const;

 private:
  const Options options_;
  mutable Mutex mutex_;
  std::optional<JobLoader::Doing> doing_ BRAID_GUARDED_BY(mutex_);
  std::unique_ptr<Reactor> reactor_;  // dies first: ends what it was given and joins
};

}  // namespace braid
