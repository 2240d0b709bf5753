// Session's variables by name: jobs of one step that read or write them.

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/session_impl.h"
#include "graph/op_roles.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/files/file.h"

namespace braid {

void Session::Impl::Remember(const LogicalGraph& graph) {
  for (const Op& op : graph.ops()) {
    for (const int input : DefOf(graph, op).mutates()) {
      touched_.insert(graph.producer(op.inputs[input]).name);
    }
    if (!IsVariable(graph, op) || variables_.contains(op.name)) continue;
    variables_[op.name] = {graph.type(op.outputs[0]), {*op.placement, op.output_sbp[0]}, op.attrs};
  }
}

absl::Status Session::Impl::ReadAverages(const std::string& job, const SourceLocation& where,
                                         LogicalGraph& graph) const {
  const auto fail = [&](std::string_view problem) {
    return absl::FailedPreconditionError(absl::StrFormat("UseAverages of job '%s': %s (%s)", job,
                                                         std::string(problem), where.ToString()));
  };
  if (!graph.minimize().empty()) {
    return fail(
        "the job calls Minimize, which trains the variables themselves; use averages in "
        "another job");
  }
  bool has_averages = false;
  for (Op& op : graph.mutable_ops()) {
    const bool is_trained =
        IsVariable(graph, op) && op.attrs.Has("trainable") && op.attrs.Bool("trainable");
    const auto average = is_trained ? variables_.find(op.name + ".ema") : variables_.end();
    if (average == variables_.end()) continue;
    const TensorType& type = graph.type(op.outputs[0]);
    if (average->second.type != type) {
      return fail(absl::StrFormat("variable '%s' is %s here and its average %s", op.name,
                                  type.ToString(), average->second.type.ToString()));
    }
    op.name = average->first;
    op.attrs = average->second.attrs;
    has_averages = true;
  }
  if (has_averages) return absl::OkStatus();
  return fail(
      "no job that was compiled before keeps an average of a variable that this one has; "
      "give Minimize .ema = braid::Ema{}, and compile that job first");
}

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

bool Session::HasVariable(const std::string& variable) const {
  return impl_->HasVariable(variable);
}

absl::StatusOr<Array> Session::Get(const std::string& variable) { return impl_->Get(variable); }

absl::StatusOr<Array> Session::Impl::Get(const std::string& variable) {
  BRAID_ASSIGN_OR_RETURN(const VariableInfo* info, FindVariable(variable));
  BRAID_ASSIGN_OR_RETURN(
      RunResult result,
      RunOnce("get " + variable,
              [&](Job& job) { job.Fetch(variable, Refer(job, variable, *info)); }, {}));
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
    BRAID_ASSIGN_OR_RETURN(const VariableInfo* info, FindVariable(name));
    if (const absl::Status mistake = value->mistake(); !mistake.ok()) {
      return Prefixed(absl::StrFormat("variable '%s' was set", name), mistake);
    }
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
    BRAID_RETURN_IF_ERROR(RunOnce("set " + first->first, record, options).status());
  }
  return absl::OkStatus();
}

absl::Status Session::SetFromFiles(const std::map<std::string, FilePart>& parts) {
  return impl_->SetFromFiles(parts);
}

absl::Status Session::Impl::SetFromFiles(const std::map<std::string, FilePart>& parts) {
  std::vector<std::string> names;
  for (const auto& [name, part] : parts) {
    BRAID_RETURN_IF_ERROR(FindVariable(name).status());
    names.push_back(name);
  }
  if (HasOtherProcesses()) {
    constexpr int64_t kBatchBytes = 32 << 20;
    return SetByMaster(names, kBatchBytes, [&](const std::string& name, Array& into) {
      const FilePart& part = parts.at(name);
      const absl::StatusOr<InputFile> file = InputFile::Open(part.path);
      if (!file.ok()) return file.status();
      return file->ReadAt(part.offset, into.mutable_bytes(), into.num_bytes());
    });
  }
  const auto record = [&](Job& job) {
    for (const auto& [name, part] : parts) {
      const VariableInfo& info = variables_.at(name);
      const Tensor from = job.graph().Append1("read_file", {},
                                              {.name = name + ".read",
                                               .attrs = {{"path", part.path},
                                                         {"offset", part.offset},
                                                         {"dtype", info.type.dtype},
                                                         {"shape", info.type.shape.dims()}},
                                               .hints = {info.layout.sbp},
                                               .placement = info.layout.placement});
      Assign(Refer(job, name, info), from);
    }
  };
  return parts.empty() ? absl::OkStatus() : RunOnce("set from files", record, {}).status();
}

absl::Status Session::Impl::SetByMaster(const std::vector<std::string>& names, int64_t batch_bytes,
                                        const ReadVariable& read) {
  auto next = names.begin();
  while (next != names.end()) {
    std::map<std::string, Array> held;
    std::map<std::string, const Array*> values;
    int64_t bytes = 0;
    for (; next != names.end(); ++next) {
      const TensorType& type = variables_.at(*next).type;
      bytes += type.shape.num_elements() * static_cast<int64_t>(SizeOf(type.dtype));
      if (!held.empty() && bytes > batch_bytes) break;
      Array& array = held.try_emplace(*next, type.dtype, type.shape).first->second;
      BRAID_RETURN_IF_ERROR(read(*next, array));
      values[*next] = &array;
    }
    BRAID_RETURN_IF_ERROR(Set(values));
  }
  return absl::OkStatus();
}

}  // namespace braid
