#include "api/job.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/place_on_server.h"
#include "api/reduce_gradients.h"
#include "graph/op_roles.h"
#include "runtime/reports/program_watch.h"

namespace braid {
namespace {

// Whether `value` may be used here; if not, the graph has an error.
bool IsOfThis(LogicalGraph& graph, const Tensor& value, std::string_view what,
              SourceLocation where) {
  if (value.valid() && value.graph() == &graph) return true;
  const bool is_other = !value.is_none() && value.graph() != &graph;
  // After an error this one is dropped.
  graph.Fail(absl::InvalidArgumentError(absl::StrFormat(
      "%s: it is given %s (%s)", what,
      is_other ? "a tensor of another job; a job has Tensors of its own, and variables by their "
                 "names"
               : "no tensor: nothing was assigned to it, or an operator before had none",
      where.ToString())));
  return false;
}

// FAILED_PRECONDITION if epochs do not end where batches do.
absl::StatusOr<int64_t> StepsOfEpoch(int64_t samples, const BatchOptions& options) {
  const int64_t whole = samples / options.batch, rest = samples % options.batch;
  if (rest == 0 || options.last == Last::kDrop) return whole;
  if (options.last == Last::kPad) return whole + 1;
  return absl::FailedPreconditionError(
      absl::StrFormat("the %d samples of read '%s' are no whole number of batches of %d; give it "
                      ".last = braid::Last::kDrop or kPad",
                      samples, options.name, options.batch));
}

}  // namespace

Job::Job(LogicalGraph* graph, const Placement& devices, DatasetCache* datasets)
    : graph_(graph), devices_(devices), datasets_(datasets) {}

std::shared_ptr<const Dataset> Job::Open(const DatasetSpec& dataset, const std::string& name,
                                         SourceLocation where) {
  if (watch_ != nullptr) {
    watch_->Begin(absl::StrFormat("opening the data of read '%s' (%s)", name, where.ToString()));
  }
  auto opened = datasets_->Open(dataset);
  if (watch_ != nullptr) watch_->End();
  if (opened.ok()) return *std::move(opened);
  graph_->Fail(
      absl::Status(opened.status().code(),
                   absl::StrFormat("read '%s': %s (%s)", name,
                                   std::string(opened.status().message()), where.ToString())));
  return nullptr;
}

int64_t Job::NumSamples(const DatasetSpec& dataset, SourceLocation where) {
  const std::shared_ptr<const Dataset> opened = Open(dataset, "NumSamples", where);
  return opened == nullptr ? 0 : opened->num_samples();
}

Tensor Job::SampleMask(const DatasetSpec& dataset, const BatchOptions& options,
                       SourceLocation where) {
  const std::shared_ptr<const Dataset> opened = Open(dataset, options.name, where);
  if (opened == nullptr) return Tensor(graph_, kNone);
  const std::optional<Mirroring> mirroring = graph_->current_mirroring();
  const int64_t parts = mirroring.has_value() ? mirroring->parts : 1;
  const int64_t batch = std::max<int64_t>(1, options.batch) * parts;
  const int64_t samples = opened->num_samples();
  const auto own = [&](const Tensor& mask) {
    return mirroring.has_value() ? MirrorParts(mask, where) : mask;
  };
  if (options.last != Last::kPad) {
    return own(Constant(*graph_, 1, {.dtype = DType::kF32, .shape = {batch}}, where));
  }
  const auto number = [&](int64_t value) {
    return Constant(*graph_, static_cast<double>(value), {.dtype = DType::kI64}, where);
  };
  const Tensor steps = number((samples + batch - 1) / batch);
  const Tensor first = Mul(Mod(Step(*graph_, where), steps, where), number(batch), where);
  const Tensor place = Add(Iota(*graph_, {DType::kI64, {batch}}, 0, where), first, where);
  return own(Cast(Less(place, number(samples), where), DType::kF32, where));
}

std::vector<Tensor> Job::ReadFields(const DatasetSpec& dataset, BatchOptions options,
                                    SourceLocation where) {
  const auto fail = [&](const std::string& problem) {
    return std::vector<Tensor>{graph_->Fail(absl::InvalidArgumentError(
        absl::StrFormat("read '%s': %s (%s)", options.name, problem, where.ToString())))};
  };
  const std::shared_ptr<const Dataset> opened = Open(dataset, options.name, where);
  if (opened == nullptr) return {Tensor(graph_, kNone)};
  if (options.batch < 1) {
    return fail(absl::StrFormat("batch is %d; at least 1 was expected", options.batch));
  }
  const std::optional<Mirroring> mirroring = graph_->current_mirroring();
  if (mirroring.has_value()) options.batch *= mirroring->parts;
  const int64_t samples = opened->num_samples();
  if (options.batch > samples && options.last != Last::kPad) {
    const std::string parts =
        mirroring.has_value()
            ? absl::StrFormat(" (that of each of %d devices, together)", mirroring->parts)
            : "";
    return fail(absl::StrFormat(
        "batch is %d%s, and the dataset has %d samples; a batch of at most these, or "
        ".last = braid::Last::kPad was expected",
        options.batch, parts, samples));
  }
  epochs_.push_back(StepsOfEpoch(samples, options));
  braid::ReadOptions read;
  read.dataset = dataset.Serialize();
  read.batch = options.batch;
  read.shuffle = options.shuffle;
  read.key = options.name;
  if (options.last != Last::kWrap) read.last = options.last == Last::kDrop ? "drop" : "pad";
  read.fingerprint = opened->fingerprint();
  const std::vector<DatasetField>& fields = opened->fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    read.fields.push_back(static_cast<int64_t>(i));
    std::vector<int64_t> dims = {options.batch};
    for (int64_t dim : fields[i].shape) dims.push_back(dim);
    const DType dtype = IsFloating(fields[i].dtype) ? options.dtype : fields[i].dtype;
    read.types.push_back({dtype, Shape(std::move(dims))});
  }
  std::vector<Tensor> batch = braid::Read(*graph_, std::move(read), where);
  if (mirroring.has_value()) {
    for (Tensor& field : batch) field = MirrorParts(field, where);
  }
  return batch;
}

