// Session's checkpoints. A save is a step of a job that copies what all devices hold into the
// system's caches of the files; from there to the disk it goes while training goes on. A load is a
// job of one step that reads.

#include <glog/logging.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/session_impl.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/files/checkpoint.h"
#include "runtime/files/checkpoint_part.h"

namespace braid {
namespace {

int64_t BytesOf(const TensorType& type) {
  return type.shape.num_elements() * static_cast<int64_t>(SizeOf(type.dtype));
}

std::string StepKey(const std::string& job) { return "step." + job; }

}  // namespace

absl::Status Session::Save(const std::string& directory, const SaveOptions& options) {
  return impl_->ByMaster(
      absl::StrFormat("Save to '%s' as '%s', keeping %d", directory, options.name, options.keep),
      [&] { return impl_->Save(directory, options); });
}

absl::Status Session::FinishSave() {
  return impl_->ByMaster("FinishSave", [&] { return impl_->FinishSave(); });
}

absl::Status Session::Load(const std::string& directory) {
  CheckpointState state;
  BRAID_RETURN_IF_ERROR(impl_->ByMaster(absl::StrFormat("Load '%s'", directory),
                                        [&] { return impl_->Load(directory, state); }));
  return impl_->Resume(std::move(state));
}

// Of one save, what is left to do when the variables may change again. The saver's thread does it,
// unless the session fails: that may be while the host's is still at work on it.
struct Session::Impl::Saving {
  const Impl* session;
  std::string directory;
  std::unique_ptr<CheckpointWriter> writer;  // the host's until Commit may come
  std::unique_ptr<Event> is_over;
  absl::Status status;  // once it is over

  // `written`: of the parts of these nodes.
  void Commit(const std::set<int>& nodes, absl::Status written) {
    if (is_over->is_set()) return;
    for (const int node : nodes) {
      if (written.ok()) written = writer->AddPart(PartName(node));
    }
    if (written.ok()) written = writer->Commit().status();
    writer.reset();
    if (!written.ok()) {
      written = session->SaveError(directory, written);
      LOG(ERROR) << written.message();
    }
    End(written);
  }

  // A failure of the session is said in its own words, as all nodes say it.
  void End(const absl::Status& how) {
    if (is_over->is_set()) return;
    status = how;
    is_over->Set();
  }
};

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

absl::Status Session::Impl::Save(const std::string& directory, const SaveOptions& options) {
  BRAID_RETURN_IF_ERROR(mistakes_->Take());
  if (options_.dry_run) return absl::CancelledError("--dry_run: nothing is saved");
  if (variables_.empty()) {
    return absl::FailedPreconditionError("Save: no compiled job has variables; compile first");
  }
  const Activity activity(this, absl::StrFormat("saving to '%s'", directory));
  BRAID_RETURN_IF_ERROR(FinishSave());
  BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<Saving> saving, BeginSave(directory, options));
  absl::Status saved = SaveByNodes(saving);
  if (absl::IsNotFound(saved) && HasOtherProcesses() && !saving->is_over->is_set()) {
    LOG(WARNING) << "the master gathers all variables and writes them, since not all nodes can: "
                 << saved.message();
    saved = SaveByMaster(saving);
  }
  if (saved.ok()) saving_ = saving;
  return saved;
}

absl::StatusOr<std::shared_ptr<Session::Impl::Saving>> Session::Impl::BeginSave(
    const std::string& directory, const SaveOptions& save) {
  CheckpointOptions options;
  options.directory = directory;
  options.name = save.name;
  options.keep = save.keep;
  options.state = State();
  for (const auto& [name, info] : variables_) {
    options.tensors.push_back({name, info.type.dtype, info.type.shape});
  }
  std::error_code ignored;
  const std::string real_path = std::filesystem::weakly_canonical(directory, ignored).string();
  if (!saved_.contains(real_path)) {
    absl::StatusOr<FolderLock> lock = FolderLock::Take(directory);
    if (!lock.ok()) return SaveError(directory, lock.status());
    saved_.emplace(real_path, *std::move(lock));
  }
  absl::StatusOr<std::unique_ptr<CheckpointWriter>> writer =
      CheckpointWriter::Begin(std::move(options));
  if (!writer.ok()) return SaveError(directory, writer.status());
  if (saver_ == nullptr) saver_ = environment_->StartReactor("saver");
  const auto saving = std::make_shared<Saving>();
  saving->session = this;
  saving->directory = directory;
  saving->writer = *std::move(writer);
  saving->is_over = environment_->MakeEvent();
  return saving;
}

absl::Status Session::Impl::SaveError(const std::string& directory,
                                      const absl::Status& status) const {
  return LocalError(Prefixed(absl::StrFormat("saving to '%s'", directory), status));
}

