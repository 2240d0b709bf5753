#include "api/dist.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/dist_init.h"
#include "api/membership.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"
#include "runtime/group/group_call.h"

namespace braid::dist {
namespace {

constexpr Nanoseconds kNoLimit = std::numeric_limits<Nanoseconds>::max() / 4;

int64_t SumOf(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

// ---- Work ---------------------------------------------------------------------------------------

struct Work::State {
  std::shared_ptr<Membership> membership;  // null: a call that was not made
  std::unique_ptr<Event> is_done;
  absl::Status status;  // once it is
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
  if (state_->is_done != nullptr && !state_->is_done->is_set()) {
    BRAID_RETURN_IF_ERROR(state_->membership->environment().Await(*state_->is_done, kNoLimit));
  }
  return state_->status;
}

bool Work::Test() const {
  return state_ == nullptr || state_->is_done == nullptr || state_->is_done->is_set();
}

// ---- World::Member ------------------------------------------------------------------------------

// What all groups of a world share.
class World::Member {
 public:
  Member(std::unique_ptr<Membership> membership, int rank, Nanoseconds timeout)
      : membership_(std::move(membership)), rank_(rank), timeout_(timeout) {}

  const std::shared_ptr<Membership>& membership() const { return membership_; }
  Nanoseconds timeout() const { return timeout_; }

  GroupIdentity Open(const std::vector<int>& ranks, bool is_world) {
    GroupIdentity identity;
    for (const int rank : ranks) identity.nodes.push_back(static_cast<uint16_t>(rank));
    identity.my_rank = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
    const std::string list = absl::StrJoin(ranks, ", ");
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
  const Nanoseconds timeout_;
  std::map<std::string, int> made_;  // how many groups of each list
};

// ---- Group --------------------------------------------------------------------------------------

class Group::Impl {
 public:
  Impl(std::shared_ptr<World::Member> member, GroupIdentity identity)
      : member_(std::move(member)), identity_(std::move(identity)) {}

  int rank() const { return identity_.my_rank; }
  int size() const { return static_cast<int>(identity_.nodes.size()); }

  std::shared_ptr<Work::State> Start(GroupCall call, const CallOptions& options) {
    const auto state = std::make_shared<Work::State>();
    state->status = CheckCall(call, size());
    if (!state->status.ok()) return state;
    call.name = options.name;
    call.timeout = options.timeout > absl::ZeroDuration()
                       ? absl::ToInt64Nanoseconds(options.timeout)
                       : member_->timeout();
    state->membership = member_->membership();
    state->is_done = state->membership->environment().MakeEvent();
    Node& node = state->membership->node();
    node.reactor().Post([&node, id = identity_.id, call = std::move(call), state]() mutable {
      node.groups().Start(id, std::move(call), [state](const absl::Status& status) {
        state->status = status;
        state->is_done->Set();
      });
    });
    return state;
  }

  static std::shared_ptr<Work::State> Refused(absl::Status status) {
    const auto state = std::make_shared<Work::State>();
    state->status = std::move(status);
    return state;
  }

 private:
  const std::shared_ptr<World::Member> member_;
  const GroupIdentity identity_;
};

namespace {

// Of a ConstBuffer's or a Buffer's elements.
template <typename B>
GroupCall CallOf(CallKind kind, const B& of, SourceLocation where) {
  GroupCall call;
  call.kind = kind;
  call.type = of.type;
  call.element_size = of.element_size;
  call.where = where;
  return call;
}

// How many elements there are must be how many the counts say.
absl::Status CheckBuffer(const GroupCall& call, const char* what, int64_t count, int64_t expected) {
  if (count == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s (%s): the %s has %d elements; the counts say %d", NameOf(call.kind),
                      call.where.ToString(), what, count, expected));
}

absl::Status CheckTypes(const GroupCall& call, const ConstBuffer& input, const Buffer& output) {
  if (output.count == 0 || (input.type == output.type && input.element_size == output.element_size))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s (%s): the input is of %s (%d bytes each) and the output of %s (%d); both "
                      "must be the same",
                      NameOf(call.kind), call.where.ToString(), NameOf(input.type),
                      input.element_size, NameOf(output.type), output.element_size));
}

absl::Status CheckCounts(const GroupCall& call, const std::vector<int64_t>& counts, int ranks) {
  const int64_t most = std::numeric_limits<int64_t>::max() / ranks;  // so that they add up
  if (static_cast<int>(counts.size()) == ranks &&
      std::ranges::all_of(counts, [most](int64_t n) { return n >= 0 && n <= most; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s (%s): the counts are {%s}; one from 0 on for each of %d ranks was expected",
      NameOf(call.kind), call.where.ToString(), absl::StrJoin(counts, ", "), ranks));
}

// `whole` elements in equal blocks.
absl::StatusOr<std::vector<int64_t>> EqualCounts(const GroupCall& call, const char* what,
                                                 int64_t whole, int ranks) {
  if (whole % ranks == 0) return std::vector<int64_t>(ranks, whole / ranks);
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s (%s): the %s has %d elements, which are no equal blocks for %d ranks; give counts",
      NameOf(call.kind), call.where.ToString(), what, whole, ranks));
}

absl::Status CheckApart(const GroupCall& call, const ConstBuffer& input, const Buffer& output) {
  const auto* in = static_cast<const std::byte*>(input.data);
  const auto* out = static_cast<const std::byte*>(output.data);
  const std::less_equal<const std::byte*> before;
  if (before(in + input.count * input.element_size, out) ||
      before(out + output.count * output.element_size, in) || input.count == 0 ||
      output.count == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s (%s): input and output overlap; give it memory of its own for one of them",
      NameOf(call.kind), call.where.ToString()));
}

