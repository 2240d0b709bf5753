#include "api/session.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/kernel_memory.h"
#include "api/layer_table.h"
#include "api/plan_report.h"
#include "api/record_job.h"
#include "api/session_impl.h"
#include "comm/control/network_place.h"
#include "compiler/plan/channel_blocks.h"
#include "compiler/plan/expand.h"
#include "compiler/plan/plan_codec.h"
#include "graph/op_roles.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_limit.h"
#include "runtime/cuda/cuda_kind.h"
#include "runtime/device/host_memory.h"
#include "runtime/kernels/check_numerics.h"
#include "runtime/reports/control_status.h"

namespace braid {
namespace {

// Beside those of its nodes: coordinator, rendezvous, saver.
constexpr int kSessionThreads = 3;

absl::Status CheckThreadsOf(const SessionOptions& options, const Environment& environment) {
  if (environment.is_simulated()) return absl::OkStatus();
  const size_t nodes_here = options.network.has_value() ? 1 : options.devices.size();
  return CheckThreads(kSessionThreads + kNodeThreads * static_cast<int>(nodes_here));
}

}  // namespace

// ---- Impl ---------------------------------------------------------------------------------------

Placement DevicesOf(const std::vector<int>& devices, const std::vector<std::string>& kinds) {
  std::vector<DeviceId> ids;
  for (size_t node = 0; node < devices.size(); ++node) {
    for (int device = 0; device < devices[node]; ++device) {
      ids.push_back({static_cast<int>(node), device});
    }
  }
  const bool is_mixed = std::ranges::any_of(
      kinds, [&kinds](const std::string& kind) { return kind != kinds.front(); });
  return Placement(is_mixed ? "mixed" : kinds.empty() ? "cpu" : kinds.front(), std::move(ids));
}

absl::Status CheckFit(const SessionOptions& options) {
  if (options.check_numerics && options.precision == DType::kF16) {
    return absl::InvalidArgumentError(
        "--check_numerics does not go with --precision=f16, whose loss scale lets gradients become "
        "infinite and then leaves the step out; look with f32 or bf16");
  }
  const int64_t block = options.channel_block.value_or(compiler::kWideBlock);
  if (block != compiler::kNarrowBlock && block != compiler::kWideBlock) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--channel_block=%d; %d or %d channels were expected, or 0 for what the CPU likes best",
        block, compiler::kNarrowBlock, compiler::kWideBlock));
  }
  return absl::OkStatus();
}

Session::Impl::Impl(SessionOptions options)
    : options_(std::move(options)),
      operators_(BuiltinOps()),
      kernels_(CpuKernels()),
      devices_(DevicesOf(options_.devices, options_.node_kinds)) {
  if (options_.check_numerics) kernels_.WrapAll(CheckNumerics);
  if (options_.network.has_value()) environment_ = options_.network->environment;
  if (environment_ != nullptr) return;
  own_environment_ = options_.simulation_seed.has_value()
                         ? MakeSimulatedEnvironment(*options_.simulation_seed)
                         : MakeRealEnvironment();
  environment_ = own_environment_.get();
}

Session::Impl::~Impl() {
  // The ranks of a world need not be at one place of their programs here.
  const absl::Status status = world_ != nullptr ? EndSaving() : Close(absl::OkStatus());
  if (!status.ok()) LOG(ERROR) << status.message();
  if (seat_.rendezvous != nullptr) seat_.rendezvous->SetStatusSource(nullptr);
  own_coordinator_.reset();
  nodes_.clear();
}

absl::Status Session::Impl::Close(const absl::Status& cause) {
  if (std::exchange(is_closed_, true)) return absl::OkStatus();
  if (world_ != nullptr) return CloseInWorld(cause);
  if (coordinator_ == nullptr || nodes_.empty()) return absl::OkStatus();
  // What was saved stays, whatever the program went on to do.
  absl::Status own = mistakes_->Take();
  const absl::Status saved = FinishSave();
  own.Update(saved);
  const absl::Status closed = coordinator_->Close(cause.ok() ? own : cause);
  const absl::Status status = own.ok() ? closed : own;
  if (options_.interruption != nullptr) options_.interruption->SetHandler(nullptr);
  return status;
}

absl::Status Session::Impl::LocalError(const absl::Status& status) const {
  if (options_.network.has_value()) {
    return Prefixed(NodeName(options_.network->cluster, 0), status);
  }
  return world_ != nullptr && world_->size() > 1 ? Prefixed("rank 0", status) : status;
}

