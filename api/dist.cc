#include "api/dist.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/dist_batch.h"
#include "api/dist_calls.h"
#include "api/dist_init.h"
#include "api/dist_store.h"
#include "api/membership.h"
#include "api/world_error.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"
#include "runtime/group/group_call.h"

namespace braid::dist {

ConstBuffer::ConstBuffer(const Array& array)
    : data(array.bytes()),
      count(array.num_elements()),
      type(ElementTypeOf(array.dtype())),
      element_size(static_cast<int64_t>(SizeOf(array.dtype()))) {}

Buffer::Buffer(Array& array)
    : data(array.mutable_bytes()),
      count(array.num_elements()),
      type(ElementTypeOf(array.dtype())),
      element_size(static_cast<int64_t>(SizeOf(array.dtype()))) {}

// ---- Work ---------------------------------------------------------------------------------------

struct Work::State {
  std::shared_ptr<Membership> membership;  // null: a call that was not made
  std::unique_ptr<Event> is_done;
  int missing = 0;      // calls that are not done; on the node's control thread
  absl::Status status;  // once it is

  // This thread does the node's work meanwhile, `first` at first, so that no other has to be woken;
  // if it cannot, it waits.
  absl::Status Await(absl::AnyInvocable<void()> first) {
    const auto is_set = [this] { return is_done->is_set(); };
    if (!first && is_set()) return absl::OkStatus();
    BRAID_RETURN_IF_ERROR(CheckThread(*membership));
    membership->node().reactor().RunUntil(std::move(first), is_set);
    return is_set() ? absl::OkStatus() : membership->environment().Await(*is_done, kForever);
  }

  // What the runtime calls on the node's thread would wait there for itself.
  static absl::Status CheckThread(const Membership& membership) {
    if (!membership.node().reactor().InThread()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "a call of a process group is made or waited for in a function that Braid calls for the "
        "world (that of a Reduction, InitOptions::on_failure); make it outside");
  }

  void OnDone(const absl::Status& done) {
    if (status.ok()) status = MarkWorldError(done);
    if (--missing == 0) is_done->Set();
  }
};

Work& Work::operator=(Work&& other) noexcept {
  if (this == &other) return *this;
  Wait().IgnoreError();
  state_ = std::move(other.state_);
  return *this;
}

Work::~Work() { Wait().IgnoreError(); }

absl::Status Work::Wait() {
  if (state_ == nullptr) return absl::OkStatus();
  if (state_->is_done != nullptr) BRAID_RETURN_IF_ERROR(state_->Await(nullptr));
  return state_->status;
}

bool Work::Test() const {
  return state_ == nullptr || state_->is_done == nullptr || state_->is_done->is_set();
}

absl::Status Work::status() const {
  return state_ != nullptr && Test() ? state_->status : absl::OkStatus();
}

// ---- World::Member ------------------------------------------------------------------------------

// What all groups of a world share.
class World::Member {
 public:
  Member(std::unique_ptr<Membership> membership, int rank, const LocalPlace& place,
         Nanoseconds timeout)
      : membership_(std::move(membership)),
        rank_(rank),
        place_(place),
        timeout_(timeout),
        store_(membership_, absl::Nanoseconds(timeout)) {}

  const std::shared_ptr<Membership>& membership() const { return membership_; }
  const LocalPlace& place() const { return place_; }
  Nanoseconds timeout() const { return timeout_; }
  Store& store() { return store_; }

  GroupIdentity Open(const std::vector<int>& ranks, bool is_world,
                     std::optional<CollectiveAlgorithm> algorithm = std::nullopt) {
    GroupIdentity identity{.algorithm = algorithm};
    for (const int rank : ranks) identity.nodes.push_back(static_cast<uint16_t>(rank));
    identity.my_rank = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
    std::string list = absl::StrJoin(ranks, ", ");
    if (algorithm.has_value()) {
      absl::StrAppend(&list, " by ", std::string(CollectiveAlgorithmName(*algorithm)));
    }
    // The same on all ranks that make it, without asking them: so many groups of this list were
    // made before.
    const int before = made_[list]++;
    identity.id = is_world ? 0 : StableHash(absl::StrFormat("%s; %d", list, before)) | 1;
    identity.name =
        is_world ? "the world" : absl::StrFormat("group %d of ranks %s", before + 1, list);
    membership_->node().reactor().Post(
        [node = &membership_->node(), identity] { node->groups().Open(identity); });
    return identity;
  }

