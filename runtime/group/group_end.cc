#include "runtime/group/group_end.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/control.pb.h"

namespace braid::dist {
namespace {

// Of every lane, whatever the calls: both ends know them.
constexpr uint32_t kLaneSlots = kRingSlots;
constexpr int64_t kLaneSlotBytes = CollectiveMethod{}.chunk_bytes;
// Without progress, before the master is asked, and again.
constexpr Nanoseconds kLookInterval = 300 * kMillisecond;
// A rank may be so many calls ahead of one that asks for an older one and still knows it.
constexpr size_t kRememberedCalls = 64;
// So many shapes of calls are known by what follows from them.
constexpr size_t kPlannedCalls = 16;

}  // namespace

GroupEnd::GroupEnd(GroupIdentity identity, Options options)
    : identity_(std::move(identity)),
      options_(std::move(options)),
      local_(std::make_shared<LocalGroup>(SpecOf({.kind = CallKind::kBarrier}, identity_),
                                          identity_.nodes[identity_.my_rank])),
      machine_({.reactor = options_.reactor,
                .group = local_,
                .my_rank = identity_.my_rank,
                .channel = Channel::kGroup,
                .on_unexpected = OnUnexpected()}),
      direct_({.member = {.reactor = options_.reactor,
                          .my_rank = identity_.my_rank,
                          .members = ranks(),
                          .channel = Channel::kGroup,
                          .id = identity_.id,
                          .allocate = options_.allocate,
                          .link_to = LinkTo()},
               .name = identity_.name,
               .on_unexpected = OnUnexpected(),
               .fail = options_.fail}),
      transfers_({.identity = identity_,
                  .reactor = options_.reactor,
                  .with_link = [this](int rank, auto then) { WithLink(rank, std::move(then)); },
                  .link_to = LinkTo(),
                  .on_unexpected =
                      [this](const std::string& what) {
                        Ask(number_, absl::StrFormat("%s: %s", name(), what), 0);
                      },
                  .fail = options_.fail}),
      windows_({.identity = identity_,
                .reactor = options_.reactor,
                .with_link = [this](int rank, auto then) { WithLink(rank, std::move(then)); },
                .link_to = LinkTo(),
                .fail = options_.fail}) {
  local_->Join(identity_.my_rank, {.inbox = machine_.inbox()});
}

GroupEnd::~GroupEnd() {
  CHECK(!running_.has_value() && landings_.empty())
      << name() << " is destroyed before it is closed";
  local_->Leave(identity_.my_rank);
}

std::function<void(int from, int64_t piece, const std::string& what)> GroupEnd::OnUnexpected() {
  return [this](int from, int64_t piece, const std::string& what) {
    unexpected_ = {piece, absl::StrFormat("%s: rank %d sent %s", name(), from, what)};
    LookAtUnexpected();
  };
}

std::function<Link*(int rank)> GroupEnd::LinkTo() const {
  return [this](int rank) { return options_.peers->LinkTo(identity_.nodes[rank]); };
}

void GroupEnd::Start(GroupCall call, std::function<void(absl::Status)> done) {
  if (call.kind == CallKind::kDropWindow) {
    // Also after Close, for links may read the window's memory still.
    return windows_.Drop(*call.window, [done = std::move(done)] { done(absl::OkStatus()); });
  }
  if (!closed_.ok()) return done(closed_);
  ++calls_;
  LookLater(kLookInterval);
  if (IsTransfer(call.kind)) return transfers_.Start(std::move(call), std::move(done));
  if (IsOneSided(call.kind)) return windows_.Start(std::move(call), std::move(done));
  if (call.window != nullptr) return StartOfWindow(std::move(call), std::move(done));
  Queue(std::move(call), std::move(done));
}

void GroupEnd::Queue(GroupCall call, std::function<void(absl::Status)> done) {
  waiting_.push_back({std::move(call), std::move(done)});
  StartNext();
}

void GroupEnd::StartOfWindow(GroupCall call, std::function<void(absl::Status)> done) {
  const std::shared_ptr<WindowHandle> window = call.window;
  if (call.kind == CallKind::kMakeWindow) {
    windows_.Make(window);
    return Queue(std::move(call), std::move(done));
  }
  if (call.kind == CallKind::kCloseWindow) {
    done = [this, window, done = std::move(done)](const absl::Status& status) {
      windows_.Release(*window, [done, status] { done(status); });
    };
  }
  // Who is in a fence has nothing on its way to others any more.
  windows_.WhenIdle(*window, [this, call = std::move(call), done = std::move(done)] {
    if (!closed_.ok()) return done(closed_);
    Queue(call, done);
  });
}

void GroupEnd::WithLink(int rank, std::function<void()> then) {
  const uint16_t node = identity_.nodes[rank];
  if (options_.peers->IsReady(node)) return then();
  options_.dial(node);
  options_.peers->Connect(
      node, [then = std::move(then), is_alive = is_alive_](const absl::Status& status) {
        // A link that is not made ends the session, and this group with it.
        if (*is_alive && status.ok()) then();
      });
}

// Calls that are done at once do not stand inside each other.
void GroupEnd::StartNext() {
  if (std::exchange(is_starting_, true)) return;
  while (!running_.has_value() && !waiting_.empty()) {
    running_ = std::move(waiting_.front());
    waiting_.pop_front();
    ++number_;
    began_ = options_.reactor->Now();
    plan_ = FindPlan();
    if (const absl::Status fits = plan_->fits; !fits.ok()) {
      const Pending unable = std::move(*running_);
      running_.reset();
      unable.done(fits);
      continue;
    }
    if (IsJoined(running_->call)) {
      const absl::Status packed =
          joined_.Pack(running_->call, identity_.my_rank, ranks(), options_.allocate);
      if (!packed.ok()) {
        options_.fail(packed);
        continue;
      }
    }
    Begin();
  }
  is_starting_ = false;
}

// Most programs make the same calls again and again.
GroupEnd::PlannedCall* GroupEnd::FindPlan() {
  const GroupCall& call = running_->call;
  for (PlannedCall& planned : planned_) {
    if (HaveSameShape(planned.call, call)) return &planned;
  }
  // What no other call can have the shape of is not kept.
  const bool is_alone =
      !planned_.empty() && !HaveSameShape(planned_.front().call, planned_.front().call);
  if (is_alone) planned_.pop_front();
  if (planned_.size() == kPlannedCalls) planned_.pop_back();
  planned_.push_front({.call = Remembered(call),
                       .spec = SpecOf(call, identity_),
                       .blocks = JoinedBlocks(call, ranks()),
                       .shape = ShapeOf(call, identity_.id)});
  PlannedCall& made = planned_.front();
  made.fits = CheckAlgorithm(identity_, made.spec, AreNear());
  return &made;
}

void GroupEnd::Begin() {
  if (!MayBeDirect(identity_) || !AreNear()) return Connect();
  if (!direct_.stands().was_opened()) return OpenStands();
  if (!direct_.stands().is_open()) return Connect();
  RunDirectly();
}

bool GroupEnd::AreNear() {
  if (are_near_.has_value()) return *are_near_;
  const bool is_one_host = std::ranges::all_of(
      identity_.hosts, [this](uint32_t host) { return host == identity_.hosts.front(); });
  are_near_ = is_one_host && ranks() > 1 && ranks() <= kMostDirectRanks;
  for (int rank = 0; rank < ranks() && *are_near_; ++rank) {
    are_near_ = rank == identity_.my_rank || options_.peers->IsNear(identity_.nodes[rank]);
  }
  return *are_near_;
}

void GroupEnd::OpenStands() {
  links_missing_ = 1;
  const auto one_less = [this] {
    if (--links_missing_ > 0) return;
    direct_.stands().Open([this](const absl::Status& status) {
      if (!status.ok()) return options_.fail(status);
      Begin();
    });
  };
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == identity_.my_rank) continue;
    ++links_missing_;
    WithLink(rank, one_less);
  }
  one_less();
}

