// Runs of compiled jobs: what they are fed, fetch and report.

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/record_job.h"
#include "api/run_receiver.h"
#include "api/session_impl.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/nearest_names.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr Nanoseconds kDumpLimit = kSecond;

}  // namespace

std::unique_ptr<Session::Impl::LoadedJob> Session::Impl::Recorded(const Job& job,
                                                                  const LogicalGraph& graph) {
  auto loaded = std::make_unique<LoadedJob>();
  loaded->losses = FetchedLosses(graph);
  loaded->samples_per_step = SamplesPerStep(graph);
  loaded->epochs = job.epochs_;
  loaded->has_no_sync = job.has_no_sync_;
  loaded->prints = job.prints_;
  return loaded;
}

absl::Status Session::Impl::CheckFeeds(const LoadedJob& job, const RunOptions& options) const {
  for (const auto& [name, array] : options.feeds) {
    const auto found = std::find_if(job.inputs.begin(), job.inputs.end(),
                                    [&name = name](const Fed& fed) { return fed.name == name; });
    if (found == job.inputs.end()) {
      std::vector<std::string> names;
      for (const Fed& fed : job.inputs) names.push_back(fed.name);
      return absl::InvalidArgumentError(
          absl::StrFormat("job '%s' has no input '%s'; its inputs are: %s", job.name, name,
                          names.empty() ? "none" : absl::StrJoin(names, ", ")));
    }
    if (const absl::Status mistake = array.mistake(); !mistake.ok()) {
      return Prefixed(absl::StrFormat("input '%s' of job '%s'", name, job.name), mistake);
    }
    const TensorType given{array.dtype(), array.shape()};
    if (given != found->type) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "input '%s' of job '%s' is %s (%s) and was fed %s; feed that shape or compile another "
          "job",
          name, job.name, found->type.ToString(), found->location, given.ToString()));
    }
  }
  for (const Fed& fed : job.inputs) {
    const bool is_given = std::any_of(options.feeds.begin(), options.feeds.end(),
                                      [&](const auto& feed) { return feed.first == fed.name; });
    if (!fed.is_fed && !is_given) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "input '%s' of job '%s', %s, was not fed; give it in Run({.feeds = {{\"%s\", array}}}) "
          "(%s)",
          fed.name, job.name, fed.type.ToString(), fed.name, fed.location));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Session::Impl::StepsOf(const LoadedJob& job,
                                               const RunOptions& options) const {
  if (options.steps < 1 || options.epochs < 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "Run of job '%s': steps is %d and epochs %d; at least 1 step or 1 epoch was "
        "expected",
        job.name, options.steps, options.epochs));
  }
  if (options.epochs == 0) return options.steps;
  int64_t steps = 0;
  for (const absl::StatusOr<int64_t>& epoch : job.epochs) {
    if (!epoch.ok()) return epoch.status();
    if (steps != 0 && *epoch != steps) {
      return absl::FailedPreconditionError(
          absl::StrFormat("Run of job '%s': an epoch of one of its readers is %d steps, of another "
                          "%d; count .steps",
                          job.name, steps, *epoch));
    }
    steps = *epoch;
  }
  int64_t all = 0;
  if (__builtin_mul_overflow(options.epochs, steps, &all)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("Run of job '%s': %d epochs of %d steps are more steps than can be counted",
                        job.name, options.epochs, steps));
  }
  if (steps > 0) return all;
  return absl::FailedPreconditionError(
      absl::StrFormat("Run of job '%s': epochs is %d, and the job reads nothing; count .steps",
                      job.name, options.epochs));
}

void Session::Impl::WarnOfFirstValues(const LoadedJob& job) const {
  std::vector<std::string> untouched;
  for (const std::string& variable : job.trainable) {
    if (!touched_.contains(variable)) untouched.push_back(variable);
  }
  if (untouched.empty()) return;
  const std::vector<std::string> touched(touched_.begin(), touched_.end());
  constexpr size_t kMostNamed = 5;
  const size_t more = untouched.size() > kMostNamed ? untouched.size() - kMostNamed : 0;
  untouched.resize(untouched.size() - more);
  std::string nearest;
  for (const std::string& variable : untouched) {
    if (touched.empty()) break;  // there are none
    absl::StrAppend(&nearest, nearest.empty() ? "; the nearest of those that have others: " : "; ",
                    NearestNames(variable, touched));
  }
  LOG(WARNING) << absl::StrFormat(
      "job '%s' reads variables that no job changes and nothing has loaded or set, so they have "
      "their first values: %s%s%s",
      job.name, absl::StrJoin(untouched, ", "),
      more > 0 ? absl::StrFormat(" and %d more", more) : "", nearest);
}