absl::StatusOr<GroupCall> BlocksCall(CallKind kind, const ConstBuffer& input, const Buffer& output,
                                     const std::vector<int64_t>& counts, int rank, int ranks,
                                     SourceLocation where) {
  GroupCall call = CallOf(kind, input, where);
  const bool gathers = kind == CallKind::kAllGather;
  BRAID_RETURN_IF_ERROR(CheckTypes(call, input, output));
  BRAID_RETURN_IF_ERROR(CheckApart(call, input, output));
  call.counts = counts;
  if (counts.empty()) {
    BRAID_ASSIGN_OR_RETURN(call.counts, EqualCounts(call, gathers ? "output" : "input",
                                                    gathers ? output.count : input.count, ranks));
  }
  BRAID_RETURN_IF_ERROR(CheckCounts(call, call.counts, ranks));
  const int64_t own = call.counts[rank], all = SumOf(call.counts);
  BRAID_RETURN_IF_ERROR(CheckBuffer(call, "input", input.count, gathers ? own : all));
  BRAID_RETURN_IF_ERROR(CheckBuffer(call, "output", output.count, gathers ? all : own));
  call.input = input.data;
  call.output = output.data;
  return call;
}

// Gather and scatter: `part` is this rank's block, `whole` the root's.
absl::StatusOr<GroupCall> RootCall(CallKind kind, const ConstBuffer& input, const Buffer& output,
                                   int root, const std::vector<int64_t>& counts, int rank,
                                   int ranks, SourceLocation where) {
  // Whose block every rank has says of what type all are.
  const bool gathers = kind == CallKind::kGather;
  GroupCall call = gathers ? CallOf(kind, input, where) : CallOf(kind, output, where);
  call.root = root;
  BRAID_RETURN_IF_ERROR(CheckCall(call, ranks));
  if (gathers || rank == root) {
    BRAID_RETURN_IF_ERROR(CheckTypes(call, input, output));
  }
  BRAID_RETURN_IF_ERROR(CheckApart(call, input, output));
  const int64_t part = gathers ? input.count : output.count;
  const int64_t whole = gathers ? output.count : input.count;
  std::vector<int64_t> blocks(ranks, 0);
  if (rank == root) {
    blocks = counts;
    if (counts.empty()) {
      BRAID_ASSIGN_OR_RETURN(blocks, EqualCounts(call, gathers ? "output" : "input", whole, ranks));
    }
    BRAID_RETURN_IF_ERROR(CheckCounts(call, blocks, ranks));
    BRAID_RETURN_IF_ERROR(CheckBuffer(call, gathers ? "output" : "input", whole, SumOf(blocks)));
    BRAID_RETURN_IF_ERROR(CheckBuffer(call, gathers ? "input" : "output", part, blocks[rank]));
  }
  std::vector<int64_t> own(ranks, 0);
  own[root] = part;
  call.counts = gathers ? own : blocks;
  call.receives = gathers ? blocks : own;
  call.input = input.data;
  call.output = output.data;
  return call;
}