Session::Impl::Activity::Activity(Impl* impl, std::string what)
    : impl_(impl),
      is_told_(impl->coordinator_ != nullptr && !std::exchange(impl->is_in_activity_, true)) {
  if (is_told_) impl_->coordinator_->SetActivity(std::move(what));
}

Session::Impl::Activity::~Activity() {
  if (!is_told_) return;
  impl_->coordinator_->SetActivity("");
  impl_->is_in_activity_ = false;
}

absl::Status Session::Impl::Start() {
  BRAID_RETURN_IF_ERROR(CheckFit(options_));
  BRAID_RETURN_IF_ERROR(CheckThreadsOf(options_, *environment_));
  if (options_.network.has_value()) {
    options_.devices.clear();
    options_.node_kinds.clear();
    for (const ClusterNode& node : options_.network->cluster.nodes) {
      if (node.devices->is_auto() && options_.dry_run) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "node %d (%s) is to take what devices it has, which nobody knows in a dry run; give "
            "their number, e.g. cpu:4",
            options_.devices.size(), node.host));
      }
      // Of the others, the joining tells it: until then they have one.
      const bool is_known = options_.devices.empty() || !node.devices->is_auto();
      const DeviceSpec devices = is_known ? DevicesHere(*node.devices) : DeviceSpec();
      options_.devices.push_back(devices.count);
      options_.node_kinds.push_back(devices.type);
    }
  }
  if (!options_.device_kinds.Find("cuda").ok()) {
    const auto defaults = std::make_shared<const cuda::CudaOptions>();
    BRAID_RETURN_IF_ERROR(options_.device_kinds.Register("cuda", cuda::CudaKind(defaults)));
  }
  if (options_.node_kinds.empty()) options_.node_kinds.assign(options_.devices.size(), "cpu");
  if (options_.devices.empty()) {
    return absl::InvalidArgumentError("a session needs at least one node");
  }
  for (int devices : options_.devices) {
    if (devices < 1 || devices > 4096) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "a node has %d devices; 1 to 4096 were expected (--devices=cpu:N)", devices));
    }
  }
  if (options_.node_kinds.size() != options_.devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("node_kinds has %d entries and devices has %d; both have one a node",
                        options_.node_kinds.size(), options_.devices.size()));
  }
  BRAID_RETURN_IF_ERROR(OpenDevices());
  BRAID_ASSIGN_OR_RETURN(reporter_, RunReporter::Make(options_, environment_));
  FindMachines();
  devices_ = DevicesOf(options_.devices, options_.node_kinds);
  if (options_.dry_run) return ChooseMachines();

  CoordinatorOptions coordinator{.environment = environment_};
  coordinator.stall_timeout = StallTimeoutIn(*environment_, options_.stall_timeout);
  if (options_.network.has_value()) {
    coordinator.name_of = [this](int node) { return NodeName(options_.network->cluster, node); };
  }
  coordinator.silence_of = [this](int node) -> Nanoseconds {
    const auto connection = connections_.find(node);
    if (connection == connections_.end()) return -1;
    return environment_->Now() - connection->second->counters().heard;
  };
  coordinator.on_failure = options_.on_failure;
  own_coordinator_ = std::make_unique<Coordinator>(std::move(coordinator));
  coordinator_ = own_coordinator_.get();
  std::vector<std::unique_ptr<ControlChannel>> channels;
  if (options_.network.has_value()) {
    BRAID_ASSIGN_OR_RETURN(channels, JoinNetwork());
  } else {
    for (size_t node = 0; node < options_.devices.size(); ++node) {
      channels.push_back(StartNode(static_cast<int>(node), ""));
    }
  }
  if (options_.interruption != nullptr) {
    options_.interruption->SetHandler(
        [this](const absl::Status& reason) { coordinator_->Fail(LocalError(reason)); });
  }
  BRAID_RETURN_IF_ERROR(ChooseMachines());
  BRAID_RETURN_IF_ERROR(coordinator_->Join(std::move(channels), kJoinLimit));
  coordinator_->SetPhase(kProgramPhase);
  return absl::OkStatus();
}