void GroupEnd::RunDirectly() {
  last_algorithm_ = CollectiveAlgorithmName(CollectiveAlgorithm::kDirect);
  direct_.Start(
      {.spec = &plan_->spec,
       .blocks = &plan_->blocks,
       .piece = number_,
       .signature = NumberedSignature(plan_->shape, number_),
       .input = Input(),
       .output = Output(),
       .fallible_reduce = running_->call.function ? &reduce_ : nullptr},
      [this](const absl::Status& status) { OnDone(status); }, [this] { Connect(); });
}

void GroupEnd::Connect() {
  // Memory that cannot be lent goes round a ring, as MakeChunkSchedule has it.
  const CollectiveAlgorithm algorithm = plan_->spec.algorithm;
  last_algorithm_ = CollectiveAlgorithmName(
      algorithm == CollectiveAlgorithm::kDirect ? CollectiveAlgorithm::kRing : algorithm);
  if (!plan_->schedule.has_value()) {
    plan_->schedule = MakeChunkSchedule(plan_->spec, plan_->blocks);
  }
  links_missing_ = 1;
  const auto one_less = [this] {
    if (--links_missing_ == 0) Run();
  };
  const auto connect = [&](int rank) {
    ++links_missing_;
    WithLink(rank, one_less);
  };
  for (const ReceiveHop& hop : plan_->schedule->receives) connect(hop.from);
  for (const SendHop& hop : plan_->schedule->sends) connect(hop.to);
  one_less();
}