 private:
  const std::shared_ptr<Membership> membership_;
  const int rank_;
  const LocalPlace place_;
  const Nanoseconds timeout_;
  Store store_;
  std::map<std::string, int> made_;  // how many groups of each list
};

// ---- Group --------------------------------------------------------------------------------------

class Group::Impl {
 public:
  Impl(std::shared_ptr<World::Member> member, GroupIdentity identity)
      : member_(std::move(member)), identity_(std::move(identity)) {}

  int rank() const { return identity_.my_rank; }
  int size() const { return static_cast<int>(identity_.nodes.size()); }

  bool IsDirect() const {
    return Ask<bool>([this](const Groups& groups) { return groups.IsDirect(identity_.id); });
  }
  std::string LastAlgorithm() const {
    return Ask<std::string>(
        [this](const Groups& groups) { return groups.LastAlgorithm(identity_.id); });
  }

  std::shared_ptr<Work::State> Start(GroupCalls calls, const CallOptions& options) {
    auto [state, begin] = Make(std::move(calls), options, /*is_blocking=*/false);
    if (begin) state->membership->node().reactor().Post(std::move(begin));
    return state;
  }

  absl::Status Run(GroupCalls calls, const CallOptions& options) {
    auto [state, begin] = Make(std::move(calls), options, /*is_blocking=*/true);
    if (begin) BRAID_RETURN_IF_ERROR(state->Await(std::move(begin)));
    return state->status;
  }

 private:
  // What the node's groups say, on their thread; T() if the process was killed meanwhile, in a
  // simulation.
  template <typename T, typename Question>
  T Ask(Question question) const {
    const Membership& membership = *member_->membership();
    if (membership.node().reactor().InThread()) return question(membership.node().groups());
    T answer = T();
    const std::unique_ptr<Event> is_known = membership.environment().MakeEvent();
    membership.node().reactor().Post([&] {
      answer = question(membership.node().groups());
      is_known->Set();
    });
    return membership.environment().Await(*is_known, kForever).ok() ? answer : T();
  }

  struct Made {
    std::shared_ptr<Work::State> state;
    absl::AnyInvocable<void()> begin;  // on the node's control thread; null: there is nothing
  };
  Made Make(GroupCalls calls, const CallOptions& options, bool is_blocking) {
    const auto state = std::make_shared<Work::State>();
    state->status = calls.status();
    if (calls.ok()) state->status = Work::State::CheckThread(*member_->membership());
    if (!state->status.ok() || calls->empty()) return {state, nullptr};
    for (GroupCall& call : *calls) {
      call.name = options.name;
      call.timeout = options.timeout > absl::ZeroDuration()
                         ? absl::ToInt64Nanoseconds(options.timeout)
                         : member_->timeout();
      call.is_blocking = is_blocking;
    }
    state->missing = static_cast<int>(calls->size());
    state->membership = member_->membership();
    state->is_done = state->membership->environment().MakeEvent();
    return {state, [id = identity_.id, calls = *std::move(calls), state]() mutable {
              for (GroupCall& call : calls) {
                state->membership->node().groups().Start(
                    id, std::move(call),
                    [state](const absl::Status& status) { state->OnDone(status); });
              }
            }};
  }

  const std::shared_ptr<World::Member> member_;
  const GroupIdentity identity_;
};

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Group::~Group() = default;

absl::Status Group::RunCalls(Impl& impl, GroupCalls calls, const CallOptions& options) {
  return impl.Run(std::move(calls), options);
}
Work Group::StartCalls(Impl& impl, GroupCalls calls, const CallOptions& options) {
  return Work(impl.Start(std::move(calls), options));
}

int Group::rank() const { return impl_->rank(); }
int Group::size() const { return impl_->size(); }
bool Group::IsDirect() const { return impl_->IsDirect(); }
std::string Group::LastAlgorithm() const { return impl_->LastAlgorithm(); }

absl::Status Group::AllReduce(Buffer data, const Reduction& op, const CallOptions& options,
                              SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).AllReduce(data, op), options);
}
Work Group::StartAllReduce(Buffer data, const Reduction& op, const CallOptions& options,
                           SourceLocation where) {
  return Work(impl_->Start(CallMaker(rank(), size(), where).AllReduce(data, op), options));
}