absl::Status Session::Impl::OpenDevices() {
  for (size_t node = 0; node < options_.node_kinds.size(); ++node) {
    BRAID_ASSIGN_OR_RETURN(const DeviceKinds::Kind* const kind,
                           options_.device_kinds.Find(options_.node_kinds[node]));
    if (options_.check_numerics && kind->is_hardware) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--check_numerics looks at what kernels of CPU devices make, and node %d has %s:%d; "
          "look with --devices=cpu:%d",
          node, options_.node_kinds[node], options_.devices[node], options_.devices[node]));
    }
    if (environment_->is_simulated() && kind->is_hardware) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "node %d has %s:%d, whose work a simulation cannot step; simulate with CPU devices", node,
          options_.node_kinds[node], options_.devices[node]));
    }
    const bool is_here = !options_.network.has_value() || node == 0;
    if (is_here && !options_.dry_run && kind->open) {
      BRAID_RETURN_IF_ERROR(LocalError(kind->open(options_.devices[node])));
    }
  }
  return absl::OkStatus();
}

void Session::Impl::FindMachines() {
  // In a dry run, machines that are not here are taken to be like this one.
  const bool are_listed = options_.dry_run && options_.network.has_value();
  channel_block_ = options_.channel_block.value_or(CpuChannelBlock());
  const uint64_t memory = ReadMemoryLimits().least();
  for (size_t node = 0; node < options_.devices.size(); ++node) {
    machines_.push_back({are_listed ? options_.network->cluster.nodes[node].host : "", memory});
    const DeviceKinds::Kind& kind = **options_.device_kinds.Find(options_.node_kinds[node]);
    const bool is_here = !options_.network.has_value() || node == 0;
    const bool is_known = is_here && !options_.dry_run && kind.memory != nullptr;
    for (int device = 0; device < (is_known ? options_.devices[node] : 0); ++device) {
      machines_[node].device_bytes.push_back(kind.memory(device, options_.devices[node]));
    }
    if (is_here && !options_.dry_run && kind.between_nodes && options_.devices.size() > 1) {
      machines_[node].reach = kind.between_nodes(options_.devices[node]);
    }
  }
}

std::unique_ptr<ControlChannel> Session::Impl::StartNode(int number, const std::string& host) {
  NodeOptions node{.node = static_cast<uint16_t>(number), .devices = options_.devices[number]};
  node.device_kind = *options_.device_kinds.Find(options_.node_kinds[number]);  // Start looked
  node.threads_per_device = options_.threads_per_device;
  node.simulation_seed = options_.simulation_seed.value_or(0);
  node.stall_timeout = StallTimeoutIn(*environment_, options_.stall_timeout);
  node.environment = environment_;
  node.event_dump = options_.event_dump;
  node.kernels = &kernels_;
  node.dataset_kinds = options_.dataset_kinds;
  if (options_.network.has_value()) {
    SetNetwork(node, *options_.network, host);
  } else {
    node.loopback = &loopback_;
  }
  nodes_.push_back(std::make_unique<Node>(node));
  if (number == 0) host_node_ = nodes_.back().get();
  auto [master_end, node_end] =
      MakeLoopbackControlPair(&coordinator_->reactor(), &nodes_.back()->reactor());
  nodes_.back()->Serve(std::move(node_end),
                       [](absl::Status cause) { VLOG(1) << "node closed: " << cause; });
  return std::move(master_end);
}

absl::StatusOr<std::vector<std::unique_ptr<ControlChannel>>> Session::Impl::JoinNetwork() {
  const NetworkOptions& network = *options_.network;
  BRAID_ASSIGN_OR_RETURN(seat_, TakeMasterSeat(network, environment_));
  machines_[0].host = seat_.self.host;
  machines_[0].memory_bytes = seat_.self.memory_bytes;
  machines_[0].process_bytes = seat_.self.process_bytes;
  if (options_.interruption != nullptr) {
    options_.interruption->SetHandler(
        [this](const absl::Status& reason) { seat_.rendezvous->Abort(reason); });
  }
  const absl::StatusOr<std::vector<JoinedNode>> joined = seat_.rendezvous->Join();
  if (options_.interruption != nullptr) options_.interruption->SetHandler(nullptr);
  BRAID_RETURN_IF_ERROR(joined.status());
  std::vector<std::unique_ptr<ControlChannel>> channels;
  channels.push_back(StartNode(0, seat_.data_host));
  for (const JoinedNode& node : *joined) {
    const NodeIdentity& identity = node.identity;
    BRAID_ASSIGN_OR_RETURN(const DeviceSpec devices, ParseDeviceSpec(identity.devices));
    options_.devices[identity.node] = devices.count;
    options_.node_kinds[identity.node] = devices.type;
    if (const absl::Status known = options_.device_kinds.Find(devices.type).status(); !known.ok()) {
      return Prefixed(absl::StrFormat("%s brings %s", NodeName(network.cluster, identity.node),
                                      identity.devices),
                      known);
    }
    machines_[identity.node] = {identity.host, identity.memory_bytes, identity.process_bytes,
                                identity.rates};
    machines_[identity.node].reach = {identity.device_library, identity.cards};
    connections_[identity.node] = node.connection;
    channels.push_back(MakeTcpControlChannel(node.connection, &coordinator_->reactor()));
  }
  devices_ = DevicesOf(options_.devices, options_.node_kinds);
  seat_.rendezvous->SetStatusSource(
      [this](std::function<void(std::string)> done) { coordinator_->Describe(std::move(done)); });
  return channels;
}

