#include "runtime/node_jobs.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/remote_bus.h"

namespace braid {
namespace {

// Landing keys of jobs that a peer was told of earlier; nothing else comes before a job.
constexpr size_t kMaxEarlyFrames = size_t{1} << 20;
constexpr int64_t kMaxStep = int64_t{1} << 32;  // of a job, counted over checkpoints

}  // namespace

NodeJobs::NodeJobs(Options options)
    : options_(std::move(options)),
      threads_(options_.environment, options_.node),
      saver_(std::make_unique<CheckpointSaver>(
          CheckpointSaver::Options{.node = options_.node,
                                   .environment = options_.environment,
                                   .control = options_.control,
                                   .on_saved = options_.on_saved})) {}

NodeJobs::~NodeJobs() = default;

void NodeJobs::StopLoading() {
  loader_.reset();
  saver_.reset();
}

HostIo& NodeJobs::Host(JobId job) {
  MutexLock lock(hosts_mutex_);
  std::unique_ptr<HostIo>& host = hosts_[job];
  if (host == nullptr) host = std::make_unique<HostIo>();
  return *host;
}

JobLoader& NodeJobs::Loader() {
  if (loader_ == nullptr) {
    loader_ = std::make_unique<JobLoader>(
        JobLoader::Options{.node = options_.node,
                           .environment = options_.environment,
                           .control = options_.control,
                           .kernels = {.devices = options_.devices,
                                       .datasets = options_.datasets,
                                       .saver = saver_.get(),
                                       .threads_per_device = options_.threads_per_device}});
  }
  return *loader_;
}

JobEnder& NodeJobs::Ender() {
  if (ender_ == nullptr) {
    ender_ = std::make_unique<JobEnder>(JobEnder::Options{
        .node = options_.node, .environment = options_.environment, .control = options_.control});
  }
  return *ender_;
}

absl::Status NodeJobs::Load(LoadRequest request) {
  if (request.job <= newest_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("node %d: Load of job %d after job %d; their numbers go up", options_.node,
                        request.job, newest_));
  }
  newest_ = request.job;
  Job& job = jobs_[request.job];
  job.first_collective = request.first_collective;
  job.wants_summary = request.wants_summary;
  Loader().Load({.job = request.job,
                 .plan = std::move(request.plan),
                 .fingerprint = request.fingerprint,
                 .host = &Host(request.job)},
                [this, id = request.job](absl::StatusOr<PreparedJob> prepared) {
                  OnPrepared(id, std::move(prepared));
                });
  return absl::OkStatus();
}

void NodeJobs::OnPrepared(JobId id, absl::StatusOr<PreparedJob> prepared) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) {  // unloaded meanwhile
    Job job;
    if (prepared.ok()) job.prepared = *std::move(prepared);
    return Destroy(id, std::move(job));
  }
  if (!prepared.ok()) {
    jobs_.erase(found);
    return options_.on_loaded(id, prepared.status(), std::nullopt);
  }
  Job& job = found->second;
  job.prepared = *std::move(prepared);
  job.name = job.prepared->plan.part.job;
  for (uint32_t peer : job.prepared->plan.part.peers) {
    if (!peers_->IsReady(static_cast<uint16_t>(peer))) {
      job.missing.insert(static_cast<uint16_t>(peer));
    }
  }
  const std::set<uint16_t> missing = job.missing;
  if (missing.empty()) return Start(id);
  for (uint16_t peer : missing) {
    // The loss of a peer ends the session: whoever owns the peers hears of it.
    peers_->Connect(peer, [this, id, peer](const absl::Status& status) {
      if (status.ok()) OnConnected(id, peer);
    });
  }
}

void NodeJobs::OnConnected(JobId id, uint16_t peer) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;  // unloaded meanwhile
  if (found->second.missing.erase(peer) > 0 && found->second.missing.empty()) Start(id);
}