absl::Status Session::Impl::CheckLoss(const LoadedJob& job, std::string_view name, int64_t step,
                                      double value) const {
  if (!std::isnan(value) || options_.allow_nan || options_.precision == DType::kF16 ||
      !job.losses.contains(name)) {
    return absl::OkStatus();
  }
  // Who calls this says on which line it is fetched.
  return absl::OutOfRangeError(absl::StrFormat(
      "the loss '%s' of job '%s' is NaN in step %d, so all that is trained will be; a smaller "
      "learning rate, .clip_global_norm or data without NaN may help; --check_numerics names the "
      "operator that makes the first NaN, and --allow_nan goes on",
      name, job.name, step));
}

absl::Status Session::Impl::Begin(std::string_view call, std::string_view job) {
  if (is_stepping_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s of job '%s' inside a Run; on_step cannot run or compile a job, nor get, set, load or "
        "save variables: do that between Runs",
        call, job));
  }
  return mistakes_->Take();
}

absl::Status Session::Impl::CheckRun(const LoadedJob& job, const RunOptions& options,
                                     int64_t& steps) {
  if (job.is_unloaded) {
    return absl::FailedPreconditionError(
        absl::StrFormat("job '%s' was unloaded and cannot run; compile it again", job.name));
  }
  BRAID_RETURN_IF_ERROR(Begin("Run", job.name));
  if (options_.dry_run) return absl::CancelledError("--dry_run: nothing is run");
  BRAID_ASSIGN_OR_RETURN(steps, StepsOf(job, options));
  return IsHostOf(job) ? CheckFeeds(job, options) : absl::OkStatus();
}

std::string Session::Impl::FedText(const LoadedJob& job, const RunOptions& options) const {
  std::string text;
  if (job.hosts != JobKind::Hosts::kAll) return text;
  for (const Fed& fed : job.inputs) {
    const auto given =
        std::ranges::find(options.feeds, fed.name, [](const auto& feed) { return feed.first; });
    if (given == options.feeds.end() || fed.is_own) continue;
    const Array& array = given->second;
    absl::StrAppendFormat(&text, "%s: %s with checksum %08x\n", fed.name, fed.type.ToString(),
                          Crc32c(array.bytes(), array.num_bytes()));
  }
  return text;
}

absl::StatusOr<RunResult> Session::Impl::RunWithoutSync(LoadedJob& job, RunOptions options) {
  if (!job.without_sync.has_value()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "Run of job '%s': no_sync adds gradients up, and no Minimize of the job keeps them; give "
        "one .ddp = braid::Ddp{.no_sync = true}",
        job.name));
  }
  options.no_sync = false;
  LoadedJob& adds_up = *jobs_.at(*job.without_sync);
  adds_up.step = job.step;
  BRAID_ASSIGN_OR_RETURN(RunResult result, Run(adds_up.id, options));
  job.step = adds_up.step;
  return result;
}

