// What takes long or runs users' code when a job is loaded: reading and expanding its plan, opening
// its datasets, making its kernels. All of it happens on a thread of its own, so that a node hears
// its master and its peers whatever a kernel's factory or a file system does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/actions/compute.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/device/device.h"
#include "runtime/host_io.h"
#include "runtime/plan_read.h"

namespace braid {

class CheckpointSaver;

// What kernels are made from. All borrowed; outlive the kernels.
struct KernelContext {
  const Devices* devices = nullptr;
  DatasetCache* datasets = nullptr;
  HostIo* host = nullptr;
  CheckpointSaver* saver = nullptr;
  int threads_per_device = 1;
};

// The kernels of a node's part of a plan, by task; their operands have no addresses yet.
using PreparedKernels = std::map<uint32_t, std::vector<ComputeCall>>;

// Checks the part (CheckPlan), then makes its kernels; before each it calls `begin`. Errors name
// the operator, the user's line and what is wrong.
absl::StatusOr<PreparedKernels> PrepareKernels(
    const plan::NodePlan& plan, const KernelContext& context,
    const std::function<void(const compiler::KernelCall*)>& begin);

// A plan with its kernels.
struct PreparedJob {
  ReadPlan plan;
  PreparedKernels kernels;
};

class JobLoader {
 public:
  struct Options {
    uint16_t node = 0;
    Environment* environment = nullptr;  // both borrowed
    Reactor* control = nullptr;
    KernelContext kernels;  // its host: each job's own
  };
  struct Request {
    JobId job = 0;
    std::shared_ptr<const std::string> plan;  // shared with what passes it on
    uint64_t fingerprint = 0;
    HostIo* host = nullptr;
  };

  explicit JobLoader(const Options& options);
  // Waits for what it is doing. What it has not begun is dropped; of all that, nobody is told.
  ~JobLoader();
  JobLoader(const JobLoader&) = delete;
  JobLoader& operator=(const JobLoader&) = delete;

  // One after another. `done` on the control thread.
  void Load(Request request, std::function<void(absl::StatusOr<PreparedJob>)> done);

  // What it is inside of.
  struct Doing {
    JobId job = 0;
    std::string what;  // "making read 'x' (train.cc:12)"
    Nanoseconds since = 0;
  };
  std::optional<Doing> doing() const;  // any thread

 private:
  absl::Status Prepare(const Request& request, PreparedJob& job);
  // Null: the plan is being read.
  void Begin(const compiler::KernelCall* call);

  const Options options_;
  mutable Mutex mutex_;
  JobId job_ BRAID_GUARDED_BY(mutex_) = 0;  // 0: it has nothing to do
  const compiler::KernelCall* call_ BRAID_GUARDED_BY(mutex_) = nullptr;
  Nanoseconds since_ BRAID_GUARDED_BY(mutex_) = 0;
  bool is_ending_ BRAID_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Reactor> reactor_;  // dies first: joins
};

}  // namespace braid
