#include "api/main.h"

#include <memory>
#include <utility>

#include "api/command_line.h"
#include "api/flags.h"
#include "api/main_process.h"
#include "api/measure_machine.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_limit.h"
#include "runtime/kernels/check_numerics.h"

namespace braid {
namespace {

// Of this file, and of measuring the machine.
constexpr int kThreadsHere = 5;

// Before the nodes join, so that all measure at the same time.
void Measure(ProgramFlags& flags) {
  if (!flags.measures_machine) return;
  const KernelRegistry kernels = CpuKernels();
  SessionOptions& session = flags.session;
  session.measured =
      CachedMachine({.kernels = &kernels, .threads_per_device = session.threads_per_device});
  if (session.network.has_value()) session.network->rates = session.measured->ToString();
}

absl::Status Extend(const MainOptions& options, OpRegistry& operators, KernelRegistry& kernels) {
  if (!options.extend) return absl::OkStatus();
  return CatchExceptions("MainOptions::extend", [&] { return options.extend(operators, kernels); });
}

absl::Status Serve(ProgramFlags& flags, const MainOptions& options, ProcessEnd& end) {
  OpRegistry operators = BuiltinOps();
  KernelRegistry kernels = CpuKernels();
  if (flags.session.check_numerics) kernels.WrapAll(CheckNumerics);
  BRAID_RETURN_IF_ERROR(Extend(options, operators, kernels));
  const Cluster& cluster = flags.session.network->cluster;
  const DeviceSpec devices = DevicesHere(*cluster.nodes[cluster.rank].devices);
  BRAID_ASSIGN_OR_RETURN(const DeviceKinds::Kind* const kind,
                         flags.session.device_kinds.Find(devices.type));
  if (kind->open) BRAID_RETURN_IF_ERROR(kind->open(devices.count));
  if (kind->between_nodes) flags.session.network->reach = kind->between_nodes(devices.count);
  return ServeNode(*flags.session.network,
                   {.device_kind = kind,
                    .threads_per_device = flags.session.threads_per_device,
                    .stall_timeout = flags.session.stall_timeout,
                    .event_dump = flags.session.event_dump,
                    .kernels = &kernels,
                    .dataset_kinds = options.dataset_kinds,
                    .interruption = &end.interruption(),
                    .on_failure = [&end](const absl::Status& cause) { end.Limit(cause); }});
}

absl::Status RunProgram(const MainOptions& options,
                        const std::function<absl::Status(Session&)>& program, ProcessEnd& end) {
  BRAID_ASSIGN_OR_RETURN(ProgramFlags flags, ReadFlags(options.cluster, options.device_kinds));
  const bool dry_run = flags.session.dry_run;
  if (!flags.is_master && dry_run) return absl::OkStatus();
  Measure(flags);
  if (!flags.is_master) return Serve(flags, options, end);
  flags.session.dataset_kinds = options.dataset_kinds;
  flags.session.interruption = &end.interruption();
  flags.session.on_failure = [&end](const absl::Status& cause) { end.Limit(cause); };
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                         Session::Start(std::move(flags.session)));
  absl::Status status = Extend(options, session->operators(), session->kernels());
  if (status.ok()) status = CatchExceptions("the program", [&] { return program(*session); });
  if (dry_run && absl::IsCancelled(status)) status = absl::OkStatus();
  // The other nodes end as this one does, and it as they do.
  const absl::Status closed = session->Close(status);
  return status.ok() ? closed : status;
}

}  // namespace

int Main(int argc, char** argv, const MainOptions& options,
         const std::function<absl::Status(Session&)>& program) {
  absl::Status status = PrepareProcess(argc, argv, options.about, kGroupFlags);
  if (status.ok()) status = CheckThreads(kThreadsHere);
  if (!status.ok()) {
    PrintError(status);
    return 1;
  }
  ProcessEnd end;
  status = end.WatchSignals();
  if (status.ok()) status = RunProgram(options, program, end);
  if (status.ok()) status = FlushStandardOutput();
  if (!status.ok()) PrintError(status);
  return end.End(status);
}

int Main(int argc, char** argv, const std::function<absl::Status(Session&)>& program) {
  return Main(argc, argv, MainOptions(), program);
}

}  // namespace braid