absl::Status Group::Reduce(Buffer data, int root, const Reduction& op, const CallOptions& options,
                           SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).Reduce(data, root, op), options);
}
Work Group::StartReduce(Buffer data, int root, const Reduction& op, const CallOptions& options,
                        SourceLocation where) {
  return Work(impl_->Start(CallMaker(rank(), size(), where).Reduce(data, root, op), options));
}

absl::Status Group::Broadcast(Buffer data, int root, const CallOptions& options,
                              SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).Broadcast(data, root), options);
}
Work Group::StartBroadcast(Buffer data, int root, const CallOptions& options,
                           SourceLocation where) {
  return Work(impl_->Start(CallMaker(rank(), size(), where).Broadcast(data, root), options));
}

absl::Status Group::AllGather(ConstBuffer input, Buffer output, const std::vector<int64_t>& counts,
                              const CallOptions& options, SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).AllGather(input, output, counts), options);
}
Work Group::StartAllGather(ConstBuffer input, Buffer output, const std::vector<int64_t>& counts,
                           const CallOptions& options, SourceLocation where) {
  return Work(
      impl_->Start(CallMaker(rank(), size(), where).AllGather(input, output, counts), options));
}

absl::Status Group::Gather(ConstBuffer input, Buffer output, int root,
                           const std::vector<int64_t>& counts, const CallOptions& options,
                           SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).Gather(input, output, root, counts), options);
}
Work Group::StartGather(ConstBuffer input, Buffer output, int root,
                        const std::vector<int64_t>& counts, const CallOptions& options,
                        SourceLocation where) {
  return Work(
      impl_->Start(CallMaker(rank(), size(), where).Gather(input, output, root, counts), options));
}

absl::Status Group::ReduceScatter(ConstBuffer input, Buffer output, const Reduction& op,
                                  const std::vector<int64_t>& counts, const CallOptions& options,
                                  SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).ReduceScatter(input, output, op, counts),
                    options);
}
Work Group::StartReduceScatter(ConstBuffer input, Buffer output, const Reduction& op,
                               const std::vector<int64_t>& counts, const CallOptions& options,
                               SourceLocation where) {
  return Work(impl_->Start(
      CallMaker(rank(), size(), where).ReduceScatter(input, output, op, counts), options));
}

absl::Status Group::Scatter(ConstBuffer input, Buffer output, int root,
                            const std::vector<int64_t>& counts, const CallOptions& options,
                            SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).Scatter(input, output, root, counts), options);
}
Work Group::StartScatter(ConstBuffer input, Buffer output, int root,
                         const std::vector<int64_t>& counts, const CallOptions& options,
                         SourceLocation where) {
  return Work(
      impl_->Start(CallMaker(rank(), size(), where).Scatter(input, output, root, counts), options));
}

absl::Status Group::AllToAll(ConstBuffer input, Buffer output, const std::vector<int64_t>& sends,
                             const std::vector<int64_t>& receives, const CallOptions& options,
                             SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).AllToAll(input, output, sends, receives),
                    options);
}
Work Group::StartAllToAll(ConstBuffer input, Buffer output, const std::vector<int64_t>& sends,
                          const std::vector<int64_t>& receives, const CallOptions& options,
                          SourceLocation where) {
  return Work(impl_->Start(
      CallMaker(rank(), size(), where).AllToAll(input, output, sends, receives), options));
}

absl::Status Group::Barrier(const CallOptions& options, SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).Barrier(), options);
}
Work Group::StartBarrier(const CallOptions& options, SourceLocation where) {
  return Work(impl_->Start(CallMaker(rank(), size(), where).Barrier(), options));
}

absl::Status Group::Send(ConstBuffer data, int to, int tag, const CallOptions& options,
                         SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).Send(data, to, tag), options);
}
Work Group::StartSend(ConstBuffer data, int to, int tag, const CallOptions& options,
                      SourceLocation where) {
  return Work(impl_->Start(CallMaker(rank(), size(), where).Send(data, to, tag), options));
}

absl::Status Group::Receive(Buffer data, int from, int tag, const CallOptions& options,
                            SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).Receive(data, from, tag), options);
}
Work Group::StartReceive(Buffer data, int from, int tag, const CallOptions& options,
                         SourceLocation where) {
  return Work(impl_->Start(CallMaker(rank(), size(), where).Receive(data, from, tag), options));
}

