// Whether what several devices hold of a variable is still the same: a job of its own brings the
// master a checksum of each variable from each device.
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/run_receiver.h"
#include "api/session_impl.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// At the ends of Runs, if the program does not say.
constexpr int64_t kStepsBetweenChecks = 1000;

// Which part of what is laid out so a device holds: its coordinates where the tensor is split.
std::vector<int64_t> PartOf(const compiler::VariableLayout& layout, int rank) {
  std::vector<int64_t> part = layout.placement.CoordinateOf(rank);
  for (size_t dim = 0; dim < part.size(); ++dim) {
    if (!layout.sbp[static_cast<int>(dim)].is_split()) part[dim] = 0;
  }
  return part;
}

bool HasReplicas(const compiler::VariableLayout& layout) {
  std::set<std::vector<int64_t>> parts;
  for (int rank = 0; rank < layout.placement.size(); ++rank) parts.insert(PartOf(layout, rank));
  return parts.size() < static_cast<size_t>(layout.placement.size());
}

}  // namespace

bool Session::Impl::ChangesReplicas(const LoadedJob& job) const {
  return devices_.size() > 1 && job.change != LoadedJob::Change::kNothing;
}

int64_t Session::Impl::StepsUntilCheck(const LoadedJob& job) const {
  const int64_t every = options_.check_replicas.value_or(0);
  if (every == 0 || !ChangesReplicas(job)) return std::numeric_limits<int64_t>::max();
  return job.has_run ? every - job.step % every : 1;
}

bool Session::Impl::IsCheckDueAfterRun(const LoadedJob& job) const {
  if (options_.check_replicas.has_value() || !ChangesReplicas(job)) return false;
  // Others would copy all that they hold to the host.
  for (const std::string& kind : options_.node_kinds) {
    if (!(*options_.device_kinds.Find(kind))->is_host) return false;
  }
  return job.checked_at < 0 || std::abs(job.step - job.checked_at) >= kStepsBetweenChecks;
}

absl::Status Session::Impl::CompileReplicaCheck() {
  UnloadReplicaCheck();
  ReplicaCheck& check = replica_check_;
  check.num_variables = variables_.size();
  // Those that are laid out alike are one fetch.
  std::map<std::string, ReplicaCheck::Group> groups;
  for (const auto& [name, info] : variables_) {
    if (!HasReplicas(info.layout)) continue;
    ReplicaCheck::Group& group =
        groups[info.layout.placement.ToString() + " " + info.layout.sbp.ToString()];
    group.layout = info.layout;
    group.variables.push_back(name);
  }
  for (auto& [name, group] : groups) check.groups.push_back(std::move(group));
  if (check.groups.empty()) return absl::OkStatus();
  const auto record = [&](Job& job) {
    for (const ReplicaCheck::Group& group : check.groups) {
      std::vector<Tensor> values;
      for (const std::string& name : group.variables) {
        values.push_back(Refer(job, name, variables_.at(name)));
      }
      const Tensor sums =
          job.graph()
              .Append("replica_checksums", values,
                      {.name = group.variables[0] + ".checksums",
                       .attrs = {{"devices", int64_t{group.layout.placement.size()}}},
                       .placement = group.layout.placement})
              .at(0);
      job.Fetch(group.variables[0], sums);
    }
  };
  BRAID_ASSIGN_OR_RETURN(LoadedJob * loaded, Compile("check of replicas", record, {}));
  check.job = std::move(jobs_.extract(loaded->id).mapped());
  return absl::OkStatus();
}

void Session::Impl::UnloadReplicaCheck() {
  if (const LoadedJob* job = replica_check_.job.get(); job != nullptr) {
    UnloadEverywhere(job->id, job->name);
  }
  replica_check_ = {};
}

absl::Status Session::Impl::CheckReplicas(LoadedJob& job) {
  job.checked_at = job.step;
  ReplicaCheck& check = replica_check_;
  if (check.num_variables != variables_.size()) BRAID_RETURN_IF_ERROR(CompileReplicaCheck());
  if (check.job == nullptr) return absl::OkStatus();
  RunResult result(mistakes_);
  RunReceiver receiver(result.values_, RunOptions(), mistakes_, check.job->step,
                       [](std::string_view, int64_t, double) { return absl::OkStatus(); });
  for (const auto& [name, type] : check.job->fetches) receiver.Expect(name, type, 1);
  BRAID_RETURN_IF_ERROR(RunSteps(*check.job, 1, receiver));
  for (const ReplicaCheck::Group& group : check.groups) {
    const Array& sums = result.Last(group.variables[0]);
    const std::span<const int64_t> values = sums.data<int64_t>();
    const size_t columns = group.variables.size();
    std::map<std::vector<int64_t>, int> first_of;  // rank, by the part that it holds
    for (int rank = 0; rank < group.layout.placement.size(); ++rank) {
      const int first = first_of.try_emplace(PartOf(group.layout, rank), rank).first->second;
      for (size_t i = 0; i < columns; ++i) {
        const int64_t one = values[first * columns + i], other = values[rank * columns + i];
        if (one == other) continue;
        const auto device = [&](int of) {
          const DeviceId id = group.layout.placement.device(of);
          return absl::StrFormat("node %d %s:%d", id.node, options_.node_kinds[id.node], id.device);
        };
        const VariableInfo& info = variables_.at(group.variables[i]);
        return absl::DataLossError(absl::StrFormat(
            "variable '%s' %s %s is no longer the same on all devices after step %d of job '%s': "
            "its checksum is %08x on %s and %08x on %s%s. An operator whose results depend on the "
            "device does that, or a faulty machine; --check_replicas=1 finds the step",
            group.variables[i], info.type.ToString(), info.layout.sbp.ToString(), job.step,
            job.name, one, device(first), other, device(rank),
            check.alike_at < 0
                ? ""
                : absl::StrFormat("; after step %d all were alike", check.alike_at)));
      }
    }
  }
  check.alike_at = job.step;
  return absl::OkStatus();
}

}  // namespace braid
