// Session's variables by name, and checkpoints: jobs of one step that read or write variables.

#include <glog/logging.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/session_impl.h"
#include "runtime/base/status.h"
#include "runtime/files/checkpoint.h"
#include "runtime/files/checkpoint_part.h"

namespace braid {
namespace {

// What one job saves, and what is fed to set variables.
constexpr int64_t kGatherBytes = 256 << 20;

int64_t BytesOf(const TensorType& type) {
  return type.shape.num_elements() * static_cast<int64_t>(SizeOf(type.dtype));
}

std::string StepKey(const std::string& job) { return "step." + job; }

}  // namespace

absl::StatusOr<const Session::Impl::VariableInfo*> Session::Impl::FindVariable(
    const std::string& name) const {
  const auto found = variables_.find(name);
  if (found != variables_.end()) return &found->second;
  std::vector<std::string> names;
  for (const auto& [other, info] : variables_) {
    if (other.find(name) != std::string::npos || name.find(other) != std::string::npos) {
      names.push_back(other);
    }
  }
  if (names.empty()) {
    for (const auto& [other, info] : variables_) names.push_back(other);
  }
  if (names.size() > 10) names.resize(10);
  return absl::NotFoundError(absl::StrFormat("no compiled job has a variable '%s'; there are: %s",
                                             name,
                                             names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

Tensor Session::Impl::Refer(Job& job, const std::string& name, const VariableInfo& info) const {
  return job.graph().Append1("variable", {},
                             {.name = name,
                              .attrs = info.attrs,
                              .hints = {info.layout.sbp},
                              .placement = info.layout.placement});
}

absl::StatusOr<Array> Session::Get(const std::string& variable) {
  ASSIGN_OR_RETURN(const Impl::VariableInfo* info, impl_->FindVariable(variable));
  ASSIGN_OR_RETURN(
      RunResult result,
      impl_->RunOnce("get " + variable,
                     [&](Job& job) { job.Fetch(variable, impl_->Refer(job, variable, *info)); },
                     {}));
  return result.Last(variable);
}

absl::Status Session::Set(const std::string& variable, const Array& value) {
  return Set({{variable, &value}});
}

absl::Status Session::Set(const std::map<std::string, const Array*>& values) {
  return impl_->Set(values);
}

absl::Status Session::Impl::Set(const std::map<std::string, const Array*>& values) {
  for (const auto& [name, value] : values) {
    ASSIGN_OR_RETURN(const VariableInfo* info, FindVariable(name));
    const TensorType given{value->dtype(), value->shape()};
    if (given != info->type) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "variable '%s' is %s and was set to %s", name, info->type.ToString(), given.ToString()));
    }
  }
  auto next = values.begin();
  while (next != values.end()) {
    const auto first = next;
    RunOptions options;
    int64_t bytes = 0;
    while (
        next != values.end() &&
        (bytes == 0 || bytes + static_cast<int64_t>(next->second->num_bytes()) <= kGatherBytes)) {
      bytes += static_cast<int64_t>(next->second->num_bytes()) + 1;
      options.feeds.emplace_back(next->first + ".value", *next->second);
      ++next;
    }
    const auto record = [&](Job& job) {
      for (auto each = first; each != next; ++each) {
        const auto& [name, value] = *each;
        Assign(Refer(job, name, variables_.at(name)),
               job.Input(name + ".value", value->shape(), value->dtype()));
      }
    };
    RETURN_IF_ERROR(RunOnce("set " + first->first, record, options).status());
  }
  return absl::OkStatus();
}

absl::Status Session::Save(const std::string& directory, const SaveOptions& options) {
  return impl_->Save(directory, options);
}

absl::Status Session::Load(const std::string& directory) { return impl_->Load(directory); }

CheckpointState Session::Impl::State() const {
  CheckpointState state;
  state.step = loaded_step_;
  auto most = LoadedJob::Change::kNothing;
  for (const auto& [id, job] : jobs_) {
    most = std::max(most, job->change);
    // Of one that was unloaded and its successor, the successor's.
    state.values[StepKey(job->name)] = job->step;
  }
  if (most == LoadedJob::Change::kNothing) return state;
  state.step = 0;
  for (const auto& [id, job] : jobs_) {
    if (job->change == most) state.step = std::max(state.step, job->step);
  }
  return state;
}

absl::Status Session::Impl::Save(const std::string& directory, const SaveOptions& save) {
  if (options_.dry_run) return absl::CancelledError("--dry_run: nothing is saved");
  const Activity activity(this, absl::StrFormat("saving to '%s'", directory));
  CheckpointOptions options;
  options.directory = directory;
  options.name = save.name;
  options.keep = save.keep;
  options.state = State();
  for (const auto& [name, info] : variables_) {
    options.tensors.push_back({name, info.type.dtype, info.type.shape});
  }
  const auto local_error = [&](const absl::Status& status) {
    return LocalError(absl::Status(status.code(), absl::StrFormat("saving to '%s': %s", directory,
                                                                  std::string(status.message()))));
  };
  std::error_code ignored;
  const std::string real_path = std::filesystem::weakly_canonical(directory, ignored).string();
  if (!saved_.contains(real_path)) {
    absl::StatusOr<FolderLock> lock = FolderLock::Take(directory);
    if (!lock.ok()) return local_error(lock.status());
    saved_.emplace(real_path, *std::move(lock));
  }
  absl::StatusOr<std::unique_ptr<CheckpointWriter>> begun =
      CheckpointWriter::Begin(std::move(options));
  if (!begun.ok()) return local_error(begun.status());
  const std::unique_ptr<CheckpointWriter> writer = *std::move(begun);
  const absl::StatusOr<int64_t> shared = writer->Share();
  if (!shared.ok()) return local_error(shared.status());
  auto next = variables_.begin();
  const auto end = variables_.end();
  bool by_master = false;
  for (int64_t number = 0; next != end; ++number) {
    VariableBatch batch;
    int64_t bytes = 0;
    while (next != end && (batch.empty() || bytes + BytesOf(next->second.type) <= kGatherBytes)) {
      bytes += BytesOf(next->second.type);
      batch.emplace_back(next->first, &next->second);
      ++next;
    }
    if (!by_master) {
      const absl::Status saved = SaveByNodes(batch, *shared, number, *writer);
      by_master = absl::IsNotFound(saved) && options_.network.has_value();
      if (!by_master) RETURN_IF_ERROR(saved);
      LOG_IF(WARNING, by_master) << "the master gathers all variables and writes them, since not "
                                 << "all nodes can: " << saved.message();
    }
    if (by_master) {
      const absl::Status saved = SaveByMaster(batch, *writer);
      if (!saved.ok()) return local_error(saved);
    }
  }
  const absl::Status committed = writer->Commit().status();
  return committed.ok() ? committed : local_error(committed);
}

absl::Status Session::Impl::SaveByNodes(const VariableBatch& batch, int64_t save, int64_t number,
                                        CheckpointWriter& writer) {
  std::set<int> nodes;
  const auto record = [&](Job& job) {
    for (const auto& [name, info] : batch) {
      for (const DeviceId& device : info->layout.placement.devices()) nodes.insert(device.node);
      const CheckpointWriter::Position position = writer.PositionOf(name);
      const Tensor value = Refer(job, name, *info);
      job.graph().Append("write_checkpoint", {&value, 1},
                         {.name = name + ".write",
                          .attrs = {{"directory", writer.temporary()},
                                    {"save", save},
                                    {"part", number},
                                    {"file", position.file},
                                    {"position", position.offset}},
                          .placement = info->layout.placement});
    }
  };
  RETURN_IF_ERROR(RunOnce("save", record, {}).status());
  for (const int node : nodes) RETURN_IF_ERROR(writer.AddPart(PartName(node, number)));
  return absl::OkStatus();
}

absl::Status Session::Impl::SaveByMaster(const VariableBatch& batch, CheckpointWriter& writer) {
  const auto record = [&](Job& job) {
    for (const auto& [name, info] : batch) job.Fetch(name, Refer(job, name, *info));
  };
  ASSIGN_OR_RETURN(const RunResult result, RunOnce("save", record, {}));
  for (const auto& [name, info] : batch) {
    const Array& value = result.Last(name);
    RETURN_IF_ERROR(writer.Write(name, 0, value.bytes(), value.num_bytes()));
  }
  return absl::OkStatus();
}

absl::Status Session::Impl::Load(const std::string& directory) {
  const Activity activity(this, absl::StrFormat("loading '%s'", directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                   CheckpointReader::Open(directory));
  for (const auto& [name, info] : variables_) {
    ASSIGN_OR_RETURN(const StoredTensor stored, reader->Info(name));
    const TensorType type{stored.dtype, stored.shape};
    if (type != info.type) {
      return absl::InvalidArgumentError(absl::StrFormat("variable '%s' is %s; in %s it is %s", name,
                                                        info.type.ToString(), reader->path(),
                                                        type.ToString()));
    }
  }
  if (variables_.empty()) {
    return absl::FailedPreconditionError("Load: no compiled job has variables; compile first");
  }
  absl::Status loaded = LoadByNodes(*reader);
  if (absl::IsNotFound(loaded) && options_.network.has_value()) {
    LOG(WARNING) << "the master reads '" << reader->path() << "' and sends it, since not all nodes "
                 << "have it: " << loaded.message();
    loaded = LoadByMaster(*reader);
  }
  RETURN_IF_ERROR(loaded);
  loaded_step_ = reader->state().step;
  for (const auto& [id, job] : jobs_) {
    const auto found = reader->state().values.find(StepKey(job->name));
    if (found != reader->state().values.end()) job->step = found->second;
  }
  return absl::OkStatus();
}

absl::Status Session::Impl::LoadByNodes(const CheckpointReader& reader) {
  const auto record = [&](Job& job) {
    for (const auto& [name, info] : variables_) {
      const Tensor from = job.graph().Append1("read_checkpoint", {},
                                              {.name = name + ".read",
                                               .attrs = {{"directory", reader.path()},
                                                         {"tensor", name},
                                                         {"identity", int64_t{reader.identity()}},
                                                         {"dtype", info.type.dtype},
                                                         {"shape", info.type.shape.dims()}},
                                               .hints = {info.layout.sbp},
                                               .placement = info.layout.placement});
      Assign(Refer(job, name, info), from);
    }
  };
  return RunOnce("load", record, {}).status();
}

absl::Status Session::Impl::LoadByMaster(const CheckpointReader& reader) {
  for (const auto& [name, info] : variables_) {
    const std::vector<int64_t>& sizes = info.type.shape.dims();
    RETURN_IF_ERROR(reader.Verify(name, {std::vector<int64_t>(sizes.size(), 0), sizes}));
  }
  auto next = variables_.begin();
  while (next != variables_.end()) {
    std::map<std::string, Array> arrays;
    std::map<std::string, const Array*> values;
    int64_t bytes = 0;
    for (; next != variables_.end(); ++next) {
      const auto& [name, info] = *next;
      bytes += BytesOf(info.type);
      if (!arrays.empty() && bytes > kGatherBytes) break;
      Array& array = arrays.try_emplace(name, info.type.dtype, info.type.shape).first->second;
      RETURN_IF_ERROR(reader.ReadBytes(name, 0, array.mutable_bytes(), array.num_bytes()));
      values[name] = &array;
    }
    RETURN_IF_ERROR(Set(values));
  }
  return absl::OkStatus();
}

}  // namespace braid
