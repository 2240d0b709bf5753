#include "api/world_seat.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "api/membership.h"
#include "api/network.h"
#include "runtime/base/philox.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/node.h"

namespace braid {
namespace {

// The first rank that has another value than rank 0; 0: none has.
template <class T>
size_t FirstOther(const std::vector<T>& values) {
  const auto other =
      std::ranges::find_if(values, [&](const T& value) { return value != values[0]; });
  return other == values.end() ? 0 : static_cast<size_t>(other - values.begin());
}

// "operator 3 is 'a' on rank 0 and 'b' on rank 1", of texts whose lines are operators.
std::string FirstDifference(std::string_view noun, const std::string& first,
                            const std::string& second, size_t rank) {
  const std::vector<std::string> a = absl::StrSplit(first, '\n');
  const std::vector<std::string> b = absl::StrSplit(second, '\n');
  size_t line = 0;
  while (line < a.size() && line < b.size() && a[line] == b[line]) ++line;
  const auto at = [line](const std::vector<std::string>& lines) {
    return line < lines.size() ? absl::StrFormat("'%s'", lines[line]) : std::string("nothing");
  };
  return absl::StrFormat("%s %d is %s on rank 0 and %s on rank %d", std::string(noun), line, at(a),
                         at(b), rank);
}

}  // namespace

// Shared with the node, which may come to it when nobody waits any more.
struct WorldSeat::Run {
  std::unique_ptr<Event> is_done;
  absl::Status status;
};

WorldSeat::WorldSeat(std::shared_ptr<Membership> membership, std::unique_ptr<dist::Group> group)
    : membership_(std::move(membership)), group_(std::move(group)) {}

WorldSeat::~WorldSeat() = default;

WorldSeat::Words WorldSeat::WordsOf(const absl::Status& status) {
  return {static_cast<int64_t>(status.code()), std::string(status.message())};
}

absl::Status WorldSeat::StatusOf(const Words& words) {
  return OfAllNodes(absl::Status(static_cast<absl::StatusCode>(words.first), words.second));
}

absl::StatusOr<std::unique_ptr<WorldSeat>> WorldSeat::Take(dist::World& world) {
  if (!world.membership()->Claim()) {
    return absl::FailedPreconditionError(
        "a session was started on this world before, and its nodes keep that session's variables; "
        "use that one, or another world");
  }
  std::vector<int> all(world.size());
  std::iota(all.begin(), all.end(), 0);
  BRAID_ASSIGN_OR_RETURN(std::unique_ptr<dist::Group> group, world.NewGroup(all));
  return std::unique_ptr<WorldSeat>(new WorldSeat(world.membership(), std::move(group)));
}

int WorldSeat::rank() const { return group_->rank(); }
int WorldSeat::size() const { return group_->size(); }
Environment& WorldSeat::environment() const { return membership_->environment(); }
Node& WorldSeat::node() const { return membership_->node(); }
KernelRegistry& WorldSeat::kernels() const { return membership_->kernels(); }
Coordinator* WorldSeat::coordinator() const { return membership_->coordinator(); }

absl::StatusOr<std::vector<WorldSeat::Machine>> WorldSeat::ExchangeMachines(const Machine& own) {
  using Sent = std::pair<std::string, std::pair<std::pair<uint64_t, uint64_t>, int64_t>>;
  const Sent sent = {own.host, {{own.memory_bytes, own.process_bytes}, own.channel_block}};
  BRAID_ASSIGN_OR_RETURN(const std::vector<Sent> all, dist::AllGatherObject(*group_, sent));
  std::vector<Machine> machines;
  for (const auto& [host, rest] : all) {
    const auto& [bytes, channel_block] = rest;
    machines.push_back({host, bytes.first, bytes.second, channel_block});
  }
  return machines;
}

absl::Status WorldSeat::Agree(const Call& call, const absl::Status& own) {
  return OfAllNodes(Compare(call, own));
}

absl::Status WorldSeat::Compare(const Call& call, const absl::Status& own) {
  using Sent = std::pair<Words, std::pair<std::string, uint64_t>>;
  const Sent sent = {WordsOf(own), {call.what, StableHash(call.text)}};
  BRAID_ASSIGN_OR_RETURN(const std::vector<Sent> all, dist::AllGatherObject(*group_, sent));
  // What is wrong on all ranks needs no rank.
  if (std::ranges::all_of(all, [&](const Sent& one) { return one.first == sent.first; })) {
    BRAID_RETURN_IF_ERROR(own);
  }
  std::vector<std::string> calls;
  std::vector<uint64_t> hashes;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    BRAID_RETURN_IF_ERROR(Prefixed(absl::StrFormat("rank %d", rank), StatusOf(all[rank].first)));
    calls.push_back(all[rank].second.first);
    hashes.push_back(all[rank].second.second);
  }
  if (const size_t other = FirstOther(calls); other != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "all ranks make the same calls of a session, and rank 0 makes another one than rank %d: "
        "%s; %s",
        other, calls[0], calls[other]));
  }
  const size_t other = FirstOther(hashes);
  if (other == 0) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                         dist::AllGatherObject(*group_, call.text));
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: all ranks %s the same, and %s", call.what, std::string(call.verb),
                      FirstDifference(call.line, texts[0], texts[other], other)));
}

absl::Status WorldSeat::Meet() { return group_->Barrier(); }

void WorldSeat::ExpectRun(JobId job) {
  run_ = std::make_shared<Run>();
  run_->is_done = environment().MakeEvent();
  node().AwaitRun(job, [run = run_](const absl::Status& status) {
    run->status = status;
    run->is_done->Set();
  });
}

absl::Status WorldSeat::AwaitRun() {
  BRAID_RETURN_IF_ERROR(environment().Await(*run_->is_done, kForever));
  return run_->status;
}

}  // namespace braid