void GroupEnd::Run() {
  if (const absl::Status made = MakeLanes(); !made.ok()) return options_.fail(made);
  machine_.Start({.schedule = &*plan_->schedule,
                  .piece = number_,
                  .signature = NumberedSignature(plan_->shape, number_),
                  .input = Input(),
                  .output = Output(),
                  .staging = staging_.data(),
                  .element_size = plan_->spec.element_size,
                  .reduce = plan_->spec.reduce,
                  .fallible_reduce = running_->call.function ? &reduce_ : nullptr},
                 [this](const absl::Status& status) { OnDone(status); });
}

const std::byte* GroupEnd::Input() const {
  const GroupCall& call = running_->call;
  return IsJoined(call) ? joined_.input() : static_cast<const std::byte*>(call.input);
}

std::byte* GroupEnd::Output() const {
  const GroupCall& call = running_->call;
  return IsJoined(call) ? joined_.output() : static_cast<std::byte*>(call.output);
}

absl::Status GroupEnd::Reduce(void* dst, const void* a, const void* b, int64_t n) const {
  const GroupCall& call = running_->call;
  try {
    call.function->combine(dst, a, b, n);
    return absl::OkStatus();
  } catch (...) {
    return ThrownError(
        absl::StrFormat("%s: call %d: the function of %s", name(), number_, Describe(call)));
  }
}

absl::Status GroupEnd::MakeLanes() {
  if (plan_->schedule->staging_bytes > staging_bytes_) {
    BRAID_ASSIGN_OR_RETURN(staging_, options_.allocate(plan_->schedule->staging_bytes));
    staging_bytes_ = plan_->schedule->staging_bytes;
  }
  constexpr int64_t kLandingBytes = kLaneSlots * kLaneSlotBytes;
  for (const ReceiveHop& hop : plan_->schedule->receives) {
    if (machine_.HasReceiveLane(hop.from)) continue;
    Landing landing;
    BRAID_ASSIGN_OR_RETURN(landing.memory, options_.allocate(kLandingBytes));
    landing.link = options_.peers->LinkTo(identity_.nodes[hop.from]);
    BRAID_ASSIGN_OR_RETURN(
        landing.key, landing.link->Expose(std::span(landing.memory.data(), size_t{kLandingBytes})));
    machine_.AddReceiveLane(hop.from, landing.link, kLaneSlots);
    landing.link->Send(EncodedCollectiveFrame({.type = CollectiveFrame::Type::kKey,
                                               .channel = Channel::kGroup,
                                               .collective = identity_.id,
                                               .from = static_cast<uint16_t>(identity_.my_rank),
                                               .to = static_cast<uint16_t>(hop.from),
                                               .slot = kLaneSlots,
                                               .bytes = kLaneSlotBytes,
                                               .key = landing.key,
                                               .reads_lent = landing.link->can_read_lent()})
                           .bytes());
    landings_.emplace(hop.from, std::move(landing));
  }
  for (const SendHop& hop : plan_->schedule->sends) {
    if (machine_.HasSendLane(hop.to)) continue;
    machine_.AddSendLane(hop.to, options_.peers->LinkTo(identity_.nodes[hop.to]), kLaneSlots,
                         kLaneSlotBytes);
    for (auto* const early : {&early_keys_, &early_offers_}) {
      const auto frame = early->extract(hop.to);
      if (!frame.empty()) machine_.inbox()->Push(EventOf(frame.mapped()));
    }
  }
  return absl::OkStatus();
}