absl::StatusOr<RunResult> Session::Impl::Run(JobId id, const RunOptions& options) {
  LoadedJob& job = *jobs_.at(id);
  if (options.no_sync) return RunWithoutSync(job, options);
  int64_t all_steps = 0;
  const absl::Status checked = CheckRun(job, options, all_steps);
  WorldSeat::Call call = {
      absl::StrFormat("Run of job '%s', %d steps from %d on", job.name, all_steps, job.step)};
  if (world_ != nullptr && checked.ok()) call.text = FedText(job, options);
  call.verb = "feed";
  call.line = "input";
  BRAID_RETURN_IF_ERROR(Agree(call, checked));
  if (!job.has_run && IsMaster()) WarnOfFirstValues(job);
  for (const auto& [name, array] : options.feeds) host_node_->Host(id).Feed(name, array);
  for (Fed& fed : job.inputs) fed.is_fed = true;
  RunResult result(mistakes_);
  // It is called by the thread that drives a stream; the host thread looks after the run is done.
  RunReceiver receiver(result.values_, options, mistakes_, job.step,
                       [&](std::string_view name, int64_t step, double value) {
                         absl::Status status = reporter_->OnScalar(job.name, name, step, value);
                         status.Update(CheckLoss(job, name, step, value));
                         return status;
                       });
  for (const auto& [name, type] : job.fetches) {
    if (!IsHostOf(job)) break;
    const auto print = job.prints.find(name);
    if (print == job.prints.end()) {
      receiver.Expect(name, type, all_steps);
      continue;
    }
    receiver.ExpectPrint(name, type, print->second.every,
                         [&, label = print->second.label](int64_t step, const std::string& value) {
                           if (!IsMaster()) return;
                           reporter_->Print(absl::StrFormat("job '%s' step %d: %s %s", job.name,
                                                            step, label, value));
                         });
  }
  reporter_->BeginRun({.job = job.name,
                       .steps = all_steps,
                       .samples = job.samples_per_step,
                       .is_users = job.compiled != nullptr,
                       .is_resumed = was_loaded_});
  absl::Status status;
  const int64_t end = job.step + all_steps;
  while (status.ok() && job.step < end) {
    const int64_t until_check = StepsUntilCheck(job);
    const int64_t steps = std::min(until_check, end - job.step);
    status = RunSteps(job, steps, receiver);
    if (status.ok() && steps == until_check) status = CheckReplicas(job);
  }
  if (status.ok() && IsCheckDueAfterRun(job)) status = CheckReplicas(job);
  const absl::Status reported = reporter_->EndRun();
  BRAID_RETURN_IF_ERROR(status);
  if (!reported.ok()) return LocalError(reported);
  receiver.Finish();
  return result;
}

absl::Status Session::Impl::WithEvents(const absl::Status& status) {
  if (status.ok()) return status;
  std::vector<Node*> nodes;
  for (const std::unique_ptr<Node>& node : nodes_) nodes.push_back(node.get());
  if (world_ != nullptr) nodes.push_back(host_node_);
  std::vector<std::string> notes;
  for (Node* const node : nodes) {
    // Shared with the node, which may answer too late.
    const std::shared_ptr<Event> is_written = environment_->MakeEvent();
    const auto note = std::make_shared<std::string>();
    node->DumpEvents(status, [is_written, note](std::string words) {
      *note = std::move(words);
      is_written->Set();
    });
    if (!environment_->Await(*is_written, kDumpLimit).ok()) continue;
    if (!note->empty()) notes.push_back(*note);
  }
  if (notes.empty()) return status;
  return absl::Status(status.code(), absl::StrFormat("%s; %s", std::string(status.message()),
                                                     absl::StrJoin(notes, "; ")));
}

absl::Status Session::Impl::RunSteps(LoadedJob& job, int64_t steps, RunReceiver& receiver) {
  is_stepping_ = true;
  HostIo& host = host_node_->Host(job.id);
  host.SetReceiver(&receiver);
  absl::Status status;
  if (world_ != nullptr) {
    // No rank's part begins before all ranks are ready for it.
    if (coordinator_ == nullptr) world_->ExpectRun(job.id);
    status = world_->Meet();
  }
  if (status.ok()) {
    status = coordinator_ == nullptr
                 ? world_->AwaitRun()
                 : WithEvents(coordinator_->Run({job.id, job.name, job.step, steps},
                                                host.local_runs().get()));
  }
  host.SetReceiver(nullptr);
  is_stepping_ = false;
  if (!status.ok()) return status;
  job.step += steps;
  job.has_run = true;
  return absl::OkStatus();
}

absl::StatusOr<RunResult> Session::Impl::RunOnceHere(const std::string& name,
                                                     const std::function<void(Job&)>& record,
                                                     const RunOptions& options) {
  const auto hosts = is_by_master_ ? JobKind::Hosts::kMaster : JobKind::Hosts::kAll;
  BRAID_ASSIGN_OR_RETURN(LoadedJob * loaded, Compile(name, record, {.hosts = hosts}));
  const JobId id = loaded->id;
  absl::StatusOr<RunResult> result = Run(id, options);
  Unload(id);
  jobs_.erase(id);
  return result;
}

}  // namespace braid