absl::Status Session::Impl::SaveByNodes(const std::shared_ptr<Saving>& saving) {
  CheckpointWriter& writer = *saving->writer;
  const absl::StatusOr<int64_t> save = writer.Share();
  if (!save.ok()) return SaveError(saving->directory, save.status());
  std::set<int> nodes;  // that write parts
  for (const auto& [name, info] : variables_) {
    for (const DeviceId& device : info.layout.placement.devices()) nodes.insert(device.node);
  }
  coordinator_->ExpectSaved(
      *save, nodes, [this, saving, nodes](const absl::Status& saved, const absl::Status& session) {
        saver_->Post([saving, nodes, saved, session] {
          session.ok() ? saving->Commit(nodes, saved) : saving->End(session);
        });
      });
  const auto record = [&](Job& job) {
    for (const auto& [name, info] : variables_) {
      const CheckpointWriter::Position position = writer.PositionOf(name);
      const Tensor value = Refer(job, name, info);
      job.graph().Append("write_checkpoint", {&value, 1},
                         {.name = name + ".write",
                          .attrs = {{"directory", writer.temporary()},
                                    {"save", *save},
                                    {"file", position.file},
                                    {"position", position.offset}},
                          .placement = info.layout.placement});
    }
  };
  const absl::Status written = RunOnce("save", record, {}).status();
  if (written.ok()) return written;
  // All nodes may have written their parts before the job failed: then the saver commits them now.
  // The program goes on once that is over, and the saver hears of this save no more.
  const std::shared_ptr<Event> is_forgotten = environment_->MakeEvent();
  coordinator_->ForgetSaved(
      *save, [this, is_forgotten] { saver_->Post([is_forgotten] { is_forgotten->Set(); }); });
  environment_->Await(*is_forgotten, kForever).IgnoreError();
  return written;
}

absl::Status Session::Impl::SaveByMaster(const std::shared_ptr<Saving>& saving) {
  auto next = variables_.begin();
  while (next != variables_.end()) {
    const auto first = next;
    int64_t bytes = 0;
    while (next != variables_.end() &&
           (next == first || bytes + BytesOf(next->second.type) <= kGatherBytes)) {
      bytes += BytesOf(next->second.type);
      ++next;
    }
    const auto record = [&](Job& job) {
      for (auto each = first; each != next; ++each) {
        job.Fetch(each->first, Refer(job, each->first, each->second));
      }
    };
    BRAID_ASSIGN_OR_RETURN(const RunResult result, RunOnce("save", record, {}));
    for (auto each = first; each != next; ++each) {
      const Array& value = result.Last(each->first);
      const absl::Status written =
          saving->writer->Write(each->first, 0, value.bytes(), value.num_bytes());
      if (!written.ok()) return SaveError(saving->directory, written);
    }
  }
  saver_->Post([saving] { saving->Commit(/*nodes=*/{}, absl::OkStatus()); });
  return absl::OkStatus();
}

absl::Status Session::Impl::FinishSave() {
  BRAID_RETURN_IF_ERROR(AwaitSave());
  if (saving_ == nullptr) return absl::OkStatus();
  return std::exchange(saving_, nullptr)->status;
}

absl::Status Session::Impl::AwaitSave() {
  if (saving_ == nullptr || saving_->is_over->is_set()) return absl::OkStatus();
  const Activity activity(this, absl::StrFormat("saving to '%s'", saving_->directory));
  coordinator_->program().Begin("waiting until all is on the disk");
  // A failure of the session ends it, too.
  const absl::Status waited = environment_->Await(*saving_->is_over, kForever);
  coordinator_->program().End();
  return waited;
}

absl::Status Session::Impl::Load(const std::string& directory, CheckpointState& state) {
  BRAID_RETURN_IF_ERROR(mistakes_->Take());
  // It may be the one to load; what went wrong with it is the next save's to say.
  BRAID_RETURN_IF_ERROR(AwaitSave());
  const Activity activity(this, absl::StrFormat("loading '%s'", directory));
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                         CheckpointReader::Open(directory));
  for (const auto& [name, info] : variables_) {
    BRAID_ASSIGN_OR_RETURN(const StoredTensor stored, reader->Info(name));
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
  if (absl::IsNotFound(loaded) && HasOtherProcesses()) {
    LOG(WARNING) << "the master reads '" << reader->path() << "' and sends it, since not all nodes "
                 << "have it: " << loaded.message();
    loaded = LoadByMaster(*reader);
  }
  if (loaded.ok()) state = reader->state();
  return loaded;
}

absl::Status Session::Impl::Resume(CheckpointState state) {
  if (world_ != nullptr) {
    std::pair<int64_t, std::map<std::string, int64_t>> steps(state.step, state.values);
    BRAID_RETURN_IF_ERROR(world_->TakeFromMaster(absl::OkStatus(), steps));
    state.step = steps.first;
    state.values = std::move(steps.second);
  }
  loaded_step_ = state.step;
  was_loaded_ = true;
  for (const auto& [id, job] : jobs_) {
    const auto found = state.values.find(StepKey(job->name));
    if (found != state.values.end()) job->step = found->second;
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
  std::vector<std::string> names;
  for (const auto& [name, info] : variables_) {
    names.push_back(name);
    const std::vector<int64_t>& sizes = info.type.shape.dims();
    BRAID_RETURN_IF_ERROR(reader.Verify(name, {std::vector<int64_t>(sizes.size(), 0), sizes}));
  }
  return SetByMaster(names, kGatherBytes, [&](const std::string& name, Array& into) {
    return reader.ReadBytes(name, 0, into.mutable_bytes(), into.num_bytes());
  });
}

}  // namespace braid