void GroupEnd::OnDone(const absl::Status& status) {
  // Whatever went wrong here, the call ends with the session's cause, as on all ranks.
  if (!status.ok() && closed_.ok()) return options_.fail(status);
  std::byte* const output = Output();
  Pending done = std::move(*running_);
  running_.reset();
  const GroupCall& call = done.call;
  if (status.ok() && Computes(call.kind) && call.op == ReduceOp::kAverage) {
    const auto rank = static_cast<size_t>(identity_.my_rank);
    const int64_t mine = call.kind == CallKind::kReduceScatter ? call.counts[rank]
                         : call.kind == CallKind::kReduce && call.root != identity_.my_rank
                             ? 0
                             : call.counts[0];
    FindDivision(call.type)(output, ranks(), mine);
  }
  if (status.ok() && IsJoined(call)) joined_.Unpack(call, identity_.my_rank, ranks());
  // Who hears of the end finds nothing of the program's kept.
  made_.emplace_back(number_, Remembered(std::exchange(done.call, {})));
  if (made_.size() > kRememberedCalls) made_.pop_front();
  done.done(status.ok() ? status : closed_);
  if (!closed_.ok()) return FinishClose();
  StartNext();
}

absl::Status GroupEnd::HandleFrame(uint16_t peer, const GroupFrame& frame) {
  const auto handle = [&]() -> absl::Status {
    if (const auto* transfer = std::get_if<TransferFrame>(&frame)) {
      BRAID_RETURN_IF_ERROR(CheckSender(peer, transfer->from, transfer->to));
      return transfers_.HandleFrame(*transfer);
    }
    if (const auto* window = std::get_if<WindowFrame>(&frame)) {
      BRAID_RETURN_IF_ERROR(CheckSender(peer, window->from, window->to));
      return windows_.HandleFrame(*window);
    }
    const auto& collective = std::get<CollectiveFrame>(frame);
    BRAID_RETURN_IF_ERROR(CheckSender(peer, collective.from, collective.to));
    return HandleCollective(collective);
  };
  return Prefixed(absl::StrFormat("wrong frame of %s from node %d", name(), peer), handle());
}

absl::Status GroupEnd::CheckSender(uint16_t peer, uint16_t from, uint16_t to) const {
  if (from < identity_.nodes.size() && identity_.nodes[from] == peer && to == identity_.my_rank) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("from rank %d to rank %d; this is rank %d, of %d", from, to,
                      identity_.my_rank, identity_.nodes.size()));
}

