// Kernels that reach outside the plan: readers of datasets, feeds, fetches, checkpoint files. They
// need a node's objects, so the executor registers them for each job.
#pragma once

#include "absl/status/status.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/host_io.h"
#include "runtime/kernels/kernel.h"

namespace braid {

class CheckpointSaver;

struct ExternalContext {
  DatasetCache* datasets = nullptr;  // all borrowed; outlive the kernels
  HostIo* host = nullptr;
  CheckpointSaver* saver = nullptr;
  int node = 0;
};

// read, input, fetch, read_checkpoint, read_file, both also with _into, write_checkpoint,
// replica_checksums.
absl::Status RegisterExternalKernels(const ExternalContext& context, KernelRegistry& registry);

}  // namespace braid
