#include "runtime/job_loader.h"

#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/philox.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/external_kernels.h"
#include "runtime/kernels/work_memory.h"
#include "runtime/plan_check.h"

namespace braid {
namespace {

std::string NameOf(const compiler::KernelCall& call) {
  return absl::StrFormat("%s '%s'", call.op, call.name);
}

absl::StatusOr<ComputeCall> MakeCall(const plan::Kernel& kernel, const KernelRegistry& registry,
                                     const KernelSpec& spec) {
  ComputeCall call;
  call.name = {.what = NameOf(*kernel.call), .location = kernel.call->location.ToString()};
  const auto create = [&]() -> absl::Status {
    BRAID_RETURN_IF_ERROR(registry.Check(spec));
    BRAID_ASSIGN_OR_RETURN(const PlannedKernel planned, registry.Plan(spec));
    call.memory = planned.memory;
    BRAID_ASSIGN_OR_RETURN(call.kernel, planned.make());
    return absl::OkStatus();
  };
  const absl::Status status = CatchExceptions("what makes its kernel", create);
  if (!status.ok()) return NameFailure(call.name, status);
  return call;
}

}  // namespace

absl::StatusOr<PreparedKernels> PrepareKernels(
    const plan::NodePlan& plan, const KernelContext& context,
    const std::function<void(const compiler::KernelCall*)>& begin) {
  BRAID_RETURN_IF_ERROR(CheckPlan(plan, *context.devices));
  KernelRegistry external;
  BRAID_RETURN_IF_ERROR(RegisterExternalKernels(
      {context.datasets, context.host, context.saver, static_cast<int>(plan.node)}, external));
  PreparedKernels prepared;
  std::map<uint32_t, std::shared_ptr<WorkMemory>> work_of;  // by the plan's thread
  for (const plan::Task& task : plan.tasks) {
    const auto* compute = std::get_if<plan::Compute>(&task.work);
    if (compute == nullptr) continue;
    Device& device = *(*context.devices)[task.device];
    std::shared_ptr<WorkMemory>& work = work_of[task.id.thread];
    if (work == nullptr) work = std::make_shared<WorkMemory>(MemoryOf(device, MemoryKind::kOwn));
    std::vector<ComputeCall>& calls = prepared[task.id.task];
    for (const plan::Kernel& kernel : compute->kernels) {
      begin(kernel.call);
      KernelSpec spec = KernelSpecOf(kernel);
      spec.seed = MirroredSeed(plan.seed, spec.mirror);
      spec.threads = context.threads_per_device;
      spec.work = work;
      auto call = MakeCall(kernel, external.Has(spec.op) ? external : device.kernels(), spec);
      if (!call.ok()) {
        return Prefixed(absl::StrFormat("job '%s', node %d", plan.job, plan.node), call.status());
      }
      calls.push_back(*std::move(call));
    }
  }
  return prepared;
}

JobLoader::JobLoader(const Options& options)
    : options_(options),
      reactor_(options.environment->StartReactor(absl::StrFormat("loader %d", options.node))) {}

JobLoader::~JobLoader() {
  MutexLock lock(mutex_);
  is_ending_ = true;
}

void JobLoader::Load(Request request, std::function<void(absl::StatusOr<PreparedJob>)> done) {
  reactor_->Post([this, request = std::move(request), done = std::move(done)]() mutable {
    {
      MutexLock lock(mutex_);
      if (is_ending_) return;
      job_ = request.job;
      since_ = reactor_->Now();
    }
    PreparedJob job;
    const absl::Status status = Prepare(request, job);
    {
      MutexLock lock(mutex_);
      job_ = 0;
      call_ = nullptr;
      if (is_ending_) return;
    }
    options_.control->Post([status, job = std::move(job), done = std::move(done)]() mutable {
      if (!status.ok()) return done(status);
      done(std::move(job));
    });
  });
}

absl::Status JobLoader::Prepare(const Request& request, PreparedJob& job) {
  BRAID_ASSIGN_OR_RETURN(job.plan, ReadNodePlan(*request.plan, request.fingerprint, options_.node));
  KernelContext context = options_.kernels;
  context.host = request.host;
  BRAID_ASSIGN_OR_RETURN(job.kernels,
                         PrepareKernels(job.plan.part, context,
                                        [this](const compiler::KernelCall* call) { Begin(call); }));
  return absl::OkStatus();
}

void JobLoader::Begin(const compiler::KernelCall* call) {
  MutexLock lock(mutex_);
  call_ = call;
  since_ = reactor_->Now();
}

std::optional<JobLoader::Doing> JobLoader::doing() const {
  MutexLock lock(mutex_);
  if (job_ == 0) return std::nullopt;
  Doing doing{.job = job_, .what = "reading the plan", .since = since_};
  if (call_ != nullptr) {
    doing.what = absl::StrFormat("making %s (%s)", NameOf(*call_), call_->location.ToString());
  }
  return doing;
}

}  // namespace braid
