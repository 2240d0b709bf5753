// What a user got wrong in functions that return no Status: kept until a call that returns one.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/mutex.h"

namespace braid {

// Any thread.
class Mistakes {
 public:
  enum class Reader { kNobodyYet, kSession };
  // While it has no reader what is reported is also logged: it may never be asked for.
  explicit Mistakes(Reader reader) : reader_(reader) {}

  // The first one stays.
  void Report(const absl::Status& mistake);
  absl::Status first() const;
  // The first one; afterwards there is none.
  absl::Status Take();

  // Zeros, aligned as a double, for a caller who wants to look at what is not there; they stay as
  // long as this does, and callers share those of one size.
  std::byte* Zeros(size_t bytes);

 private:
  const Reader reader_;
  mutable Mutex mutex_;
  absl::Status first_ BRAID_GUARDED_BY(mutex_);
  std::map<size_t, std::vector<double>> zeros_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