std::array<Tensor, 2> Job::Read(const DatasetSpec& dataset, BatchOptions options,
                                SourceLocation where) {
  const std::string name = options.name;
  const std::vector<Tensor> fields = ReadFields(dataset, std::move(options), where);
  if (fields.size() == 2) return {fields[0], fields[1]};
  const Tensor failed = graph_->Fail(absl::InvalidArgumentError(
      absl::StrFormat("read '%s': the dataset has %d fields, Read takes two; use ReadFields (%s)",
                      name, fields.size(), where.ToString())));
  return {failed, failed};
}

Tensor Job::Input(std::string name, Shape shape, DType dtype, SourceLocation where) {
  TensorType type = {dtype, std::move(shape)};
  if (IsOfEachHost(graph_->current_mirroring(), absl::StrFormat("input '%s'", name), where)) {
    return MirroredInput(*graph_, std::move(name), std::move(type), where);
  }
  return braid::Input(*graph_, std::move(name), std::move(type), where);
}

bool Job::IsOfEachHost(const std::optional<Mirroring>& mirroring, const std::string& what,
                       SourceLocation where) {
  if (!has_host_each_ || !mirroring.has_value()) return false;
  if (mirroring->parts == devices_.size()) return true;
  graph_->Fail(absl::InvalidArgumentError(
      absl::StrFormat("%s: it is mirrored (%s), and each of %d ranks has one; mirror over all "
                      "dimensions of all devices, or make one value of it (%s)",
                      what, mirroring->ToString(), devices_.size(), where.ToString())));
  return false;
}

void Job::Fetch(std::string name, Tensor value, SourceLocation where) {
  if (!IsOfThis(*graph_, value, absl::StrFormat("fetch '%s'", name), where)) return;
  for (const Op& op : graph_->ops()) {
    if (HasRole(*graph_, op, OpRole::kFetch) && op.attrs.String("name") == name) {
      graph_->Fail(absl::AlreadyExistsError(
          absl::StrFormat("fetch '%s': it is fetched at %s already (%s)", name,
                          op.location.ToString(), where.ToString())));
      return;
    }
  }
  if (IsOfEachHost(value.mirroring(), absl::StrFormat("fetch '%s'", name), where)) {
    return FetchMirrored(value, std::move(name), where);
  }
  braid::Fetch(value, std::move(name), where);
}

void Job::Print(Tensor value, std::string name, int64_t every, SourceLocation where) {
  if (every < 1) {
    graph_->Fail(absl::InvalidArgumentError(absl::StrFormat(
        "print '%s': every is %d; at least 1 was expected (%s)", name, every, where.ToString())));
    return;
  }
  std::string fetch = absl::StrFormat("print %s", name);
  Fetch(fetch, value, where);
  prints_[std::move(fetch)] = {std::move(name), every};
}