absl::Status GroupEnd::HandleCollective(const CollectiveFrame& frame) {
  const auto wrong = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  switch (frame.type) {
    case CollectiveFrame::Type::kStand:
    case CollectiveFrame::Type::kSeen:
    case CollectiveFrame::Type::kRing:
      return direct_.stands().HandleFrame(frame);
    case CollectiveFrame::Type::kKey:
      if (frame.slot != kLaneSlots || frame.bytes != kLaneSlotBytes ||
          frame.key.bytes < static_cast<uint64_t>(kLaneSlots * kLaneSlotBytes)) {
        return wrong(absl::StrFormat("a key for %d slots of %d bytes, %d in all; must be %d of %d",
                                     frame.slot, frame.bytes, frame.key.bytes, kLaneSlots,
                                     kLaneSlotBytes));
      }
      if (machine_.HasSendLane(frame.from)) {
        machine_.inbox()->Push(EventOf(frame));
      } else if (!early_keys_.try_emplace(frame.from, frame).second) {
        return wrong(absl::StrFormat("the key of rank %d came twice", frame.from));
      }
      return absl::OkStatus();
    case CollectiveFrame::Type::kChunk:
    case CollectiveFrame::Type::kLent: {
      const auto landing = landings_.find(frame.from);
      if (landing == landings_.end() || frame.slot >= kLaneSlots || frame.bytes <= 0 ||
          frame.bytes > kLaneSlotBytes) {
        return wrong(absl::StrFormat("%d bytes in slot %d; there are %d slots of %d bytes",
                                     frame.bytes, frame.slot,
                                     landing == landings_.end() ? 0 : kLaneSlots, kLaneSlotBytes));
      }
      machine_.inbox()->Push(
          EventOf(frame, landing->second.memory.data() + frame.slot * kLaneSlotBytes));
      return absl::OkStatus();
    }
    case CollectiveFrame::Type::kAck:
      if (!machine_.HasSendLane(frame.from) || frame.slot >= kLaneSlots) {
        return wrong(absl::StrFormat("rank %d acknowledges slot %d, and nothing was sent there",
                                     frame.from, frame.slot));
      }
      machine_.inbox()->Push(EventOf(frame));
      return absl::OkStatus();
    case CollectiveFrame::Type::kOffer:
      if (machine_.HasSendLane(frame.from)) {
        machine_.inbox()->Push(EventOf(frame));
      } else if (!early_offers_.try_emplace(frame.from, frame).second) {
        return wrong(absl::StrFormat("rank %d offered places for pieces %d and %d at a time",
                                     frame.from, early_offers_.at(frame.from).piece, frame.piece));
      }
      return absl::OkStatus();
  }
  return wrong("no type");
}

void GroupEnd::Leave(std::function<void()> left) {
  has_left_ = true;
  // What is under way looks after itself.
  if (running_.has_value()) return left();
  machine_.WhenTaken([this, left = std::move(left)] { direct_.WhenTaken(left); });
  if (FirstNotTaken() >= 0) LookLater(kLookInterval);
}

int64_t GroupEnd::FirstNotTaken() {
  const int64_t number = machine_.FirstNotTaken();
  return number >= 0 ? number : direct_.FirstNotTaken();
}

void GroupEnd::Look() {
  look_.reset();
  if (!closed_.ok()) return;
  LookAtUnexpected();
  LookAtLeaving();
  LookAtCall();
  LookAtTransfers();
  LookAtWindows();
}

// In time for the next, if something is under way.
void GroupEnd::LookLater(Nanoseconds wait) {
  // One that was set before is due before the longest wait is over.
  if (look_.has_value() && wait >= kLookInterval) return;
  const Nanoseconds due = options_.reactor->Now() + wait;
  if (look_.has_value() && look_due_ <= due) return;
  if (look_.has_value()) options_.reactor->CancelTimer(*look_);
  look_due_ = due;
  look_ = options_.reactor->RunAfter(wait, [this] { Look(); });
}

// The master asks one thing at a time: again, until the session fails by it.
void GroupEnd::LookAtUnexpected() {
  if (!unexpected_.has_value()) return;
  Ask(unexpected_->first, unexpected_->second, 0);
  LookLater(kLookInterval);
}

void GroupEnd::LookAtLeaving() {
  if (!has_left_ || running_.has_value() || FirstNotTaken() < 0) return;
  Ask(FirstNotTaken(), "", 0);
  LookLater(kLookInterval);
}

void GroupEnd::LookAtCall() {
  if (!running_.has_value()) return;
  const Nanoseconds waited = options_.reactor->Now() - began_;
  const Nanoseconds timeout = running_->call.timeout;
  if (timeout > 0 && waited >= timeout) {
    Ask(number_, "", timeout, waited);
  } else if (waited >= kLookInterval && machine_.events() + direct_.events() == seen_) {
    Ask(number_, "", 0, waited);
  }
  seen_ = machine_.events() + direct_.events();
  LookLater(timeout > waited ? std::min(kLookInterval, timeout - waited) : kLookInterval);
}

