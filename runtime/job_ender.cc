#include "runtime/job_ender.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace braid {

JobEnder::JobEnder(const Options& options)
    : options_(options),
      reactor_(options.environment->StartReactor(absl::StrFormat("ender %d", options.node))) {}

void JobEnder::End(Request request, std::function<void()> ended) {
  reactor_->Post([this, request = std::move(request), ended = std::move(ended)]() mutable {
    {
      MutexLock lock(mutex_);
      doing_ = {.job = request.job,
                .what = absl::StrFormat("destroying the kernels of job '%s'", request.name),
                .since = reactor_->Now()};
    }
    std::move(request.end)();
    request.end = nullptr;
    {
      MutexLock lock(mutex_);
      doing_.reset();
    }
    if (ended) options_.control->Post(std::move(ended));
  });
}

std::optional<JobLoader::Doing> JobEnder::doing() const {
  MutexLock lock(mutex_);
  return doing_;
}

}  // namespace braid