absl::Status Group::Exchange(const std::vector<Transfer>& transfers, const CallOptions& options,
                             SourceLocation where) {
  return impl_->Run(CallMaker(rank(), size(), where).Exchange(transfers), options);
}
Work Group::StartExchange(const std::vector<Transfer>& transfers, const CallOptions& options,
                          SourceLocation where) {
  return Work(impl_->Start(CallMaker(rank(), size(), where).Exchange(transfers), options));
}

absl::Status Group::Run(const Batch& batch, const CallOptions& options, SourceLocation where) {
  return impl_->Run(batch.CallsOf(rank(), size(), where), options);
}
Work Group::StartRun(const Batch& batch, const CallOptions& options, SourceLocation where) {
  return Work(impl_->Start(batch.CallsOf(rank(), size(), where), options));
}

// ---- World --------------------------------------------------------------------------------------

World::World(std::unique_ptr<Impl> impl, std::shared_ptr<Member> member)
    : Group(std::move(impl)), member_(std::move(member)) {}

World::~World() { Close().IgnoreError(); }

absl::StatusOr<std::unique_ptr<World>> World::Init(const InitOptions& options) {
  BRAID_ASSIGN_OR_RETURN(const std::optional<NetworkOptions> network, FindWorld(options));
  return Join(network.has_value() ? &*network : nullptr, options);
}

absl::StatusOr<std::unique_ptr<World>> World::Join(const NetworkOptions* network,
                                                   const InitOptions& options) {
  BRAID_ASSIGN_OR_RETURN(const LocalPlace place, FindLocalPlace(options.environment));
  auto joined =
      Membership::Join(network, {.stall_timeout = absl::ToInt64Nanoseconds(options.stall_timeout),
                                 .event_dump = options.event_dump,
                                 .interruption = options.interruption,
                                 .on_failure = options.on_failure});
  if (!joined.ok()) return MarkWorldError(joined.status());
  std::unique_ptr<Membership> membership = *std::move(joined);
  const int rank = network != nullptr ? network->cluster.rank : 0;
  const int size = network != nullptr ? static_cast<int>(network->cluster.nodes.size()) : 1;
  const auto member = std::make_shared<Member>(std::move(membership), rank, place,
                                               absl::ToInt64Nanoseconds(options.timeout));
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  auto impl = std::make_unique<Impl>(member, member->Open(all, /*is_world=*/true));
  return std::unique_ptr<World>(new World(std::move(impl), member));
}

namespace {

// None if there is no name.
absl::StatusOr<std::optional<CollectiveAlgorithm>> AlgorithmNamed(const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const CollectiveAlgorithm algorithm : kGroupAlgorithms) {
    names.emplace_back(CollectiveAlgorithmName(algorithm));
    if (names.back() == name) return algorithm;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("'%s' is no algorithm of process groups; one of these was expected: %s", name,
                      absl::StrJoin(names, ", ")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Group>> World::NewGroup(const std::vector<int>& ranks,
                                                       const GroupOptions& options) {
  const std::string list = absl::StrJoin(ranks, ", ");
  std::set<int> seen;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "NewGroup({%s}): %d is no rank of the world, which has 0 to %d", list, rank, size() - 1));
    }
    if (!seen.insert(rank).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("NewGroup({%s}): rank %d is in it twice", list, rank));
    }
  }
  if (!seen.contains(rank())) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "NewGroup({%s}): this is rank %d, which is not in it; only its ranks make a group", list,
        rank()));
  }
  BRAID_ASSIGN_OR_RETURN(const auto algorithm, AlgorithmNamed(options.algorithm));
  auto impl = std::make_unique<Impl>(member_, member_->Open(ranks, /*is_world=*/false, algorithm));
  return std::unique_ptr<Group>(new Group(std::move(impl)));
}

absl::StatusOr<Memory> World::Allocate(int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("Allocate of %d bytes: 0 or more were expected", bytes));
  }
  BRAID_ASSIGN_OR_RETURN(Memory memory, membership()->node().AllocateForPeers(bytes));
  std::memset(memory.data(), 0, memory.size());
  return memory;
}

int World::local_rank() const { return member_->place().rank; }
int World::local_size() const { return member_->place().size; }

Store& World::store() const { return member_->store(); }

const std::shared_ptr<Membership>& World::membership() const { return member_->membership(); }

absl::Status World::Close(const absl::Status& cause) {
  const absl::Status end = member_->membership()->Leave(cause);
  // What this rank gave as the cause is its own.
  return cause.ok() || IsWorldError(cause) ? MarkWorldError(end) : end;
}

}  // namespace braid::dist
