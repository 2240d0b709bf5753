// Session's variables by name, and checkpoints: jobs of one step that read or write variables.

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/session_impl.h"
#include "runtime/base/status.h"
#include "runtime/files/checkpoint.h"

namespace braid {
namespace {

// What a save gathers on the master at a time, and what is fed to set variables.
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
  for (const auto& [name, value] : values) {
    ASSIGN_OR_RETURN(const Impl::VariableInfo* info, impl_->FindVariable(name));
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
        Assign(impl_->Refer(job, name, impl_->variables().at(name)),
               job.Input(name + ".value", value->shape(), value->dtype()));
      }
    };
    RETURN_IF_ERROR(impl_->RunOnce("set " + first->first, record, options).status());
  }
  return absl::OkStatus();
}

absl::Status Session::Save(const std::string& directory) {
  if (impl_->options().dry_run) return absl::CancelledError("--dry_run: nothing is saved");
  const Impl::Activity activity(impl_.get(), absl::StrFormat("saving to '%s'", directory));
  CheckpointOptions options;
  options.directory = directory;
  for (const auto& [id, job] : impl_->jobs()) {
    options.state.step = std::max(options.state.step, job->step);
    options.state.values[StepKey(job->name)] = job->step;
  }
  for (const auto& [name, info] : impl_->variables()) {
    options.tensors.push_back({name, info.type.dtype, info.type.shape});
  }
  const auto local_error = [&](const absl::Status& status) {
    return impl_->LocalError(absl::Status(
        status.code(),
        absl::StrFormat("saving to '%s': %s", directory, std::string(status.message()))));
  };
  absl::StatusOr<std::unique_ptr<CheckpointWriter>> begun =
      CheckpointWriter::Begin(std::move(options));
  if (!begun.ok()) return local_error(begun.status());
  const std::unique_ptr<CheckpointWriter> writer = *std::move(begun);
  auto next = impl_->variables().begin();
  const auto end = impl_->variables().end();
  while (next != end) {
    std::vector<std::pair<std::string, const Impl::VariableInfo*>> batch;
    int64_t bytes = 0;
    while (next != end && (batch.empty() || bytes + BytesOf(next->second.type) <= kGatherBytes)) {
      bytes += BytesOf(next->second.type);
      batch.emplace_back(next->first, &next->second);
      ++next;
    }
    ASSIGN_OR_RETURN(const RunResult result,
                     impl_->RunOnce("save",
                                    [&](Job& job) {
                                      for (const auto& [name, info] : batch) {
                                        job.Fetch(name, impl_->Refer(job, name, *info));
                                      }
                                    },
                                    {}));
    for (const auto& [name, info] : batch) {
      const Array& value = result.Last(name);
      const absl::Status written = writer->Write(name, 0, value.bytes(), value.num_bytes());
      if (!written.ok()) return local_error(written);
    }
  }
  const absl::Status committed = writer->Commit().status();
  return committed.ok() ? committed : local_error(committed);
}

absl::Status Session::Load(const std::string& directory) {
  const Impl::Activity activity(impl_.get(), absl::StrFormat("loading '%s'", directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                   CheckpointReader::Open(directory));
  for (const auto& [name, info] : impl_->variables()) {
    ASSIGN_OR_RETURN(const StoredTensor stored, reader->Info(name));
    const TensorType type{stored.dtype, stored.shape};
    if (type != info.type) {
      return absl::InvalidArgumentError(absl::StrFormat("variable '%s' is %s; in %s it is %s", name,
                                                        info.type.ToString(), reader->path(),
                                                        type.ToString()));
    }
  }
  if (impl_->variables().empty()) {
    return absl::FailedPreconditionError("Load: no compiled job has variables; compile first");
  }
  // Every node reads the boxes that its devices hold.
  RETURN_IF_ERROR(impl_
                      ->RunOnce("load",
                                [&](Job& job) {
                                  for (const auto& [name, info] : impl_->variables()) {
                                    const Tensor to = impl_->Refer(job, name, info);
                                    const Tensor from = job.graph().Append1(
                                        "read_checkpoint", {},
                                        {.name = name + ".read",
                                         .attrs = {{"directory", reader->path()},
                                                   {"tensor", name},
                                                   {"dtype", info.type.dtype},
                                                   {"shape", info.type.shape.dims()}},
                                         .hints = {info.layout.sbp},
                                         .placement = info.layout.placement});
                                    Assign(to, from);
                                  }
                                },
                                {})
                      .status());
  for (const auto& [id, job] : impl_->jobs()) {
    const auto found = reader->state().values.find(StepKey(job->name));
    if (found != reader->state().values.end()) job->step = found->second;
  }
  return absl::OkStatus();
}

}  // namespace braid
