#include "api/dist_main.h"

#include <memory>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "api/command_line.h"
#include "api/main_process.h"
#include "api/network_flags.h"
#include "api/report_flags.h"
#include "api/spawn.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/status.h"

ABSL_FLAG(int, spawn, 0,
          "Start so many ranks as processes of this machine, instead of being one of those that a "
          "launcher started. 0: none");

namespace braid::dist {
namespace {

using Program = std::function<absl::Status(World& world)>;

absl::StatusOr<InitOptions> InitOptionsOfFlags(const MainOptions& options) {
  InitOptions init = options.init;
  BRAID_ASSIGN_OR_RETURN(NetworkFlags flags, ReadNetworkFlags());
  if (!flags.secret.empty()) init.secret = std::move(flags.secret);
  if (!flags.interface.empty()) init.interface = std::move(flags.interface);
  if (!flags.transport.empty()) init.transport = std::move(flags.transport);
  if (!flags.rdma.device.empty()) init.rdma_device = std::move(flags.rdma.device);
  if (flags.rdma.gid >= 0) init.rdma_gid = flags.rdma.gid;
  init.is_insecure = init.is_insecure || flags.is_insecure;
  BRAID_ASSIGN_OR_RETURN(ReportFlags reports, ReadReportFlags());
  if (reports.stall_timeout.has_value()) {
    init.stall_timeout = absl::Nanoseconds(*reports.stall_timeout);
  }
  init.event_dump = std::move(reports.event_dump);
  return init;
}

// How many ranks to start; 0: none.
absl::StatusOr<int> RanksToSpawn() {
  const int ranks = absl::GetFlag(FLAGS_spawn);
  if (ranks < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--spawn=%d; a number of ranks was expected", ranks));
  }
  for (const char* variable : {"RANK", "WORLD_SIZE"}) {
    const std::optional<std::string> value = EnvironmentVariable(variable);
    if (ranks > 0 && value.has_value()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--spawn=%d is to start the ranks, and %s=%s in the environment says that they have been "
          "started; give one of them",
          ranks, variable, *value));
    }
  }
  return ranks;
}

absl::Status RunWorld(InitOptions init, const Program& program, ProcessEnd& end) {
  BRAID_RETURN_IF_ERROR(end.WatchSignals());
  init.interruption = &end.interruption();
  init.on_failure = [&end](const absl::Status& cause) { end.Limit(cause); };
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<World> world, World::Init(init));
  const absl::Status status = CatchExceptions("the program", [&] { return program(*world); });
  const absl::Status closed = world->Close(status);
  return status.ok() ? closed : status;
}

absl::Status SpawnWorlds(const InitOptions& init, const Program& program, int ranks) {
  return Spawn(
      [&](int) {
        InitOptions spawned = init;
        spawned.init_method = "env://";
        spawned.rank = spawned.world_size = -1;
        ProcessEnd end;
        return RunWorld(std::move(spawned), program, end);
      },
      ranks);
}

}  // namespace

int Main(int argc, char** argv, const MainOptions& options, const Program& program) {
  absl::Status status = PrepareProcess(argc, argv, options.about, kSessionFlags);
  absl::StatusOr<InitOptions> init = InitOptions();
  absl::StatusOr<int> ranks = 0;
  if (status.ok()) status = (init = InitOptionsOfFlags(options)).status();
  if (status.ok()) status = (ranks = RanksToSpawn()).status();
  if (status.ok() && *ranks > 0) status = SpawnWorlds(*init, program, *ranks);
  if (!status.ok() || *ranks > 0) {
    if (!status.ok()) PrintError(status);
    return status.ok() ? 0 : 1;
  }
  ProcessEnd end;
  status = RunWorld(*std::move(init), program, end);
  if (status.ok()) status = FlushStandardOutput();
  if (!status.ok()) PrintError(status);
  return end.End(status);
}

int Main(int argc, char** argv, const Program& program) {
  return Main(argc, argv, MainOptions(), program);
}

}  // namespace braid::dist
