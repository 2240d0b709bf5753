#include "comm/cluster/launcher_environment.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/cluster/node_list.h"
#include "comm/cluster/plain_text.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr char kThisHost[] = "127.0.0.1";
constexpr char kDigits[] = "0123456789";

using OptionalNumber = std::optional<EnvironmentNumber>;

absl::StatusOr<OptionalNumber> ReadNumber(const EnvironmentVariables& env,
                                          const std::string& variable, int min, int max) {
  const std::optional<std::string> text = env(variable);
  if (!text.has_value()) return OptionalNumber();
  const std::optional<int> value = ParseDecimal(*text, min, max);
  if (!value.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("environment variable %s='%s'; a number from %d to %d was expected",
                        variable, Excerpt(*text), min, max));
  }
  return OptionalNumber({variable, *value});
}

absl::StatusOr<OptionalNumber> ReadRank(const EnvironmentVariables& env,
                                        const std::string& variable) {
  return ReadNumber(env, variable, 0, kMaxNodes - 1);
}

absl::StatusOr<OptionalNumber> ReadSize(const EnvironmentVariables& env,
                                        const std::string& variable) {
  return ReadNumber(env, variable, 1, kMaxNodes);
}

// For launchers that always set both.
absl::Status CheckBoth(const OptionalNumber& rank, const OptionalNumber& size,
                       const std::string& rank_variable, const std::string& size_variable) {
  if (rank.has_value() == size.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("environment variable %s is set and %s is not; set both or neither",
                      rank.has_value() ? rank->ToString() : size->ToString(),
                      rank.has_value() ? size_variable : rank_variable));
}

absl::StatusOr<HostAndPort> MasterOfVariables(const EnvironmentVariables& env) {
  const std::string text = *env("MASTER_ADDR");
  const absl::Status status = CheckHost(text);
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "environment variable MASTER_ADDR: %s; node 0's was expected (its port goes into "
        "MASTER_PORT)",
        std::string(status.message())));
  }
  return HostAndPort{.host = text};
}

absl::StatusOr<uint16_t> MasterPort(const EnvironmentVariables& env) {
  BRAID_ASSIGN_OR_RETURN(const OptionalNumber port, ReadNumber(env, "MASTER_PORT", 1, 65535));
  return static_cast<uint16_t>(port.has_value() ? port->value : 0);
}

absl::StatusOr<std::optional<Launcher>> FindBraidLaunch(const EnvironmentVariables& env) {
  Launcher launcher{.origin = "braid launch", .size_variable = "BRAID_NUM_NODES"};
  BRAID_ASSIGN_OR_RETURN(launcher.size, ReadSize(env, launcher.size_variable));
  const std::optional<std::string> master = env("BRAID_MASTER");
  if (!launcher.size.has_value() && !master.has_value()) return std::optional<Launcher>();
  BRAID_ASSIGN_OR_RETURN(launcher.rank, ReadRank(env, "BRAID_NODE_RANK"));
  if (!master.has_value()) {
    launcher.master = absl::InvalidArgumentError(absl::StrFormat(
        "environment variable %s is set and BRAID_MASTER is not; set it to node 0's host:port",
        launcher.size->ToString()));
  } else {
    launcher.master = ParseHostAndPort(*master);
    if (!launcher.master.ok()) {
      launcher.master = absl::InvalidArgumentError(
          absl::StrFormat("environment variable BRAID_MASTER: %s; node 0's host:port was expected",
                          std::string(launcher.master.status().message())));
    }
  }
  return launcher;
}

// The Slurm step that this process is a task of, for messages. What srun did not start (the shell
// of salloc, say) is a step without an id, or with one of the reserved ids just below 2^32.
std::optional<std::string> FindSlurmStep(const EnvironmentVariables& env) {
  const std::optional<std::string> step = env("SLURM_STEP_ID");
  if (!step.has_value() || !env("SLURM_PROCID").has_value()) return std::nullopt;
  if (!ParseDecimal(*step, 0, std::numeric_limits<int>::max()).has_value()) return std::nullopt;
  return absl::StrFormat("Slurm job %s, step %s", Excerpt(env("SLURM_JOB_ID").value_or("?")),
                         *step);
}