void Job::Minimize(Tensor loss, const OptimizerSpec& optimizer, MinimizeOptions options,
                   SourceLocation where) {
  if (!IsOfThis(*graph_, loss, "Minimize", where)) return;
  if (options.micro_batches < 1) {
    graph_->Fail(absl::InvalidArgumentError(
        absl::StrFormat("Minimize: micro_batches is %d; at least 1 was expected (%s)",
                        options.micro_batches, where.ToString())));
    return;
  }
  MinimizeRequest request;
  request.loss = loss.id();
  request.optimizer = optimizer.update();
  request.attrs = optimizer.attrs();
  if (const double rate = optimizer.lr().value(); !(rate >= 0)) {
    graph_->Fail(absl::InvalidArgumentError(
        absl::StrFormat("Minimize: the learning rate is %g; at least 0 was expected (%s)", rate,
                        where.ToString())));
    return;
  }
  if (!optimizer.lr().tensor().is_none()) {
    if (!IsOfThis(*graph_, optimizer.lr().tensor(), "Minimize's learning rate", where)) return;
    request.learning_rate = optimizer.lr().tensor().id();
  } else {
    request.attrs.Set("learning_rate", optimizer.lr().value());
  }
  for (const Tensor& variable : options.variables) {
    if (!variable.valid() || variable.graph() != graph_ ||
        !IsVariable(*graph_, graph_->producer(variable.id()))) {
      graph_->Fail(absl::InvalidArgumentError(absl::StrFormat(
          "Minimize: .variables holds a tensor that is no variable of this job (%s)",
          where.ToString())));
      return;
    }
    request.variables.push_back(graph_->tensor(variable.id()).producer);
  }
  for (const VariableGroup& group : options.groups) {
    if (group.rate >= 0 && group.weight_decay.value_or(0) >= 0) continue;
    graph_->Fail(absl::InvalidArgumentError(absl::StrFormat(
        "Minimize: group '%s' has rate %g and weight decay %g; numbers of at least 0 were expected "
        "(%s)",
        group.names, group.rate, group.weight_decay.value_or(0), where.ToString())));
    return;
  }
  request.groups = std::move(options.groups);
  if (options.ema.has_value()) {
    if (const double decay = options.ema->decay; !(decay >= 0 && decay < 1)) {
      graph_->Fail(absl::InvalidArgumentError(
          absl::StrFormat("Minimize: the decay of .ema is %g; at least 0 and less than 1 was "
                          "expected, e.g. 0.999 (%s)",
                          decay, where.ToString())));
      return;
    }
    request.attrs.Set("ema", options.ema->decay);
  }
  if (!options.norms.empty()) request.attrs.Set("norms", options.norms);
  request.clip_global_norm = options.clip_global_norm;
  request.micro_batches = options.micro_batches;
  request.location = where;
  if (options.server.has_value() && options.ddp.has_value()) {
    graph_->Fail(absl::InvalidArgumentError(absl::StrFormat(
        "Minimize: .server and .ddp are two ways for gradients to come together; leave one out "
        "(%s)",
        where.ToString())));
    return;
  }
  if (options.server.has_value()) {
    PlaceOnServer(*graph_, request, *options.server, devices_, where);
  }
  const bool has_no_sync = options.ddp.has_value() && options.ddp->no_sync;
  // What is not added up has no part in steps without sync.
  if (options.ddp.has_value() && (has_no_sync || !is_without_sync_)) {
    ReduceGradients(*graph_, request, *options.ddp, is_without_sync_, where);
  }
  has_no_sync_ = has_no_sync_ || has_no_sync;
  if (is_without_sync_) {
    request.optimizer.clear();
    request.clip_global_norm = 0;
    request.attrs = {};
  }
  graph_->minimize().push_back(std::move(request));
}

Tensor Job::GradientOf(Tensor x, SourceLocation where) { return braid::GradientOf(x, where); }

void Job::EnterMirrored(const std::vector<int>& dims, SourceLocation where) {
  const auto fail = [&](const std::string& problem) {
    graph_->Fail(absl::InvalidArgumentError(
        absl::StrFormat("Mirrored: %s (%s)", problem, where.ToString())));
  };
  const Placement placement = graph_->current_placement().value_or(devices_);
  const std::vector<int64_t>& hierarchy = placement.hierarchy();
  Mirroring mirroring;
  const std::set<int> named(dims.begin(), dims.end());
  if (!dims.empty() && named.size() < hierarchy.size()) mirroring.dims = 0;
  for (const int dim : dims) {
    if (dim >= 0 && dim < static_cast<int>(hierarchy.size())) {
      mirroring.dims |= uint64_t{1} << dim;
    } else {
      fail(absl::StrFormat("there is no dimension %d; the placement %s has %d, which count from 0",
                           dim, placement.ToString(), hierarchy.size()));
    }
  }
  for (int dim = 0; dim < static_cast<int>(hierarchy.size()); ++dim) {
    if (mirroring.IsOver(dim)) mirroring.parts *= hierarchy[dim];
  }
  if (graph_->current_mirroring().has_value()) {
    fail("it is called inside another Mirrored; name all dimensions in one");
  }
  graph_->PushPlacement(placement);
  graph_->PushMirroring(mirroring);
}

void Job::EnterPlacement(const absl::StatusOr<Placement>& placement, SourceLocation where) {
  absl::Status problem = placement.status();
  if (problem.ok()) problem = placement->CheckIsIn(devices_);
  if (problem.ok()) return graph_->PushPlacement(*placement);
  graph_->PushPlacement(std::nullopt);
  graph_->Fail(absl::Status(
      problem.code(),
      absl::StrFormat("On: the placement cannot be used: %s; the cluster has %s (%s)",
                      std::string(problem.message()), devices_.ToString(), where.ToString())));
}

void Job::UseAverages(SourceLocation where) { averages_ = where; }

void Job::SetTraining(bool is_training) { training_ = is_training; }

}  // namespace braid