GroupCall InPlace(CallKind kind, const Buffer& data, SourceLocation where) {
  GroupCall call = CallOf(kind, data, where);
  call.counts = {data.count};
  call.input = data.data;
  call.output = data.data;
  return call;
}

}  // namespace

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Group::~Group() = default;

int Group::rank() const { return impl_->rank(); }
int Group::size() const { return impl_->size(); }

Work Group::StartAllReduce(Buffer data, ReduceOp op, const CallOptions& options,
                           SourceLocation where) {
  GroupCall call = InPlace(CallKind::kAllReduce, data, where);
  call.op = op;
  return Work(impl_->Start(std::move(call), options));
}

Work Group::StartReduce(Buffer data, int root, ReduceOp op, const CallOptions& options,
                        SourceLocation where) {
  GroupCall call = InPlace(CallKind::kReduce, data, where);
  call.op = op;
  call.root = root;
  return Work(impl_->Start(std::move(call), options));
}

Work Group::StartBroadcast(Buffer data, int root, const CallOptions& options,
                           SourceLocation where) {
  GroupCall call = InPlace(CallKind::kBroadcast, data, where);
  call.root = root;
  return Work(impl_->Start(std::move(call), options));
}

Work Group::StartAllGather(ConstBuffer input, Buffer output, const std::vector<int64_t>& counts,
                           const CallOptions& options, SourceLocation where) {
  auto call = BlocksCall(CallKind::kAllGather, input, output, counts, rank(), size(), where);
  if (!call.ok()) return Work(Impl::Refused(call.status()));
  return Work(impl_->Start(*std::move(call), options));
}

Work Group::StartGather(ConstBuffer input, Buffer output, int root,
                        const std::vector<int64_t>& counts, const CallOptions& options,
                        SourceLocation where) {
  auto call = RootCall(CallKind::kGather, input, output, root, counts, rank(), size(), where);
  if (!call.ok()) return Work(Impl::Refused(call.status()));
  return Work(impl_->Start(*std::move(call), options));
}

Work Group::StartReduceScatter(ConstBuffer input, Buffer output, ReduceOp op,
                               const std::vector<int64_t>& counts, const CallOptions& options,
                               SourceLocation where) {
  auto call = BlocksCall(CallKind::kReduceScatter, input, output, counts, rank(), size(), where);
  if (!call.ok()) return Work(Impl::Refused(call.status()));
  call->op = op;
  return Work(impl_->Start(*std::move(call), options));
}

Work Group::StartScatter(ConstBuffer input, Buffer output, int root,
                         const std::vector<int64_t>& counts, const CallOptions& options,
                         SourceLocation where) {
  auto call = RootCall(CallKind::kScatter, input, output, root, counts, rank(), size(), where);
  if (!call.ok()) return Work(Impl::Refused(call.status()));
  return Work(impl_->Start(*std::move(call), options));
}

Work Group::StartAllToAll(ConstBuffer input, Buffer output, const std::vector<int64_t>& sends,
                          const std::vector<int64_t>& receives, const CallOptions& options,
                          SourceLocation where) {
  const auto make = [&]() -> absl::StatusOr<GroupCall> {
    GroupCall call = CallOf(CallKind::kAllToAll, input, where);
    BRAID_RETURN_IF_ERROR(CheckTypes(call, input, output));
    BRAID_RETURN_IF_ERROR(CheckApart(call, input, output));
    call.counts = sends;
    call.receives = receives;
    if (sends.empty()) {
      BRAID_ASSIGN_OR_RETURN(call.counts, EqualCounts(call, "input", input.count, size()));
    }
    if (receives.empty()) {
      BRAID_ASSIGN_OR_RETURN(call.receives, EqualCounts(call, "output", output.count, size()));
    }
    for (const std::vector<int64_t>* counts : {&call.counts, &call.receives}) {
      BRAID_RETURN_IF_ERROR(CheckCounts(call, *counts, size()));
    }
    BRAID_RETURN_IF_ERROR(CheckBuffer(call, "input", input.count, SumOf(call.counts)));
    BRAID_RETURN_IF_ERROR(CheckBuffer(call, "output", output.count, SumOf(call.receives)));
    if (call.counts[rank()] != call.receives[rank()]) {
      return absl::InvalidArgumentError(
          absl::StrFormat("all_to_all (%s): rank %d sends itself %d elements and receives %d",
                          where.ToString(), rank(), call.counts[rank()], call.receives[rank()]));
    }
    call.input = input.data;
    call.output = output.data;
    return call;
  };
  auto call = make();
  if (!call.ok()) return Work(Impl::Refused(call.status()));
  return Work(impl_->Start(*std::move(call), options));
}