std::string Session::Impl::Describe() const {
  if (world_ != nullptr && coordinator_ == nullptr) return "rank 0 knows what the session does\n";
  if (coordinator_ == nullptr) return "no job runs: nothing but plans are made (--dry_run)\n";
  std::string text;
  const std::unique_ptr<Event> is_described = environment_->MakeEvent();
  coordinator_->Describe([&](std::string described) {
    text = std::move(described);
    is_described->Set();
  });
  CHECK(environment_->Await(*is_described, kJoinLimit).ok());
  return text;
}

absl::StatusOr<Session::Impl::LoadedJob*> Session::Impl::Compile(
    const std::string& name, const std::function<void(Job&)>& record, JobKind kind) {
  CompiledHere made;
  const absl::Status compiled = CompileHere(name, record, kind, made);
  BRAID_RETURN_IF_ERROR(
      Agree({absl::StrFormat("Compile of job '%s'", name), made.recorded}, compiled));
  LoadedJob& loaded = *made.job;
  loaded.id = next_job_++;
  loaded.hosts = kind.hosts;
  absl::Status status;
  if (IsMaster()) status = LoadCompiled(made, kind.is_visible);
  if (world_ != nullptr) status = world_->TakeFromMaster(status, loaded.summary);
  BRAID_RETURN_IF_ERROR(status);
  if (kind.is_visible) loaded.compiled = made.compiled;
  Remember(made.compiled->logical);
  return (jobs_[loaded.id] = std::move(made.job)).get();
}

absl::StatusOr<Session::Impl::LoadedJob*> Session::Impl::CompileUsers(
    const std::string& name, const std::function<void(Job&)>& record) {
  BRAID_ASSIGN_OR_RETURN(LoadedJob* const job, Compile(name, record, {.is_visible = true}));
  if (!job->has_no_sync) return job;
  const absl::StatusOr<LoadedJob*> other =
      Compile(name + " without sync", record, {.is_visible = true, .is_without_sync = true});
  if (!other.ok()) {
    Unload(job->id);
    return other.status();
  }
  job->without_sync = (*other)->id;
  return job;
}