void GroupEnd::LookAtTransfers() {
  const std::optional<Transfers::Waiting> waiting = transfers_.FindWaiting();
  if (!waiting.has_value()) return;
  if (waiting->overdue > 0 || waiting->quiet >= kLookInterval) {
    control::RollCall call = RollCallOf(number_);
    call.set_overdue(waiting->overdue);
    call.set_waited(waiting->quiet);
    call.set_transfer(Describe(*waiting->call));
    call.set_transfer_peer(static_cast<uint32_t>(waiting->call->peer));
    options_.ask(call);
  }
  LookLater(waiting->left > 0 ? std::min(kLookInterval, waiting->left) : kLookInterval);
}

void GroupEnd::LookAtWindows() {
  const WindowNeed need = windows_.FindNeed(kLookInterval);
  if (!need.failed.ok()) return options_.fail(need.failed);
  if (need.waiting != nullptr && (need.overdue > 0 || need.quiet >= kLookInterval)) {
    control::RollCall call = RollCallOf(number_);
    call.set_overdue(need.overdue);
    call.set_waited(need.quiet);
    call.set_transfer(Describe(*need.waiting));
    call.mutable_raised()->Assign(need.raised.begin(), need.raised.end());
    options_.ask(call);
  }
  if (!need.has_any) return;
  LookLater(need.left > 0 ? std::min(kLookInterval, need.left) : kLookInterval);
}

void GroupEnd::Ask(int64_t number, const std::string& evidence, Nanoseconds overdue,
                   Nanoseconds waited) {
  control::RollCall call = RollCallOf(number);
  call.set_waited(waited);
  call.set_evidence(evidence);
  call.set_overdue(overdue);
  options_.ask(call);
}

control::RollCall GroupEnd::RollCallOf(int64_t number) const {
  control::RollCall call;
  call.set_group(identity_.id);
  call.set_group_name(name());
  call.set_number(number);
  for (const uint16_t node : identity_.nodes) call.add_members(node);
  return call;
}

void GroupEnd::Answer(int64_t number, control::RollAnswer& answer) const {
  const auto tell_call = [&](int64_t made, const GroupCall& call) {
    Encode(call, identity_.id, made, *answer.mutable_last());
    if (made != number) return;
    Encode(call, identity_.id, made, *answer.mutable_call());
    EncodeBatch(call, *answer.mutable_call());
  };
  for (const auto& [made, call] : made_) {
    if (made == number || made == number_) tell_call(made, call);
  }
  if (running_.has_value()) tell_call(number_, running_->call);
  answer.set_calls(calls_);
  answer.set_collectives(number_ + 1 + static_cast<int64_t>(waiting_.size()));
  answer.set_blocked_number(-1);
  int64_t next = number_;
  const auto tell = [&](const Pending& pending) {
    if (!pending.call.is_blocking) return;
    answer.set_blocked_in(Describe(pending.call));
    answer.set_blocked_number(next);
  };
  if (running_.has_value()) tell(*running_);
  for (const Pending& pending : waiting_) {
    ++next;
    tell(pending);
  }
  transfers_.Answer(answer);
  windows_.Answer(answer);
}

void GroupEnd::Close(const absl::Status& reason, std::function<void()> closed) {
  CHECK(!reason.ok());
  if (closed_.ok()) closed_ = reason;
  machine_.WhenTaken(nullptr);
  on_closed_ = std::move(closed);
  for (Pending& pending : std::exchange(waiting_, {})) pending.done(closed_);
  local_->Fail(closed_);
  closing_ = 2;
  const auto one_less = [this] {
    --closing_;
    FinishClose();
  };
  transfers_.Close(closed_, one_less);
  windows_.Close(closed_, one_less);
  if (direct_.is_running()) return direct_.Abort(closed_);
  direct_.Abort(closed_);
  // One that waits for its links, which do not come any more, or has failed.
  if (running_.has_value() && !machine_.is_running()) return OnDone(closed_);
  if (!running_.has_value()) FinishClose();
}

void GroupEnd::FinishClose() {
  if (running_.has_value() || closing_ > 0 || !on_closed_) return;
  *is_alive_ = false;
  if (look_.has_value()) options_.reactor->CancelTimer(*look_);
  look_.reset();
  direct_.stands().Close();
  for (const auto& [from, landing] : landings_) landing.link->Withdraw(landing.key);
  landings_.clear();
  std::exchange(on_closed_, nullptr)();
}

}  // namespace braid::dist
