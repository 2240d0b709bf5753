// How each kind of dataset that is built in is opened; dataset_kinds.cc lists them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/data/dataset.h"

namespace braid {

absl::StatusOr<std::shared_ptr<const Dataset>> OpenMnist(const DatasetSpec& spec);
absl::StatusOr<std::shared_ptr<const Dataset>> OpenDigits(const DatasetSpec& spec);
absl::StatusOr<std::shared_ptr<const Dataset>> OpenText(const DatasetSpec& spec);
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpy(const DatasetSpec& spec);
absl::StatusOr<std::shared_ptr<const Dataset>> OpenPatterns(const DatasetSpec& spec);

}  // namespace braid