void NodeJobs::Start(JobId id) {
  if (const absl::Status status = StartExecutor(id, jobs_.at(id)); !status.ok()) {
    auto failed = jobs_.extract(id);
    End(id, std::move(failed.mapped()), status);
    return options_.on_loaded(id, status, std::nullopt);
  }
  Executor& executor = *jobs_.at(id).executor;
  if (const absl::Status status = executor.Connect(); !status.ok()) {
    return options_.on_loaded(id, status, std::nullopt);
  }
  const auto early = early_.extract(id);
  if (early.empty()) return;
  num_early_ -= early.mapped().size();
  for (const auto& [peer, frame] : early.mapped()) {
    if (const absl::Status status = executor.OnFrame(peer, frame); !status.ok()) {
      peers_->LinkTo(peer)->Close(status);
    }
  }
}

absl::Status NodeJobs::StartExecutor(JobId id, Job& job) {
  const plan::NodePlan& plan = job.prepared->plan.part;
  NodeResources resources;
  resources.node = options_.node;
  resources.environment = options_.environment;
  resources.control = options_.control;
  resources.threads = &threads_;
  resources.devices = options_.devices;
  resources.device_group = options_.device_group;
  resources.variables = options_.variables;
  resources.datasets = options_.datasets;
  resources.collectives = options_.collectives;
  // Actors ask from their own threads, while links to others may be made.
  std::map<uint16_t, Link*> links;
  for (uint32_t peer : plan.peers) {
    links[static_cast<uint16_t>(peer)] = peers_->LinkTo(static_cast<uint16_t>(peer));
  }
  resources.link_of = [links](uint16_t peer) {
    const auto found = links.find(peer);
    return found == links.end() ? nullptr : found->second;
  };
  resources.simulation_seed = options_.simulation_seed;
  ExecutorOptions executor;
  executor.job = id;
  executor.first_collective = job.first_collective;
  // It may end meanwhile, as whatever is closed.
  executor.on_ready = [this, id] {
    const auto found = jobs_.find(id);
    if (found != jobs_.end()) options_.on_loaded(id, absl::OkStatus(), found->second.summary);
  };
  executor.on_run_done = [this, id] {
    if (jobs_.contains(id)) options_.on_run_done(id);
  };
  executor.on_failure = options_.on_failure;
  job.executor = std::make_unique<Executor>(resources, std::move(executor));
  BRAID_RETURN_IF_ERROR(job.executor->Load(plan, job.prepared->kernels));
  // A program's thread has no threads to share a device's work with.
  if (options_.threads_per_device == 1) Host(id).SetLocalRuns(job.executor->local_runs());
  if (job.wants_summary) job.summary = job.executor->Summarize(plan);
  job.prepared.reset();  // all its kernels are the executor's
  return absl::OkStatus();
}

absl::Status NodeJobs::Run(JobId id, int64_t first_step, int64_t steps) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) {
    return absl::InternalError(
        absl::StrFormat("node %d: Run of unknown job %d", options_.node, id));
  }
  const Job& job = found->second;
  const bool is_ready = job.executor != nullptr && job.executor->is_ready();
  const bool is_running = job.executor != nullptr && job.executor->is_running();
  if (!is_ready || is_running || first_step < 0 || first_step > kMaxStep || steps < 1 ||
      steps > kMaxStep) {
    return absl::InvalidArgumentError(
        absl::StrFormat("node %d: Run of %d steps from step %d of job '%s', which is %s",
                        options_.node, steps, first_step, job.name,
                        is_running ? "running"
                        : is_ready ? "ready"
                                   : "loading"));
  }
  job.executor->Run(first_step, steps);
  return absl::OkStatus();
}

void NodeJobs::Unload(JobId id) {
  auto job = jobs_.extract(id);
  if (job.empty()) return;
  End(id, std::move(job.mapped()), absl::CancelledError("the job was unloaded"));
}

void NodeJobs::End(JobId id, Job job, const absl::Status& reason) {
  if (const auto early = early_.extract(id); !early.empty()) num_early_ -= early.mapped().size();
  if (job.executor == nullptr) {
    // What the loader is still making comes to OnPrepared.
    if (job.prepared.has_value()) Destroy(id, std::move(job));
    return;
  }
  ++num_ending_;
  Executor& executor = *job.executor;
  closing_[id] = std::move(job);
  executor.Close(reason, [this, id] {
    --num_ending_;
    Destroy(id, std::move(closing_.extract(id).mapped()));
  });
}