absl::StatusOr<HostAndPort> SlurmMaster(const EnvironmentVariables& env) {
  for (const char* variable : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const std::optional<std::string> list = env(variable);
    if (!list.has_value()) continue;
    const absl::StatusOr<std::string> host = FirstSlurmHost(*list);
    if (!host.ok()) {
      return absl::InvalidArgumentError(absl::StrFormat("environment variable %s: %s", variable,
                                                        std::string(host.status().message())));
    }
    // One host: its name need not even resolve.
    if (*host == *list) return HostAndPort{.host = kThisHost};
    if (env("SLURM_DISTRIBUTION").value_or("").starts_with("arbitrary")) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "srun --distribution=arbitrary puts task 0 on any host of %s=%s, and does not say which; "
          "use another distribution, or list the nodes in the order of tasks (--nodes)",
          variable, Excerpt(*list)));
    }
    return HostAndPort{.host = *host};
  }
  return absl::InvalidArgumentError(
      "environment variable SLURM_STEP_NODELIST is not set; start the program with srun, or list "
      "the nodes (--nodes)");
}

absl::StatusOr<std::optional<Launcher>> FindSlurm(const EnvironmentVariables& env) {
  const std::optional<std::string> step = FindSlurmStep(env);
  if (!step.has_value()) return std::optional<Launcher>();
  Launcher launcher{.origin = *step, .size_variable = "SLURM_STEP_NUM_TASKS"};
  launcher.master = SlurmMaster(env);
  BRAID_ASSIGN_OR_RETURN(launcher.rank, ReadRank(env, "SLURM_PROCID"));
  BRAID_ASSIGN_OR_RETURN(launcher.size, ReadSize(env, launcher.size_variable));
  if (!launcher.size.has_value()) {
    BRAID_ASSIGN_OR_RETURN(launcher.size, ReadSize(env, "SLURM_NTASKS"));
  }
  BRAID_RETURN_IF_ERROR(
      CheckBoth(launcher.rank, launcher.size, "SLURM_PROCID", launcher.size_variable));
  return launcher;
}

struct MpiVariables {
  const char* origin;
  const char* rank;
  const char* size;
  const char* local_size;  // ranks on this host
  const char* remedy;
};

absl::StatusOr<std::optional<Launcher>> FindMpi(const EnvironmentVariables& env,
                                                const MpiVariables& variables) {
  Launcher launcher{.origin = variables.origin, .size_variable = variables.size};
  BRAID_ASSIGN_OR_RETURN(launcher.rank, ReadRank(env, variables.rank));
  BRAID_ASSIGN_OR_RETURN(launcher.size, ReadSize(env, variables.size));
  BRAID_RETURN_IF_ERROR(CheckBoth(launcher.rank, launcher.size, variables.rank, variables.size));
  if (!launcher.size.has_value()) return std::optional<Launcher>();
  BRAID_ASSIGN_OR_RETURN(launcher.default_port, MasterPort(env));
  BRAID_ASSIGN_OR_RETURN(const OptionalNumber local_size, ReadSize(env, variables.local_size));
  const int size = launcher.size->value;
  if (env("MASTER_ADDR").has_value()) {
    launcher.master = MasterOfVariables(env);
  } else if (size == 1 || (local_size.has_value() && local_size->value == size)) {
    launcher.master = HostAndPort{.host = kThisHost};
  } else {
    launcher.master = absl::InvalidArgumentError(absl::StrFormat(
        "%s started %d processes (%s) and does not say on which host node 0 is; set MASTER_ADDR to "
        "it: %s",
        variables.origin, size, launcher.size->ToString(), variables.remedy));
  }
  return launcher;
}

bool SaySameOf(const Launcher& a, const Launcher& b) {
  return a.rank->value == b.rank->value && a.size->value == b.size->value;
}

absl::StatusOr<std::optional<Launcher>> FindMpich(const EnvironmentVariables& env) {
  constexpr MpiVariables kMpich = {"mpiexec (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS",
                                   "mpiexec -genv MASTER_ADDR HOST ..."};
  absl::StatusOr<std::optional<Launcher>> mpich = FindMpi(env, kMpich);
  if (!mpich.ok() || !mpich->has_value()) return mpich;
  absl::StatusOr<std::optional<Launcher>> slurm = FindSlurm(env);
  const bool is_srun = slurm.ok() && slurm->has_value() && SaySameOf(**slurm, **mpich);
  return is_srun ? slurm : mpich;
}

