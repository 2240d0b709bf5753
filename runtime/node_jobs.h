// The jobs of one node, from their plans to their ends: what is loaded, which links that waits for,
// what runs, and the frames that come for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/collective/collective_hub.h"
#include "comm/peers/peers.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/checkpoint_saver.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/device/device.h"
#include "runtime/executor.h"
#include "runtime/host_io.h"
#include "runtime/job_ender.h"
#include "runtime/job_loader.h"
#include "runtime/reports/node_summary.h"
#include "runtime/stream_threads.h"
#include "runtime/variable_store.h"

namespace braid {

namespace control {
class NodeReport;
}  // namespace control

// Everything happens on the node's control thread, but for what says otherwise.
class NodeJobs {
 public:
  struct Options {
    uint16_t node = 0;
    int threads_per_device = 1;
    uint64_t simulation_seed = 0;
    Environment* environment = nullptr;  // borrowed, as are all below
    Reactor* control = nullptr;
    Devices* devices = nullptr;
    DeviceGroup* device_group = nullptr;  // may be null
    VariableStore* variables = nullptr;
    DatasetCache* datasets = nullptr;
    CollectiveHub* collectives = nullptr;
    // Once a job: it is ready, with its summary if that was wanted, or why not.
    std::function<void(JobId job, const absl::Status& status,
                       const std::optional<NodeSummary>& summary)>
        on_loaded;
    std::function<void(JobId job)> on_run_done;
    // What this node wrote of a checkpoint is on the disk, or why not.
    std::function<void(int64_t save, const absl::Status& status)> on_saved;
    // An act's. It is unavailable if the link under it broke.
    std::function<void(const absl::Status& cause)> on_failure;
  };
  explicit NodeJobs(Options options);
  // After Close's `closed` and the control reactor's end.
  ~NodeJobs();
  NodeJobs(const NodeJobs&) = delete;
  NodeJobs& operator=(const NodeJobs&) = delete;

  // Makes links by `peers` from now on, which stays until all is closed.
  void SetPeers(Peers* peers) { peers_ = peers; }

  struct LoadRequest {
    JobId job = 0;                            // numbers go up
    std::shared_ptr<const std::string> plan;  // shared with what passes it on
    uint64_t fingerprint = 0;
    CollectiveId first_collective = 0;
    bool wants_summary = false;
  };
  // on_loaded follows. An error: the master may not ask for it.
  absl::Status Load(LoadRequest request);
  absl::Status Run(JobId job, int64_t first_step, int64_t steps);
  void Unload(JobId job);

  // A frame of Channel::kActor or kLandingKey. Those of a job that is not here yet wait for it;
  // those of one that was unloaded, late acknowledgements, are dropped.
  absl::Status OnFrame(uint16_t peer, std::span<const std::byte> frame);

  // Ends all; `closed` comes once nothing of them is left but what the loader is inside of.
  void Close(const absl::Status& reason, std::function<void()> closed);
  // Waits for what the loader and the saver are inside of. Before the control reactor ends.
  void StopLoading();

  // Feeds and fetches of a job, made on first use. Any thread.
  HostIo& Host(JobId job);

  // What a report says of `job`. `done` is not called if the job ends before.
  void Describe(JobId job, std::function<void(control::NodeReport)> done);
  std::string DescribeEvents() const;
  std::optional<JobId> running() const;
  // "stepping job 'train'", or "" if none is.
  std::string Stepping() const;
  int64_t acts_done() const;
  // Users' code that a job's loading or ending is inside of; `since` tells two apart.
  struct Standing {
    JobId job = 0;
    std::string_view phase;  // "the loading of a job"
    std::string what;        // "making read 'x' (train.cc:12)"
    Nanoseconds since = 0;
  };
  std::optional<Standing> standing() const;

 private:
  struct Job {
    std::string name;  // "": its plan is not read yet
    CollectiveId first_collective = 0;
    bool wants_summary = false;
    std::optional<PreparedJob> prepared;  // until it starts; absent: its kernels are being made
    std::set<uint16_t> missing;           // peers whose links are being made
    std::optional<NodeSummary> summary;
    std::unique_ptr<Executor> executor;  // once it has started
  };

  JobLoader& Loader();
  JobEnder& Ender();
  void OnPrepared(JobId job, absl::StatusOr<PreparedJob> prepared);
  void OnConnected(JobId job, uint16_t peer);
  void Start(JobId job);
  absl::Status StartExecutor(JobId id, Job& job);
  // Closes its executor and destroys it and its kernels.
  void End(JobId id, Job job, const absl::Status& reason);
  void Destroy(JobId id, Job job);
  void OnDestroyed(JobId job);

  const Options options_;
  Peers* peers_ = nullptr;
  StreamThreads threads_;  // outlive the jobs
  std::map<JobId, Job> jobs_;
  std::map<JobId, Job> closing_;  // whose acts end
  size_t num_ending_ = 0;         // of closing_, and those that are being destroyed
  std::function<void()> closed_;
  bool is_closed_ = false;
  // The highest number so far. What comes for a job up to it that is not here is late.
  JobId newest_ = 0;
  // What peers that were told of a job earlier send before it is here: (peer, frame).
  std::map<JobId, std::vector<std::pair<uint16_t, std::vector<std::byte>>>> early_;
  size_t num_early_ = 0;  // frames in early_
  Mutex hosts_mutex_;
  std::map<JobId, std::unique_ptr<HostIo>> hosts_ BRAID_GUARDED_BY(hosts_mutex_);
  std::unique_ptr<CheckpointSaver> saver_;  // until StopLoading
  // Both still call what is above, which finds them here, while they end; made when first needed.
  std::unique_ptr<JobEnder> ender_;
  std::unique_ptr<JobLoader> loader_;
};

}  // namespace braid
