#include "runtime/data/dataset_kinds.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/status.h"
#include "runtime/data/kinds.h"

namespace braid {

DatasetKinds::DatasetKinds()
    : kinds_({{"mnist", OpenMnist},
              {"digits", OpenDigits},
              {"text", OpenText},
              {"npy", OpenNpy},
              {"patterns", OpenPatterns}}) {}

absl::Status DatasetKinds::Register(std::string name, Opener open) {
  const auto [kind, is_new] = kinds_.try_emplace(std::move(name), std::move(open));
  if (is_new) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrFormat(
      "datasets of kind '%s' are registered twice; choose another name", kind->first));
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetKinds::Open(const DatasetSpec& spec) const {
  const auto found = kinds_.find(spec.kind);
  if (found != kinds_.end()) {
    return CatchExceptions(absl::StrFormat("what opens datasets of kind '%s'", spec.kind),
                           [&] { return found->second(spec); });
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "dataset kind '%s' is unknown; this program has %s", spec.kind,
      absl::StrJoin(kinds_, ", ", [](std::string* out, const auto& kind) { *out += kind.first; })));
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetCache::Open(const DatasetSpec& spec) {
  const std::string key = spec.Serialize();
  // Held while opening: the second device that asks waits for the first one's result.
  MutexLock lock(mutex_);
  std::shared_ptr<const Dataset>& dataset = datasets_[key];
  if (dataset == nullptr) {
    BRAID_ASSIGN_OR_RETURN(dataset, kinds_.Open(spec));
  }
  return dataset;
}

}  // namespace braid
