#include "runtime/coordinator.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/plan/plan_codec.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"
#include "runtime/group/stored_keys.h"
#include "runtime/local_runs.h"
#include "runtime/reports/bounded_report.h"
#include "runtime/reports/control_status.h"

namespace braid {
namespace {

// Longer than it takes to notice that a node is lost (6 s) and to end what waits in a user's code
// (2 s), so that the lost one is named, not those that it keeps waiting.
constexpr Nanoseconds kCloseLimit = 15 * kSecond;
// A node that neither answers nor is lost, the heartbeats' limit notwithstanding, is busy.
constexpr Nanoseconds kInquiryAnswerLimit = 6 * kSecond;
constexpr Nanoseconds kDescribeLimit = 2 * kSecond;

}  // namespace

using control::ControlMessage;

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      plans_([this](uint16_t node, const ControlMessage& message) { Send(node, message); }),
      roll_calls_(
          {.send = [this](uint16_t node, const ControlMessage& message) { Send(node, message); },
           .fail = [this](const absl::Status& cause) { OnFailure(0, cause); },
           .name_of = [this](int node) { return NameOf(node); },
           .now = [this] { return reactor_->Now(); },
           .stall_timeout = options_.stall_timeout}),
      reactor_(options_.environment->StartReactor("coordinator")) {
  program_ =
      std::make_unique<ProgramWatch>(reactor_.get(), options_.stall_timeout,
                                     [this](Nanoseconds lasted) { OnProgramStalled(lasted); });
  store_ = std::make_unique<dist::StoredKeys>(dist::StoredKeys::Options{
      .reactor = reactor_.get(),
      .send = [this](uint16_t node, const ControlMessage& message) { Send(node, message); }});
}

Coordinator::~Coordinator() {
  // The channels' handlers point here and run on the reactor.
  for (Peer& peer : peers_) {
    if (peer.channel != nullptr)
      reactor_->Post([channel = peer.channel.release()] { delete channel; });
  }
}

std::string Coordinator::NameOf(int node) const {
  return options_.name_of ? options_.name_of(node) : absl::StrFormat("node %d", node);
}

absl::Status Coordinator::OfNode(int node, const absl::Status& status) const {
  const std::string name = NameOf(node);
  if (peers_.size() < 2 || std::string(status.message()).starts_with(name)) return status;
  return Prefixed(name, status);
}

absl::Status Coordinator::Join(std::vector<std::unique_ptr<ControlChannel>> channels,
                               Nanoseconds timeout) {
  // On the reactor's thread, where somebody may be asking for the status, or a failure be handled.
  const std::shared_ptr<Event> is_known = options_.environment->MakeEvent();
  reactor_->Post([this, channels = std::move(channels), is_known]() mutable {
    peers_.resize(channels.size());
    for (size_t i = 0; i < peers_.size(); ++i) peers_[i].channel = std::move(channels[i]);
    is_known->Set();
  });
  BRAID_RETURN_IF_ERROR(options_.environment->Await(*is_known, kForever));
  BeginWait(ControlMessage::kHello, 0);
  for (size_t i = 0; i < peers_.size(); ++i) {
    const auto node = static_cast<uint16_t>(i);
    peers_[i].channel->SetHandlers([this, node](std::string bytes) { OnMessage(node, bytes); },
                                   [this, node](absl::Status reason) { OnLost(node, reason); });
  }
  if (const absl::Status joined = FinishWait(timeout); !joined.ok()) return ToldToAll(joined);
  ControlMessage message;
  for (const Peer& peer : peers_) *message.mutable_peers()->add_nodes() = *peer.hello;
  SendAll(message);
  return absl::OkStatus();
}

void Coordinator::Send(uint16_t node, const ControlMessage& message) {
  peers_[node].channel->Send(message.SerializeAsString());
}

void Coordinator::SendAll(const ControlMessage& message) {
  const std::string bytes = message.SerializeAsString();
  for (const Peer& peer : peers_) peer.channel->Send(bytes);
}

absl::Status Coordinator::ToldToAll(const absl::Status& cause) {
  ControlMessage message;
  *message.mutable_failure() = CauseOf(cause, 0);
  SendAll(message);
  return cause;
}

std::string Coordinator::EnterPhase(std::string phase) {
  const Nanoseconds now = reactor_->Now();
  MutexLock lock(mutex_);
  if (!activity_.empty()) phase = activity_;
  if (phase_ != phase) phase_began_ = now;
  phase_ = phase;
  return phase;
}

void Coordinator::SetPhase(std::string phase) {
  ControlMessage message;
  message.mutable_phase()->set_text(EnterPhase(std::move(phase)));
  SendAll(message);
}

void Coordinator::SetActivity(std::string activity) {
  {
    MutexLock lock(mutex_);
    activity_ = std::move(activity);
  }
  SetPhase(kProgramPhase);
}

void Coordinator::BeginWait(int kind, JobId job) {
  MutexLock lock(mutex_);
  wait_ = Wait();
  wait_.kind = kind;
  wait_.job = job;
  wait_.event = options_.environment->MakeEvent();
  for (size_t i = 0; i < peers_.size(); ++i) wait_.nodes.insert(static_cast<uint16_t>(i));
  if (!failure_.ok() && !is_closing_) wait_.event->Set();
}

void Coordinator::Answer(const AnswerFrom& from, const absl::Status& status) {
  MutexLock lock(mutex_);
  if (wait_.kind != from.kind || wait_.job != from.job || wait_.nodes.erase(from.node) == 0) return;
  wait_.status.Update(status);
  // After an error the other nodes may wait for the one that failed.
  if (wait_.nodes.empty() || !status.ok()) wait_.event->Set();
}

void Coordinator::TakeSummary(const AnswerFrom& from, NodeSummary summary) {
  MutexLock lock(mutex_);
  if (wait_.kind != from.kind || wait_.job != from.job || !wait_.nodes.contains(from.node)) return;
  wait_.summaries.push_back(std::move(summary));
}

absl::Status Coordinator::FinishWait(Nanoseconds timeout) {
  Event* event = nullptr;
  {
    MutexLock lock(mutex_);
    event = wait_.event.get();
  }
  const absl::Status waited = options_.environment->Await(*event, timeout);
  MutexLock lock(mutex_);
  if (!failure_.ok() && !is_closing_) {
    is_failure_told_ = true;
    return failure_;
  }
  if (absl::IsDeadlineExceeded(waited)) {
    std::vector<std::string> names;
    for (uint16_t node : wait_.nodes) names.push_back(NameOf(node));
    return absl::DeadlineExceededError(absl::StrFormat("no answer from %s within %.0f s",
                                                       absl::StrJoin(names, ", "),
                                                       static_cast<double>(timeout) / kSecond));
  }
  if (!waited.ok()) return waited;
  return wait_.status;
}

void Coordinator::OnMessage(uint16_t node, const std::string& bytes) {
  ControlMessage message;
  if (!message.ParseFromString(bytes)) {
    return OnFailure(node, absl::InvalidArgumentError(absl::StrFormat(
                               "%s sent a control message of %d bytes that cannot be read",
                               NameOf(node), bytes.size())));
  }
  AnswerFrom from{node, static_cast<int>(message.kind_case()), 0};
  switch (message.kind_case()) {
    case ControlMessage::kHello:
      if (message.hello().protocol() != kControlProtocol) {
        return OnFailure(
            node, absl::FailedPreconditionError(absl::StrFormat(
                      "%s speaks control protocol %d, the master %d; start the same binary on "
                      "every node",
                      NameOf(node), message.hello().protocol(), kControlProtocol)));
      }
      peers_[node].hello = std::make_unique<control::Hello>(message.hello());
      return Answer(from, absl::OkStatus());
    case ControlMessage::kLoaded:
      from.job = message.loaded().job();
      if (message.loaded().has_summary()) {
        TakeSummary(from, Decode(message.loaded().summary(), node));
      }
      return Answer(from, message.loaded().has_error()
                              ? OfNode(node, FailureOf(message.loaded().error()))
                              : absl::OkStatus());
    case ControlMessage::kRunDone:
      from.job = message.run_done().job();
      return Answer(from, absl::OkStatus());
    case ControlMessage::kSaved:
      return OnSaved(node, message.saved());
    case ControlMessage::kPlanTaken: {
      const absl::Status status = plans_.OnTaken(node, message.plan_taken().job());
      return status.ok() ? void() : OnFailure(node, status);
    }
    case ControlMessage::kStatus:
      return OnStatus(node, *message.mutable_status());
    case ControlMessage::kStalled:
      OnStalled(message.stalled());
      message.mutable_stall_noted();
      return Send(node, message);
    case ControlMessage::kFailure: {
      const absl::Status cause = FailureOf(message.failure());
      return message.failure().is_link() ? OnLinkFailure(node, cause) : OnFailure(node, cause);
    }
    case ControlMessage::kProbe:
      return OnProbe(node, message.probe().number());
    case ControlMessage::kRollCall:
    case ControlMessage::kRollAnswer:
    case ControlMessage::kDial:
    case ControlMessage::kLeft:
      BoundNumbers(message);
      return OnGroupMessage(node, message);
    case ControlMessage::kStoreRequest:
      return OnStoreRequest(node, message.mutable_store_request());
    case ControlMessage::kClosed: {
      {
        MutexLock lock(mutex_);
        peers_[node].is_closed = true;
      }
      return Answer(from, absl::OkStatus());
    }
    default:
      return OnFailure(node, absl::InvalidArgumentError(absl::StrFormat(
                                 "%s sent a control message of kind %d", NameOf(node),
                                 static_cast<int>(message.kind_case()))));
  }
}

void Coordinator::OnGroupMessage(uint16_t node, const control::ControlMessage& message) {
  const auto is_node = [this](uint32_t number) { return number < peers_.size(); };
  if (message.has_roll_answer()) return roll_calls_.OnAnswer(node, message.roll_answer());
  if (message.has_left()) {
    {
      MutexLock lock(mutex_);
      left_.insert(node);
    }
    return Answer({node, static_cast<int>(ControlMessage::kLeft), 0}, absl::OkStatus());
  }
  if (message.has_dial() && is_node(message.dial().to())) {
    return Send(static_cast<uint16_t>(message.dial().to()), message);
  }
  if (message.has_roll_call() && std::ranges::all_of(message.roll_call().members(), is_node)) {
    return roll_calls_.OnAsked(message.roll_call());
  }
  OnFailure(node, absl::InvalidArgumentError(
                      absl::StrFormat("%s names a node that is none of %d: %s", NameOf(node),
                                      peers_.size(), message.ShortDebugString())));
}

void Coordinator::OnStoreRequest(uint16_t node, control::StoreRequest* request) {
  const absl::Status status = store_->OnRequest(node, request);
  if (status.ok()) return;
  OnFailure(node, Prefixed(NameOf(node) + " sent a request that the store does not take", status));
}

absl::Status Coordinator::AwaitLeft() {
  BeginWait(ControlMessage::kLeft, 0);
  {
    MutexLock lock(mutex_);
    for (const uint16_t node : left_) wait_.nodes.erase(node);
    if (wait_.nodes.empty()) wait_.event->Set();
  }
  BRAID_RETURN_IF_ERROR(FinishWait(kForever));
  const std::shared_ptr<Event> is_saved = options_.environment->MakeEvent();
  reactor_->Post([this, is_saved] {
    all_saved_ = is_saved;
    NoteAllSaved();
  });
  return options_.environment->Await(*is_saved, kForever);
}

void Coordinator::NoteAllSaved() {
  if (savings_.empty() && all_saved_ != nullptr) all_saved_->Set();
}

void Coordinator::OnLost(uint16_t node, const absl::Status& reason) {
  std::string phase;
  {
    MutexLock lock(mutex_);
    peers_[node].is_closed = true;
    phase = phase_;
  }
  OnFailure(node, absl::UnavailableError(absl::StrFormat("%s lost while %s: %s", NameOf(node),
                                                         phase, std::string(reason.message()))));
  // It will not say that nothing runs there any more.
  Answer({node, static_cast<int>(ControlMessage::kClosed), 0}, absl::OkStatus());
}

void Coordinator::OnFailure(uint16_t node, const absl::Status& cause) {
  {
    MutexLock lock(mutex_);
    if ((is_closing_ && !is_closing_well_) || !failure_.ok()) return;
    failure_ = cause;
    // Closing goes on: what is left of the session ends, too.
    if (wait_.event != nullptr && !is_closing_) wait_.event->Set();
  }
  ControlMessage message;
  *message.mutable_failure() = CauseOf(cause, node);
  SendAll(message);
  store_->Close();
  for (auto& [save, saving] : std::exchange(savings_, {})) saving.done(cause, cause);
  NoteAllSaved();
  if (options_.on_failure) options_.on_failure(cause);
}

// It may be the first sign of a dead node, whose own connection says more. If all answer, two nodes
// that are well do not reach each other.
void Coordinator::OnLinkFailure(uint16_t node, const absl::Status& cause) {
  {
    MutexLock lock(mutex_);
    // Nodes close their links at different times.
    if (is_closing_ || !failure_.ok()) return;
  }
  const uint64_t number = next_inquiry_++;
  Inquiry& inquiry = inquiries_[number];
  inquiry.node = node;
  inquiry.cause = cause;
  for (size_t i = 0; i < peers_.size(); ++i) inquiry.missing.insert(static_cast<uint16_t>(i));
  ControlMessage message;
  message.mutable_probe()->set_number(number);
  SendAll(message);
  reactor_->RunAfter(kInquiryAnswerLimit, [this, node, cause] { OnFailure(node, cause); });
}

void Coordinator::OnProbe(uint16_t node, uint64_t number) {
  const auto found = inquiries_.find(number);
  if (found == inquiries_.end() || found->second.missing.erase(node) == 0) return;
  if (!found->second.missing.empty()) return;
  const auto inquiry = inquiries_.extract(found);
  OnFailure(inquiry.mapped().node, inquiry.mapped().cause);
}

void Coordinator::Fail(const absl::Status& cause) {
  reactor_->Post([this, cause] { OnFailure(0, cause); });
}

absl::StatusOr<std::vector<NodeSummary>> Coordinator::Load(const LoadRequest& request) {
  ControlMessage message;
  control::Load& load = *message.mutable_load();
  load.set_job(request.job);
  load.set_first_collective(request.first_collective);
  load.set_phase(EnterPhase(absl::StrFormat("connecting job '%s'", request.name)));
  load.set_fingerprint(compiler::PlanFingerprint(request.plan));
  load.set_wants_summary(request.wants_summaries);
  BeginWait(ControlMessage::kLoaded, request.job);
  const PlanTree tree = {.num_nodes = static_cast<int>(peers_.size()),
                         .fan_out = options_.plan_fan_out};
  for (int node = 0; node < tree.num_nodes; ++node) {
    RoutePlan(request.plan, node, tree, load);
    Send(static_cast<uint16_t>(node), message);
  }
  reactor_->Post([this, job = request.job, receivers = std::min(tree.num_nodes, tree.fan_out),
                  plan = std::make_shared<const std::string>(request.plan)] {
    plans_.Begin(job, plan, receivers);
  });
  const absl::Status status = FinishWait(kForever);
  if (!status.ok()) Unload(request.job);
  SetPhase(kProgramPhase);
  BRAID_RETURN_IF_ERROR(status);
  MutexLock lock(mutex_);
  std::sort(wait_.summaries.begin(), wait_.summaries.end(),
            [](const NodeSummary& a, const NodeSummary& b) { return a.node < b.node; });
  return std::move(wait_.summaries);
}

bool Coordinator::RunHere(const RunRequest& request, LocalRuns& local) {
  {
    MutexLock lock(mutex_);
    if (peers_.size() != 1 || !failure_.ok()) return false;
    running_ = request.job;
    is_stepping_ = true;
  }
  const bool is_done = local.Run(request.first_step, request.steps);
  MutexLock lock(mutex_);
  is_stepping_ = false;
  return is_done && failure_.ok();
}

absl::Status Coordinator::Run(const RunRequest& request, LocalRuns* local) {
  const std::string phase = EnterPhase(absl::StrCat("stepping job '", request.name, "'"));
  if (local != nullptr && RunHere(request, *local)) {
    EnterPhase(kProgramPhase);
    return absl::OkStatus();
  }
  BeginWait(ControlMessage::kRunDone, request.job);
  {
    MutexLock lock(mutex_);
    running_ = request.job;
    is_stepping_ = true;
  }
  ControlMessage message;
  message.mutable_run()->set_job(request.job);
  message.mutable_run()->set_first_step(request.first_step);
  message.mutable_run()->set_steps(request.steps);
  message.mutable_run()->set_phase(phase);
  SendAll(message);
  const absl::Status status = FinishWait(kForever);
  {
    MutexLock lock(mutex_);
    is_stepping_ = false;
  }
  EnterPhase(kProgramPhase);  // as nodes know by themselves
  return status;
}

void Coordinator::Unload(JobId job) {
  ControlMessage message;
  message.mutable_unload()->set_job(job);
  SendAll(message);
}

void Coordinator::ExpectSaved(int64_t save, std::set<int> nodes, OnSavedByAll done) {
  reactor_->Post([this, save, nodes = std::move(nodes), done = std::move(done)] {
    absl::Status failure;
    {
      MutexLock lock(mutex_);
      failure = failure_;
    }
    if (!failure.ok()) return done(failure, failure);
    savings_[save] = {nodes, done};
  });
}

void Coordinator::ForgetSaved(int64_t save, std::function<void()> forgotten) {
  reactor_->Post([this, save, forgotten = std::move(forgotten)] {
    savings_.erase(save);
    NoteAllSaved();
    forgotten();
  });
}

void Coordinator::OnSaved(uint16_t node, const control::Saved& saved) {
  const auto found = savings_.find(saved.save());
  if (found == savings_.end() || found->second.missing.erase(node) == 0) return;
  absl::Status status;
  if (saved.has_error()) {
    status = Prefixed(NameOf(node), FailureOf(saved.error()));
  } else if (!found->second.missing.empty()) {
    return;
  }
  savings_.extract(found).mapped().done(status, absl::OkStatus());
  NoteAllSaved();
}

void Coordinator::Describe(std::function<void(std::string)> done) {
  reactor_->Post([this, done = std::move(done)] {
    const uint64_t request = next_description_++;
    Description& description = descriptions_[request];
    description.done = done;
    SessionState& state = description.state;
    state.cluster.name_of = [this](int node) { return NameOf(node); };
    ControlMessage message;
    {
      MutexLock lock(mutex_);
      state.phase = phase_;
      state.phase_for = reactor_->Now() - phase_began_;
      state.is_stepping = is_stepping_;
      if (!failure_.ok()) state.failure = std::string(failure_.message());
      message.mutable_status()->set_job(running_);
      for (size_t i = 0; i < peers_.size(); ++i) {
        const auto node = static_cast<uint16_t>(i);
        if (!peers_[i].is_closed) description.missing.insert(node);
      }
    }
    message.mutable_status()->set_request(request);
    for (uint16_t node : std::set<uint16_t>(description.missing)) Send(node, message);
    if (description.missing.empty()) return FinishDescription(request);
    reactor_->RunAfter(kDescribeLimit, [this, request] { FinishDescription(request); });
  });
}

void Coordinator::OnStatus(uint16_t node, control::Status& status) {
  const auto found = descriptions_.find(status.request());
  if (found == descriptions_.end() || found->second.missing.erase(node) == 0) return;
  control::NodeReport& report = *status.mutable_report();
  BoundNumbers(report);
  report.set_node(node);
  found->second.state.cluster.reports.push_back(std::move(report));
  if (found->second.missing.empty()) FinishDescription(status.request());
}

void Coordinator::FinishDescription(uint64_t request) {
  auto description = descriptions_.extract(request);
  if (description.empty()) return;
  SessionState& state = description.mapped().state;
  for (uint16_t node : description.mapped().missing) {
    state.cluster.silent[node] = options_.silence_of ? options_.silence_of(node) : -1;
  }
  state.waits = roll_calls_.Waits();
  // The program runs on the master's node, whose loader has nothing to do meanwhile.
  if (auto doing = program_->doing()) {
    std::vector<std::string> names;
    for (const auto& [save, saving] : savings_) {
      for (const int node : saving.missing) names.push_back(NameOf(node));
    }
    if (!names.empty()) doing->what += " of " + absl::StrJoin(names, ", ");
    for (control::NodeReport& report : state.cluster.reports) {
      if (report.node() != 0) continue;
      report.mutable_standing()->set_what(doing->what);
      report.mutable_standing()->set_time(reactor_->Now() - doing->since);
    }
  }
  std::sort(state.cluster.reports.begin(), state.cluster.reports.end(),
            [](const auto& a, const auto& b) { return a.node() < b.node(); });
  description.mapped().done(StallReport(state));
}

void Coordinator::OnStalled(const control::Stalled& stalled) {
  const Nanoseconds now = reactor_->Now();
  if (stall_reported_.has_value() && now - *stall_reported_ < stalled.silence() / 4 * 3) return;
  stall_reported_ = now;
  ReportStall(StallTitle(stalled.standing(), "", stalled.silence()));
}

void Coordinator::OnProgramStalled(Nanoseconds lasted) {
  std::string what = "the loading of a job";
  {
    MutexLock lock(mutex_);
    if (!activity_.empty()) what = activity_;
  }
  ReportStall(StallTitle(what, "", lasted));
}

void Coordinator::ReportStall(const std::string& title) {
  Describe([title](const std::string& text) { LOG(WARNING) << title << ": " << text; });
}

absl::Status Coordinator::Close(const absl::Status& why) {
  absl::Status cause = why;
  {
    MutexLock lock(mutex_);
    is_closing_ = true;
    // The notice of it may still be on its way to the nodes.
    if (!failure_.ok()) cause = failure_;
    is_closing_well_ = cause.ok();
    activity_.clear();
  }
  EnterPhase("closing");
  BeginWait(ControlMessage::kClosed, 0);
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].is_closed) wait_.nodes.erase(static_cast<uint16_t>(i));
    }
    if (wait_.nodes.empty()) wait_.event->Set();
  }
  ControlMessage message;
  *message.mutable_close()->mutable_cause() = CauseOf(cause, 0);
  SendAll(message);
  const absl::Status closed = FinishWait(kCloseLimit);
  if (!cause.ok()) {
    if (!closed.ok()) LOG(ERROR) << "closing the session: " << closed.message();
    MutexLock lock(mutex_);
    return is_failure_told_ || !why.ok() ? absl::OkStatus() : cause;
  }
  if (!closed.ok()) {
    const std::shared_ptr<Event> is_told = options_.environment->MakeEvent();
    reactor_->Post([this, closed, is_told] {
      OnFailure(0, Prefixed("closing the session", closed));
      is_told->Set();
    });
    options_.environment->Await(*is_told, kCloseLimit).IgnoreError();
  }
  reactor_->Post([this] {
    const absl::Status late = absl::CancelledError("it was not on the disk when all ended");
    for (auto& [save, saving] : std::exchange(savings_, {})) saving.done(late, absl::OkStatus());
  });
  {
    MutexLock lock(mutex_);
    is_closing_well_ = false;
    cause = failure_;
  }
  if (!cause.ok()) return ToldToAll(cause);
  ControlMessage ended;
  ended.mutable_ended();
  SendAll(ended);
  return absl::OkStatus();
}

}  // namespace braid
