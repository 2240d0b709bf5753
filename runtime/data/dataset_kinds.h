// The kinds of datasets that a process can open: those that are built in, and a program's own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/data/dataset.h"

namespace braid {

class DatasetKinds {
 public:
  // Takes the parameters out of the spec, with a SpecReader for instance. Called on any thread,
  // also on several at once.
  using Opener =
      std::function<absl::StatusOr<std::shared_ptr<const Dataset>>(const DatasetSpec& spec)>;

  DatasetKinds();  // "mnist", "digits", "text", "npy", "patterns"

  // The name is the spec's kind. ALREADY_EXISTS if taken.
  absl::Status Register(std::string name, Opener open);
  // INVALID_ARGUMENT lists the kinds that there are; else errors of the kind, which name the files,
  // what was found and what was expected.
  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const DatasetSpec& spec) const;

 private:
  std::map<std::string, Opener, std::less<>> kinds_;
};

// One per node. Opens each spec once and keeps it; thread-safe. A failed open is tried again.
// The pointers are shared because readers on several actor threads outlive each other in any order.
class DatasetCache {
 public:
  explicit DatasetCache(DatasetKinds kinds = {}) : kinds_(std::move(kinds)) {}

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const DatasetSpec& spec);

 private:
  const DatasetKinds kinds_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<const Dataset>> datasets_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