Work Group::StartBarrier(const CallOptions& options, SourceLocation where) {
  GroupCall call;
  call.kind = CallKind::kBarrier;
  call.type = ElementType::kBytes;
  call.element_size = 1;
  call.where = where;
  // A byte of each rank.
  const auto bytes = std::make_shared<std::vector<std::byte>>(size() + 1);
  call.input = bytes->data() + size();
  call.output = bytes->data();
  call.keeps = bytes;
  return Work(impl_->Start(std::move(call), options));
}

absl::Status Group::AllReduce(Buffer data, ReduceOp op, const CallOptions& options,
                              SourceLocation where) {
  return StartAllReduce(data, op, options, where).Wait();
}
absl::Status Group::Reduce(Buffer data, int root, ReduceOp op, const CallOptions& options,
                           SourceLocation where) {
  return StartReduce(data, root, op, options, where).Wait();
}
absl::Status Group::Broadcast(Buffer data, int root, const CallOptions& options,
                              SourceLocation where) {
  return StartBroadcast(data, root, options, where).Wait();
}
absl::Status Group::AllGather(ConstBuffer input, Buffer output, const std::vector<int64_t>& counts,
                              const CallOptions& options, SourceLocation where) {
  return StartAllGather(input, output, counts, options, where).Wait();
}
absl::Status Group::Gather(ConstBuffer input, Buffer output, int root,
                           const std::vector<int64_t>& counts, const CallOptions& options,
                           SourceLocation where) {
  return StartGather(input, output, root, counts, options, where).Wait();
}
absl::Status Group::ReduceScatter(ConstBuffer input, Buffer output, ReduceOp op,
                                  const std::vector<int64_t>& counts, const CallOptions& options,
                                  SourceLocation where) {
  return StartReduceScatter(input, output, op, counts, options, where).Wait();
}
absl::Status Group::Scatter(ConstBuffer input, Buffer output, int root,
                            const std::vector<int64_t>& counts, const CallOptions& options,
                            SourceLocation where) {
  return StartScatter(input, output, root, counts, options, where).Wait();
}
absl::Status Group::AllToAll(ConstBuffer input, Buffer output, const std::vector<int64_t>& sends,
                             const std::vector<int64_t>& receives, const CallOptions& options,
                             SourceLocation where) {
  return StartAllToAll(input, output, sends, receives, options, where).Wait();
}
absl::Status Group::Barrier(const CallOptions& options, SourceLocation where) {
  return StartBarrier(options, where).Wait();
}

// ---- World --------------------------------------------------------------------------------------

World::World(std::unique_ptr<Impl> impl, std::shared_ptr<Member> member)
    : Group(std::move(impl)), member_(std::move(member)) {}

World::~World() { Close().IgnoreError(); }

absl::StatusOr<std::unique_ptr<World>> World::Init(const InitOptions& options) {
  BRAID_ASSIGN_OR_RETURN(const std::optional<NetworkOptions> network, FindWorld(options));
  BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Membership> membership,
                         Membership::Join(network.has_value() ? &*network : nullptr));
  const int rank = network.has_value() ? network->cluster.rank : 0;
  const int size = network.has_value() ? static_cast<int>(network->cluster.nodes.size()) : 1;
  const auto member = std::make_shared<Member>(std::move(membership), rank,
                                               absl::ToInt64Nanoseconds(options.timeout));
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  auto impl = std::make_unique<Impl>(member, member->Open(all, /*is_world=*/true));
  return std::unique_ptr<World>(new World(std::move(impl), member));
}

absl::StatusOr<std::unique_ptr<Group>> World::NewGroup(const std::vector<int>& ranks) {
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
  auto impl = std::make_unique<Impl>(member_, member_->Open(ranks, /*is_world=*/false));
  return std::unique_ptr<Group>(new Group(std::move(impl)));
}

absl::Status World::Close(const absl::Status& cause) { return member_->membership()->Leave(cause); }

}  // namespace braid::dist