absl::Status Session::Impl::CompileHere(const std::string& name,
                                        const std::function<void(Job&)>& record, JobKind kind,
                                        CompiledHere& made) {
  const bool is_visible = kind.is_visible;
  BRAID_RETURN_IF_ERROR(Begin("Compile", name));
  for (const auto& [id, other] : jobs_) {
    if (!is_visible || other->is_unloaded || other->name != name) continue;
    return absl::AlreadyExistsError(absl::StrFormat(
        "a job '%s' is compiled already, and checkpoints know jobs by their names; give this one "
        "another name, or Unload() that one first",
        name));
  }
  LogicalGraph graph(&operators_);
  Job job(&graph, devices_, &datasets_);
  job.is_without_sync_ = kind.is_without_sync;
  job.has_host_each_ = world_ != nullptr && kind.hosts == JobKind::Hosts::kAll;
  if (coordinator_ != nullptr) {
    coordinator_->SetPhase(absl::StrFormat("compiling job '%s'", name));
    job.watch_ = &coordinator_->program();
  }
  BRAID_RETURN_IF_ERROR(RecordJob(name, graph, [&] { record(job); }));
  if (is_visible) BRAID_RETURN_IF_ERROR(CheckHasEffect(name, graph));
  if (world_ != nullptr) made.recorded = graph.ToString();
  if (job.averages_.has_value()) BRAID_RETURN_IF_ERROR(ReadAverages(name, *job.averages_, graph));
  made.job = Recorded(job, graph);
  LoadedJob& loaded = *made.job;
  loaded.name = name;
  if (!graph.minimize().empty()) loaded.change = LoadedJob::Change::kMinimizes;
  graph.training = job.training_.value_or(!graph.minimize().empty());

  BRAID_ASSIGN_OR_RETURN(compiler::Compiled compiled,
                         compiler::Compile(std::move(graph), OptionsOfCompile(name, kind)));
  for (const Op& op : compiled.logical.ops()) {
    if (IsUpdate(compiled.logical, op)) {
      loaded.change = std::max(loaded.change, LoadedJob::Change::kAssigns);
    }
    if (is_visible && IsVariable(compiled.logical, op) && op.attrs.Has("trainable") &&
        op.attrs.Bool("trainable")) {
      loaded.trainable.push_back(op.name);
    }
    if (HasRole(compiled.logical, op, OpRole::kInput)) {
      loaded.inputs.push_back({.name = op.name,
                               .type = compiled.logical.type(op.outputs[0]),
                               .location = op.location.ToString(),
                               .is_own = Mirroring::Of(op.attrs).has_value()});
    } else if (HasRole(compiled.logical, op, OpRole::kFetch)) {
      loaded.fetches.emplace_back(op.attrs.String("name"), compiled.logical.type(op.inputs[0]));
    }
  }
  made.compiled = std::make_shared<const compiler::Compiled>(std::move(compiled));
  made.plan = compiler::EncodePlan(made.compiled->physical);
  loaded.plan_bytes = made.plan.size();
  loaded.kept_bytes = compiler::KeptBytes(made.compiled->physical);
  return absl::OkStatus();
}

compiler::CompileOptions Session::Impl::OptionsOfCompile(const std::string& name,
                                                         JobKind kind) const {
  compiler::CompileOptions compile = {.job = name};
  compile.all_devices = devices_;
  const bool is_at_all = world_ != nullptr && kind.hosts == JobKind::Hosts::kAll;
  compile.master = is_at_all ? devices_ : devices_.Slice(0, 1);
  compile.num_nodes = static_cast<int>(options_.devices.size());
  compile.kinds = KindsOfNodes();
  for (const auto& [variable, info] : variables_) compile.fixed[variable] = info.layout;
  compile.precision = options_.precision;
  compile.winograd = options_.winograd;
  compile.channel_block = channel_block_;
  SetMemory(compile);
  compile.explain = kind.is_visible && !options_.explain_path.empty();
  compile.seed = options_.seed;
  if (kind.is_visible) compile.layout_seed = options_.layout_seed;
  compile.machine = choice_machine_;
  compile.estimate = estimate_machine_;
  return compile;
}

absl::Status Session::Impl::LoadCompiled(const CompiledHere& made, bool is_visible) {
  LoadedJob& loaded = *made.job;
  BRAID_ASSIGN_OR_RETURN(const std::vector<NodeSummary> nodes,
                         LoadEverywhere(loaded, made.plan, made.compiled->physical, is_visible));
  if (!is_visible) return absl::OkStatus();
  for (const NodeSummary& node : nodes) {
    loaded.memory.insert(loaded.memory.end(), node.devices.begin(), node.devices.end());
  }
  loaded.summary = SummarizePlan(*made.compiled, nodes, made.plan.size());
  loaded.compiled = made.compiled;
  absl::Status status = CheckMemory(loaded);
  if (status.ok()) status = WriteExplanation(loaded);
  if (!status.ok()) {
    if (coordinator_ != nullptr) coordinator_->Unload(loaded.id);
    return status;
  }
  if (options_.dry_run) {
    std::cout << loaded.summary << LayerTable(made.compiled->logical) << std::flush;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NodeSummary>> Session::Impl::LoadEverywhere(
    const LoadedJob& job, const std::string& plan, const compiler::PhysicalGraph& graph,
    bool wants_summaries) {
  if (!options_.dry_run) {
    const CollectiveId first = next_collective_;
    next_collective_ += static_cast<CollectiveId>(compiler::NumCollectiveIds(graph));
    return coordinator_->Load({.job = job.id,
                               .name = job.name,
                               .plan = plan,
                               .first_collective = first,
                               .wants_summaries = wants_summaries});
  }
  std::vector<NodeSummary> nodes;
  if (!wants_summaries) return nodes;
  KernelMemoryPlanner planner(&kernels_, options_.threads_per_device);
  for (int node = 0; node < graph.num_nodes; ++node) {
    BRAID_ASSIGN_OR_RETURN(const plan::NodePlan part, compiler::ExpandPlan(graph, node));
    nodes.push_back(SummarizeNode(part, datasets_,
                                  [&planner](const plan::Task& task) { return planner.Of(task); }));
  }
  return nodes;
}

absl::Status Session::Impl::WriteExplanation(const LoadedJob& job) {
  if (options_.explain_path.empty()) return absl::OkStatus();
  const bool is_dot = options_.explain_path.ends_with(".dot");
  // Later jobs follow in the same text; a .dot file holds one graph, so that they have their own.
  const bool is_later = std::exchange(has_explained_, true);
  std::string path = options_.explain_path;
  if (is_dot && is_later) path.insert(path.size() - 4, "." + job.name);
  std::FILE* file = std::fopen(path.c_str(), is_later && !is_dot ? "a" : "w");
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrFormat("--explain=%s cannot be written", path));
  }
  const std::string text =
      is_dot ? PlanAsDot(*job.compiled) : ExplainPlan(*job.compiled, job.summary);
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !is_written) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("--explain=%s: not all of %d bytes could be written", path, text.size()));
  }
  return absl::OkStatus();
}

