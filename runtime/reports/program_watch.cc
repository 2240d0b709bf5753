#include "runtime/reports/program_watch.h"

#include <utility>

namespace braid {

void ProgramWatch::Begin(std::string what) {
  int number = 0;
  {
    MutexLock lock(mutex_);
    doing_ = Doing{.what = std::move(what), .since = reactor_.Now()};
    number = ++number_;
  }
  if (limit_ > 0) reactor_.Post([this, number] { LookLater(number); });
}

void ProgramWatch::End() {
  MutexLock lock(mutex_);
  doing_.reset();
}

std::optional<ProgramWatch::Doing> ProgramWatch::doing() const {
  MutexLock lock(mutex_);
  return doing_;
}

void ProgramWatch::LookLater(int number) {
  reactor_.RunAfter(limit_, [this, number] {
    Nanoseconds since = 0;
    {
      MutexLock lock(mutex_);
      if (!doing_.has_value() || number_ != number) return;
      since = doing_->since;
    }
    tell_(reactor_.Now() - since);
    LookLater(number);
  });
}

}  // namespace braid
