// Sessions on the processes of a world, each of which runs the program.
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/record_job.h"
#include "api/session_impl.h"
#include "runtime/base/process.h"
#include "runtime/base/status.h"
#include "runtime/kernels/check_numerics.h"

namespace braid {

absl::Status Session::Impl::StartIn(dist::World& world) {
  BRAID_RETURN_IF_ERROR(CheckFit(options_));
  if (options_.network.has_value() || options_.simulation_seed.has_value() || options_.dry_run ||
      options_.devices != std::vector<int>{1} || !options_.node_kinds.empty() ||
      options_.threads_per_device != 1 || options_.decides_by_measured ||
      options_.interruption != nullptr || options_.on_failure || !options_.event_dump.empty() ||
      options_.stall_timeout != SessionOptions().stall_timeout) {
    return absl::InvalidArgumentError(
        "a session on a world has the world's processes, each with one CPU device of one thread: "
        "leave the options devices, node_kinds, threads_per_device, network, simulation_seed, "
        "dry_run and decides_by_measured as they are, and give stall_timeout, event_dump, "
        "interruption and on_failure to the world");
  }
  BRAID_ASSIGN_OR_RETURN(world_, WorldSeat::Take(world));
  // What compiling and running hang on; other ranks would go other ways.
  BRAID_RETURN_IF_ERROR(Agree(
      {absl::StrFormat("Session::Start with seed %d, precision %s, winograd %d, channel_block %d, "
                       "check_numerics %d, allow_nan %d, check_replicas %d",
                       options_.seed, ToString(options_.precision), options_.winograd,
                       options_.channel_block.value_or(0), options_.check_numerics,
                       options_.allow_nan, options_.check_replicas.value_or(-1))},
      absl::OkStatus()));
  if (options_.check_numerics) kernels().WrapAll(CheckNumerics);
  options_.devices.assign(world_->size(), 1);
  options_.node_kinds.assign(world_->size(), "cpu");
  if (world_->rank() != 0) {
    options_.progress = Progress::kOff;
    options_.metrics_path.clear();
    options_.explain_path.clear();
  }
  environment_ = &world_->environment();
  own_environment_.reset();
  BRAID_ASSIGN_OR_RETURN(reporter_, RunReporter::Make(options_, environment_));
  FindMachines();
  const NodeMachine& own = machines_.front();
  BRAID_ASSIGN_OR_RETURN(
      const std::vector<WorldSeat::Machine> machines,
      world_->ExchangeMachines({HostName(), own.memory_bytes, own.process_bytes, channel_block_}));
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    machines_[rank].host = machines[rank].host;
    machines_[rank].memory_bytes = machines[rank].memory_bytes;
    machines_[rank].process_bytes = machines[rank].process_bytes;
    channel_block_ = std::min(channel_block_, machines[rank].channel_block);
  }
  devices_ = DevicesOf(options_.devices, options_.node_kinds);
  coordinator_ = world_->coordinator();
  host_node_ = &world_->node();
  return ChooseMachines();
}

absl::Status Session::Impl::CloseInWorld(const absl::Status& cause) {
  if (!cause.ok()) return cause;
  absl::Status own = mistakes_->Take();
  own.Update(ByMaster("Close", [&] { return FinishSave(); }));
  for (auto& [id, job] : jobs_) Unload(id);
  UnloadReplicaCheck();
  return own;
}

absl::Status Session::Impl::Agree(const WorldSeat::Call& call, const absl::Status& own) {
  return world_ == nullptr ? own : world_->Agree(call, own);
}

absl::Status Session::Impl::EndSaving() {
  const absl::Status saved = AwaitSave();
  if (saver_ == nullptr) return saved;
  // Shared with the reactor, which may come to it too late.
  const std::shared_ptr<Event> is_drained = environment_->MakeEvent();
  coordinator_->reactor().Post([is_drained] { is_drained->Set(); });
  environment_->Await(*is_drained, kForever).IgnoreError();
  return saved;
}

// Recordings go from rank 0 to the others as texts, and its status ends the call.
absl::Status Session::Impl::ByMaster(const std::string& call,
                                     const std::function<absl::Status()>& action) {
  if (world_ == nullptr) return action();
  BRAID_RETURN_IF_ERROR(world_->Agree({call}, absl::OkStatus()));
  is_by_master_ = true;
  absl::Status status;
  MasterJob end;
  if (IsMaster()) {
    status = action();
    const absl::Status told = world_->TakeFromMaster(status, end);
    // Once they are told, it is the cause of all ranks.
    if (status.ok() || told.message() == status.message()) status = told;
  } else {
    status = FollowMaster();
  }
  is_by_master_ = false;
  return status;
}

absl::Status Session::Impl::FollowMaster() {
  for (;;) {
    MasterJob job;
    BRAID_RETURN_IF_ERROR(world_->TakeFromMaster(absl::OkStatus(), job));
    if (job == MasterJob()) return absl::OkStatus();
    // What the master makes of it, all ranks return.
    RunOnceHere(job.first, RecordedBefore(job.second), {}).status().IgnoreError();
  }
}

std::function<void(Job&)> Session::Impl::RecordedBefore(const std::string& text) {
  return [this, &text](Job& job) {
    absl::StatusOr<LogicalGraph> graph = LogicalGraph::Parse(text, &operators_);
    if (!graph.ok()) {
      job.graph().Fail(graph.status());
    } else {
      job.graph() = *std::move(graph);
    }
  };
}

absl::StatusOr<RunResult> Session::Impl::RunOnce(const std::string& name,
                                                 const std::function<void(Job&)>& record,
                                                 const RunOptions& options) {
  if (!is_by_master_) return RunOnceHere(name, record, options);
  LogicalGraph graph(&operators_);
  Job job(&graph, devices_, &datasets_);
  BRAID_RETURN_IF_ERROR(RecordJob(name, graph, [&] { record(job); }));
  MasterJob shared(name, graph.ToString());
  BRAID_RETURN_IF_ERROR(world_->TakeFromMaster(absl::OkStatus(), shared));
  return RunOnceHere(name, RecordedBefore(shared.second), options);
}

absl::StatusOr<std::unique_ptr<Session>> Session::Start(dist::World& world,
                                                        SessionOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  BRAID_RETURN_IF_ERROR(impl->StartIn(world));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

}  // namespace braid