void NodeJobs::Destroy(JobId id, Job job) {
  JobEnder::Request request;
  request.job = id;
  request.name = job.name;
  request.end = [job = std::move(job)] {};
  // What the loader was inside of when all had closed: the control thread may end before it does.
  if (is_closed_ && closed_ == nullptr) return Ender().End(std::move(request), nullptr);
  ++num_ending_;
  Ender().End(std::move(request), [this, id] { OnDestroyed(id); });
}

void NodeJobs::OnDestroyed(JobId id) {
  // Of what was unloaded, nobody feeds or fetches any more; of what was closed, the program may.
  if (!is_closed_) {
    MutexLock lock(hosts_mutex_);
    hosts_.erase(id);
  }
  if (--num_ending_ == 0 && closed_) std::exchange(closed_, nullptr)();
}

absl::Status NodeJobs::OnFrame(uint16_t peer, std::span<const std::byte> frame) {
  if (is_closed_) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(const JobId id, JobOfFrame(frame));
  const auto found = jobs_.find(id);
  if (found != jobs_.end() && found->second.executor != nullptr) {
    return found->second.executor->OnFrame(peer, frame);
  }
  if (found == jobs_.end() && id <= newest_) return absl::OkStatus();  // unloaded
  if (num_early_ >= kMaxEarlyFrames) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d frames came for jobs that this node does not know yet", num_early_));
  }
  ++num_early_;
  early_[id].emplace_back(peer, std::vector<std::byte>(frame.begin(), frame.end()));
  return absl::OkStatus();
}

void NodeJobs::Close(const absl::Status& reason, std::function<void()> closed) {
  CHECK(!std::exchange(is_closed_, true)) << "jobs are closed once";
  closed_ = std::move(closed);
  if (options_.device_group != nullptr) options_.device_group->Abort();
  for (auto& [id, job] : std::exchange(jobs_, {})) End(id, std::move(job), reason);
  if (num_ending_ == 0) std::exchange(closed_, nullptr)();
}

void NodeJobs::Describe(JobId id, std::function<void(control::NodeReport)> done) {
  const auto found = jobs_.find(id);
  if (found != jobs_.end() && found->second.executor != nullptr) {
    return found->second.executor->Describe(std::move(done));
  }
  control::NodeReport report;
  report.set_node(options_.node);
  report.set_advanced(-1);
  done(std::move(report));
}

std::string NodeJobs::DescribeEvents() const {
  std::string text;
  for (const auto& [id, job] : jobs_) {
    if (job.executor != nullptr) text += job.executor->DescribeEvents();
  }
  return text;
}

std::optional<JobId> NodeJobs::running() const {
  std::optional<JobId> running;
  for (const auto& [id, job] : jobs_) {
    if (job.executor != nullptr && job.executor->is_running()) running = id;
  }
  return running;
}

std::string NodeJobs::Stepping() const {
  const auto found = jobs_.find(running().value_or(0));
  return found == jobs_.end() ? "" : absl::StrFormat("stepping job '%s'", found->second.name);
}

int64_t NodeJobs::acts_done() const {
  int64_t acts = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.executor != nullptr) acts += job.executor->acts_done();
  }
  return acts;
}

std::optional<NodeJobs::Standing> NodeJobs::standing() const {
  const auto loading = loader_ != nullptr ? loader_->doing() : std::nullopt;
  const auto ending = ender_ != nullptr ? ender_->doing() : std::nullopt;
  if (!loading.has_value() && !ending.has_value()) return std::nullopt;
  // The longer one.
  const bool is_loading =
      loading.has_value() && (!ending.has_value() || loading->since <= ending->since);
  const JobLoader::Doing& doing = is_loading ? *loading : *ending;
  return Standing{.job = doing.job,
                  .phase = is_loading ? "the loading of a job" : "the ending of a job",
                  .what = doing.what,
                  .since = doing.since};
}

}  // namespace braid