void Session::Impl::Unload(JobId id) {
  LoadedJob& job = *jobs_.at(id);
  if (std::exchange(job.is_unloaded, true)) return;
  if (job.without_sync.has_value()) Unload(*job.without_sync);
  UnloadEverywhere(id, job.name);
  job.compiled.reset();
}

void Session::Impl::UnloadEverywhere(JobId id, std::string_view name) {
  // In a world no rank's program is in a Run of it any more, with what its node keeps for that. A
  // world that has failed keeps nothing for long.
  const absl::Status agreed =
      Agree({absl::StrFormat("Unload of job '%s'", std::string(name))}, absl::OkStatus());
  if (agreed.ok() && coordinator_ != nullptr) coordinator_->Unload(id);
}

// ---- CompiledJob --------------------------------------------------------------------------------

absl::StatusOr<RunResult> CompiledJob::Run(const RunOptions& options) {
  return session_->impl_->Run(job_, options);
}

void CompiledJob::Unload() { session_->impl_->Unload(job_); }

int64_t CompiledJob::step() const { return session_->impl_->job(job_).step; }

void CompiledJob::SetStep(int64_t step) { session_->impl_->job(job_).step = step; }

const std::string& CompiledJob::summary() const { return session_->impl_->job(job_).summary; }

const std::vector<DeviceMemory>& CompiledJob::memory() const {
  return session_->impl_->job(job_).memory;
}

std::string CompiledJob::Explain() const {
  const Session::Impl::LoadedJob& job = session_->impl_->job(job_);
  if (job.is_unloaded) return absl::StrFormat("job '%s' was unloaded\n", job.name);
  return ExplainPlan(*job.compiled, job.summary);
}

size_t CompiledJob::plan_bytes() const { return session_->impl_->job(job_).plan_bytes; }

// ---- Session ------------------------------------------------------------------------------------

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() = default;

absl::Status Session::Close(const absl::Status& cause) { return impl_->Close(cause); }

absl::StatusOr<std::unique_ptr<Session>> Session::Start(SessionOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  BRAID_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

OpRegistry& Session::operators() { return impl_->operators(); }

KernelRegistry& Session::kernels() { return impl_->kernels(); }

const Placement& Session::devices() const { return impl_->devices(); }

absl::StatusOr<CompiledJob> Session::CompileRecorded(
    const std::string& name, const std::function<absl::Status(Job&)>& record) {
  const auto record_or_fail = [&record](Job& job) {
    absl::Status status = record(job);
    if (!status.ok()) job.graph().Fail(std::move(status));
  };
  BRAID_ASSIGN_OR_RETURN(Impl::LoadedJob * loaded, impl_->CompileUsers(name, record_or_fail));
  return CompiledJob(this, loaded->id);
}

std::vector<NodeTraffic> Session::Traffic() const { return impl_->Traffic(); }

std::string Session::Describe() const { return impl_->Describe(); }

std::vector<std::string> Session::variables() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : impl_->variables()) names.push_back(name);
  return names;
}

}  // namespace braid