absl::StatusOr<std::optional<Launcher>> FindOpenMpi(const EnvironmentVariables& env) {
  constexpr MpiVariables kOpenMpi = {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "mpirun -x MASTER_ADDR=HOST ..."};
  return FindMpi(env, kOpenMpi);
}

absl::StatusOr<std::optional<Launcher>> FindHandMade(const EnvironmentVariables& env) {
  Launcher launcher{.origin = "NODE_RANK/NNODES", .size_variable = "NNODES"};
  BRAID_ASSIGN_OR_RETURN(launcher.rank, ReadRank(env, "NODE_RANK"));
  BRAID_ASSIGN_OR_RETURN(launcher.size, ReadSize(env, launcher.size_variable));
  if (!launcher.rank.has_value() && !launcher.size.has_value()) return std::optional<Launcher>();
  BRAID_ASSIGN_OR_RETURN(launcher.default_port, MasterPort(env));
  if (env("MASTER_ADDR").has_value()) {
    launcher.master = MasterOfVariables(env);
  } else if (launcher.size.has_value() && launcher.size->value == 1) {
    launcher.master = HostAndPort{.host = kThisHost};
  } else {
    const EnvironmentNumber& known = launcher.size.has_value() ? *launcher.size : *launcher.rank;
    launcher.master = absl::InvalidArgumentError(
        absl::StrFormat("environment variable %s is set and MASTER_ADDR is not; set it to the host "
                        "of node 0",
                        known.ToString()));
  }
  return launcher;
}

// How many tasks of its step the `host`-th host has, of Slurm's list: 1 for host 2 of "2(x2),1".
std::optional<int> SlurmTasksOfHost(std::string_view list, int host) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const size_t open = item.find("(x");
    const std::optional<int> tasks = ParseDecimal(item.substr(0, open), 1, kMaxNodes);
    std::optional<int> hosts = 1;
    if (open != std::string_view::npos) {
      if (!item.ends_with(')')) return std::nullopt;
      hosts = ParseDecimal(item.substr(open + 2, item.size() - open - 3), 1, kMaxNodes);
    }
    if (!tasks.has_value() || !hosts.has_value()) return std::nullopt;
    if (host < *hosts) return tasks;
    host -= *hosts;
  }
  return std::nullopt;
}

absl::StatusOr<OptionalNumber> SlurmLocalSize(const EnvironmentVariables& env) {
  constexpr char kTasks[] = "SLURM_STEP_TASKS_PER_NODE";
  BRAID_ASSIGN_OR_RETURN(const OptionalNumber host, ReadRank(env, "SLURM_NODEID"));
  const std::optional<std::string> list = env(kTasks);
  if (!host.has_value() || !list.has_value()) return OptionalNumber();
  const std::optional<int> tasks = SlurmTasksOfHost(*list, host->value);
  if (tasks.has_value()) return OptionalNumber({kTasks, *tasks});
  return absl::InvalidArgumentError(absl::StrFormat(
      "environment variable %s='%s' does not say how many tasks host %d (SLURM_NODEID) has; "
      "numbers such as 2(x3),1 were expected, or set LOCAL_RANK and LOCAL_WORLD_SIZE",
      kTasks, Excerpt(*list), host->value));
}

}  // namespace

std::string EnvironmentNumber::ToString() const {
  return absl::StrFormat("%s=%d", variable, value);
}

absl::StatusOr<std::optional<Launcher>> FindLauncher(const EnvironmentVariables& env) {
  for (const auto find : {FindBraidLaunch, FindOpenMpi, FindMpich, FindSlurm, FindHandMade}) {
    BRAID_ASSIGN_OR_RETURN(std::optional<Launcher> launcher, find(env));
    if (launcher.has_value()) return launcher;
  }
  return std::optional<Launcher>();
}

absl::StatusOr<std::optional<EnvironmentNumber>> FindBraidNodeRank(
    const EnvironmentVariables& env) {
  return ReadRank(env, "BRAID_NODE_RANK");
}

absl::StatusOr<std::optional<int>> FindControlDescriptor(const EnvironmentVariables& env) {
  constexpr char kVariable[] = "BRAID_CTRL_DESCRIPTOR";
  const std::optional<std::string> text = env(kVariable);
  if (!text.has_value()) return std::optional<int>();
  const std::optional<int> number = ParseDecimal(*text, 0, std::numeric_limits<int>::max());
  if (number.has_value()) return number;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s=%s; a descriptor's number was expected", kVariable, Excerpt(*text)));
}

absl::StatusOr<LocalPlace> FindLocalPlace(const EnvironmentVariables& env) {
  constexpr char kRank[] = "LOCAL_RANK", kSize[] = "LOCAL_WORLD_SIZE";
  BRAID_ASSIGN_OR_RETURN(OptionalNumber rank, ReadRank(env, kRank));
  BRAID_ASSIGN_OR_RETURN(OptionalNumber size, ReadSize(env, kSize));
  if (rank.has_value() && !size.has_value()) return LocalPlace{.rank = rank->value, .size = 0};
  if (!rank.has_value() && env("BRAID_NUM_NODES").has_value()) return LocalPlace();
  for (const auto& [rank_variable, size_variable] :
       {std::pair("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        std::pair("MPI_LOCALRANKID", "MPI_LOCALNRANKS")}) {
    if (rank.has_value() && size.has_value()) break;
    BRAID_ASSIGN_OR_RETURN(rank, ReadRank(env, rank_variable));
    BRAID_ASSIGN_OR_RETURN(size, ReadSize(env, size_variable));
  }
  if ((!rank.has_value() || !size.has_value()) && FindSlurmStep(env).has_value()) {
    BRAID_ASSIGN_OR_RETURN(rank, ReadRank(env, "SLURM_LOCALID"));
    BRAID_ASSIGN_OR_RETURN(size, SlurmLocalSize(env));
  }
  if (!rank.has_value() || !size.has_value()) return LocalPlace();
  if (rank->value < size->value) return LocalPlace{rank->value, size->value};
  return absl::InvalidArgumentError(absl::StrFormat(
      "environment variable %s is out of range: %s, so this machine has the local ranks 0 to %d; "
      "give each process of a machine its own",
      rank->ToString(), size->ToString(), size->value - 1));
}

std::string DescribeMissingSrun(const EnvironmentVariables& env) {
  const std::optional<std::string> job = env("SLURM_JOB_ID");
  const std::optional<int> tasks =
      ParseDecimal(env("SLURM_NTASKS").value_or(env("SLURM_JOB_NUM_NODES").value_or("")), 2,
                   std::numeric_limits<int>::max());
  if (!job.has_value() || !tasks.has_value() || FindSlurmStep(env).has_value()) return "";
  return absl::StrFormat(
      "Slurm job %s has %d tasks, but srun did not start this process: it is one node alone; put "
      "srun before the program to use them all",
      Excerpt(*job), *tasks);
}

absl::StatusOr<std::string> FirstSlurmHost(std::string_view list) {
  const auto wrong = [&](std::string_view why) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' %s; a host list such as node[03-05,9],gpu1 was expected", Excerpt(list), why));
  };
  std::string host;
  std::string_view rest = list;
  while (!rest.empty() && rest[0] != ',') {
    if (rest[0] == ']') return wrong("has a bracket that none opened");
    if (rest[0] != '[') {
      host += rest[0];
      rest = rest.substr(1);
      continue;
    }
    const size_t close = rest.find(']');
    if (close == std::string_view::npos) return wrong("has no closing bracket");
    const std::string_view numbers = rest.substr(1, close - 1);
    const std::string_view first = numbers.substr(0, numbers.find_first_not_of(kDigits));
    const std::string_view after = numbers.substr(first.size());
    if (first.empty() || (!after.empty() && after[0] != '-' && after[0] != ',')) {
      return wrong("has no number in a bracket");
    }
    host += first;
    rest = rest.substr(close + 1);
  }
  if (!CheckHost(host).ok()) return wrong("does not begin with a host");
  return host;
}

std::optional<std::string> EnvironmentVariable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::map<std::string, std::string> VariablesOfRank(const LocalRanks& ranks, int local) {
  const auto number = [](int value) { return absl::StrFormat("%d", value); };
  std::map<std::string, std::string> variables = {
      {"RANK", number(ranks.first + local)}, {"WORLD_SIZE", number(ranks.world_size)},
      {"LOCAL_RANK", number(local)},         {"LOCAL_WORLD_SIZE", number(ranks.count)},
      {"MASTER_ADDR", ranks.master.host},    {"MASTER_PORT", number(ranks.master.port)}};
  if (!ranks.secret.empty()) variables["BRAID_AUTH_TOKEN"] = ranks.secret;
  return variables;
}

}  // namespace braid
