#include "runtime/group/group_call.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/collective/collective_algorithm.h"
#include "glog/logging.h"
#include "runtime/base/collective_table.h"
#include "runtime/base/members_by_host.h"
#include "runtime/base/philox.h"
#include "runtime/control.pb.h"
#include "runtime/group/group_batch.h"

namespace braid::dist {
namespace {

// Of an element that a program's function reduces: what travels at a time.
constexpr int64_t kMostReducedBytes = CollectiveMethod{}.chunk_bytes;
// Of a batch, in an answer to a roll call.
constexpr int kMostParts = 1024;

bool HasNoCount(CallKind kind) {
  return kind == CallKind::kWaitSignal || kind == CallKind::kFence ||
         kind == CallKind::kCloseWindow || kind == CallKind::kDropWindow;
}

// "window 2, 'weights'".
std::string WindowText(const GroupCall& call) {
  const std::string& name = call.window->name;
  return absl::StrFormat("window %d%s", call.window->number,
                         name.empty() ? "" : absl::StrFormat(", '%s'", name));
}

std::string SignalText(const GroupCall& call) {
  if (call.kind != CallKind::kWaitSignal) return "";
  return absl::StrFormat(" for %d of signal %d", call.at_least, call.signal);
}

// "all_reduce of 4 f32": what is said of it without its line.
std::string Subject(const GroupCall& call) {
  if (call.kind == CallKind::kBarrier) return "barrier";
  if (HasNoCount(call.kind)) {
    return absl::StrFormat("%s%s of %s", NameOf(call.kind), SignalText(call), WindowText(call));
  }
  const std::string type = call.type == ElementType::kBytes
                               ? absl::StrFormat("x %d bytes", call.element_size)
                               : std::string(NameOf(call.type));
  const std::vector<int64_t>& counts =
      call.kind == CallKind::kScatter ? call.receives : call.counts;
  const bool is_even = std::ranges::all_of(counts, [&](int64_t n) { return n == counts[0]; });
  std::string amount;
  if (call.kind == CallKind::kGather || call.kind == CallKind::kScatter) {
    // Of one rank's part: the root's own says it, too.
    amount = absl::StrFormat("%d", counts[call.root]);
  } else {
    amount = is_even ? absl::StrFormat("%d", counts.empty() ? 0 : counts[0])
                     : absl::StrFormat("{%s}", absl::StrJoin(counts, ", "));
  }
  std::string text = absl::StrFormat("%s of %s %s", NameOf(call.kind), amount, type);
  if (IsTransfer(call.kind)) {
    text += absl::StrFormat(" %s rank %d, tag %d", call.kind == CallKind::kSend ? "to" : "from",
                            call.peer, call.tag);
  }
  if (call.kind == CallKind::kPut || call.kind == CallKind::kGet) {
    text += absl::StrFormat(" %s rank %d, at %d of %s", call.kind == CallKind::kPut ? "to" : "from",
                            call.peer, call.offset, WindowText(call));
    if (call.signal >= 0) text += absl::StrFormat(", signal %d", call.signal);
  }
  if (Computes(call.kind)) {
    text += call.function ? absl::StrFormat(", by '%s'", call.function->name)
                          : absl::StrFormat(", %s", NameOf(call.op));
  }
  if (HasRoot(call.kind)) text += absl::StrFormat(", root %d", call.root);
  if (!call.name.empty()) text += absl::StrFormat(", '%s'", call.name);
  return text;
}

// What is computed must be defined for the elements.
absl::Status CheckReduction(const GroupCall& call) {
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s (%s): %s", NameOf(call.kind), call.where.ToString(), what));
  };
  if (call.function == nullptr) {
    if (FindReduction(call.type, call.op) != nullptr) return absl::OkStatus();
    return wrong(
        absl::StrFormat("%s of %s is not defined%s", NameOf(call.op), NameOf(call.type),
                        call.type == ElementType::kBytes ? "; give a function of your own" : ""));
  }
  const ReduceFunction& function = *call.function;
  if (function.name.empty()) {
    return wrong("the function has no name, by which ranks are told that give another one");
  }
  if (function.type != call.type || function.element_size != call.element_size) {
    return wrong(absl::StrFormat(
        "'%s' is a function on %s (%d bytes each), and the elements are of %s (%d)", function.name,
        NameOf(function.type), function.element_size, NameOf(call.type), call.element_size));
  }
  if (call.element_size > kMostReducedBytes) {
    return wrong(absl::StrFormat("an element has %d bytes; '%s' can have up to %d",
                                 call.element_size, function.name, kMostReducedBytes));
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view NameOf(CallKind kind) {
  static constexpr std::string_view kNames[] = {
      "all_reduce", "reduce",     "broadcast",   "all_gather", "gather",  "reduce_scatter",
      "scatter",    "all_to_all", "barrier",     "send",       "receive", "make_window",
      "put",        "get",        "wait_signal", "fence",      "close",   "drop"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

bool Computes(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce ||
         kind == CallKind::kReduceScatter;
}

bool HasRoot(CallKind kind) {
  return kind == CallKind::kReduce || kind == CallKind::kBroadcast || kind == CallKind::kGather ||
         kind == CallKind::kScatter;
}

bool IsPairwise(CallKind kind) {
  return kind == CallKind::kGather || kind == CallKind::kScatter || kind == CallKind::kAllToAll;
}

bool IsTransfer(CallKind kind) { return kind == CallKind::kSend || kind == CallKind::kReceive; }

GroupCall Remembered(GroupCall call) {
  call.keeps = nullptr;
  if (call.function) {
    call.function = std::make_shared<const ReduceFunction>(
        ReduceFunction{call.function->name, call.function->type, call.function->element_size, {}});
  }
  return call;
}

bool IsOneSided(CallKind kind) {
  return kind == CallKind::kPut || kind == CallKind::kGet || kind == CallKind::kWaitSignal ||
         kind == CallKind::kDropWindow;
}

absl::Status CheckCall(const GroupCall& call, int ranks) {
  const bool has_peer =
      IsTransfer(call.kind) || call.kind == CallKind::kPut || call.kind == CallKind::kGet;
  if (has_peer && (call.peer < 0 || call.peer >= ranks)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s (%s): the other rank is %d, and the group has ranks 0 to %d",
                        NameOf(call.kind), call.where.ToString(), call.peer, ranks - 1));
  }
  if (IsTransfer(call.kind) && call.tag < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s (%s): the tag is %d; must be 0 or more",
                                                      NameOf(call.kind), call.where.ToString(),
                                                      call.tag));
  }
  if (HasRoot(call.kind) && (call.root < 0 || call.root >= ranks)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s (%s): root is %d, and the group has ranks 0 to %d", NameOf(call.kind),
                        call.where.ToString(), call.root, ranks - 1));
  }
  return Computes(call.kind) ? CheckReduction(call) : absl::OkStatus();
}

namespace {

// What all ranks know alike.
CollectiveUse UseOf(const CollectiveSpec& spec) {
  CollectiveUse use{.kind = spec.kind,
                    .members = static_cast<int64_t>(spec.members.size()),
                    .hosts = NumHostsAlike(HostsOf(spec))};
  if (use.hosts > 1) use.spread = MemberSpread::kHosts;
  if (spec.kind == CollectiveKind::kAllToAll) return use;
  use.bytes =
      std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0}) * spec.element_size;
  return use;
}

}  // namespace

CollectiveSpec SpecOf(const GroupCall& call, const GroupIdentity& group) {
  const size_t ranks = group.nodes.size();
  CollectiveSpec spec;
  spec.id = group.id;
  for (size_t rank = 0; rank < ranks; ++rank) {
    spec.members.push_back(
        {.node = group.nodes[rank], .host = group.hosts.empty() ? 0 : group.hosts[rank]});
  }
  spec.my_rank = group.my_rank;
  const int64_t scale = Computes(call.kind) ? 1 : call.element_size;
  const auto scaled = [scale](std::vector<int64_t> counts) {
    for (int64_t& count : counts) count *= scale;
    return counts;
  };
  spec.element_size = call.element_size / scale;
  spec.counts = scaled(call.counts);
  spec.receives = scaled(call.receives);
  if (Computes(call.kind) && !call.function) spec.reduce = FindReduction(call.type, call.op);
  switch (call.kind) {
    case CallKind::kAllReduce:
      spec.kind = CollectiveKind::kAllReduce;
      break;
    case CallKind::kReduce:
      spec.kind = CollectiveKind::kReduceScatter;
      spec.counts.assign(ranks, 0);
      spec.counts[call.root] = call.counts[0];
      break;
    case CallKind::kBroadcast:
      spec.kind = CollectiveKind::kBroadcast;
      spec.root = call.root;
      break;
    case CallKind::kAllGather:
      spec.kind = CollectiveKind::kAllGather;
      break;
    case CallKind::kReduceScatter:
      spec.kind = CollectiveKind::kReduceScatter;
      break;
    case CallKind::kGather:
    case CallKind::kScatter:
    case CallKind::kAllToAll:
      spec.kind = CollectiveKind::kAllToAll;
      break;
    case CallKind::kBarrier:
    case CallKind::kFence:
    case CallKind::kCloseWindow:
      spec.kind = CollectiveKind::kAllGather;
      spec.element_size = 1;
      spec.counts.assign(ranks, 1);
      break;
    case CallKind::kMakeWindow:
      spec.kind = CollectiveKind::kAllGather;
      spec.element_size = 1;
      spec.counts.assign(ranks, sizeof(int64_t));
      break;
    case CallKind::kSend:
    case CallKind::kReceive:
    case CallKind::kPut:
    case CallKind::kGet:
    case CallKind::kWaitSignal:
    case CallKind::kDropWindow:
      LOG(FATAL) << Describe(call) << " is no collective";
  }
  const CollectiveMethod method = MethodOf(UseOf(spec));
  spec.algorithm = group.algorithm.value_or(method.algorithm);
  spec.chunk_bytes = method.chunk_bytes;
  return spec;
}

bool MayBeDirect(const GroupIdentity& group) {
  return group.algorithm.value_or(CollectiveAlgorithm::kDirect) == CollectiveAlgorithm::kDirect;
}

absl::Status CheckAlgorithm(const GroupIdentity& group, const CollectiveSpec& spec, bool are_near) {
  if (!group.algorithm.has_value()) return absl::OkStatus();
  if (spec.algorithm != CollectiveAlgorithm::kDirect) {
    return FindCollectiveAlgorithm(spec.algorithm)->check(spec);
  }
  if (are_near) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: direct is for 2 to %d ranks of one machine, between which links are of "
                      "the transport shm",
                      group.name, kMostDirectRanks));
}

uint64_t TransferSignatureOf(const GroupCall& call, uint64_t group) {
  return StableHash(absl::StrFormat("%d %d %d %d %d %s", group, call.type, call.element_size,
                                    call.counts[0], call.tag, call.name));
}

void AppendSubject(const GroupCall& call, std::string& text) {
  const bool has_op = Computes(call.kind) && !call.function;
  absl::StrAppend(&text, static_cast<int>(call.kind), " ", static_cast<int>(call.type), " ",
                  call.element_size, " ", has_op ? static_cast<int>(call.op) : -1, " ",
                  HasRoot(call.kind) ? call.root : -1);
  if (call.window != nullptr) absl::StrAppend(&text, " of window ", call.window->number);
  if (call.kind != CallKind::kMakeWindow && !IsPairwise(call.kind)) {
    for (const int64_t count : call.counts) absl::StrAppend(&text, ",", count);
  }
  if (call.function) {
    absl::StrAppend(&text, " ", call.function->name.size(), " ", call.function->name);
  }
  text += ";";
}

uint64_t SignatureOf(const GroupCall& call, uint64_t group, int64_t number) {
  return NumberedSignature(ShapeOf(call, group), number);
}

uint64_t NumberedSignature(uint64_t shape, int64_t number) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // so that no two numbers give one shape the same
  return shape + static_cast<uint64_t>(number) * kOdd;
}

uint64_t ShapeOf(const GroupCall& call, uint64_t group) {
  std::string text = absl::StrCat(group, " ");
  AppendSubject(call, text);
  if (call.batch) absl::StrAppend(&text, " ", call.batch->signature, " ");
  return StableHash(text + call.name);
}

bool HaveSameShape(const GroupCall& a, const GroupCall& b) {
  for (const GroupCall* call : {&a, &b}) {
    if (call->window != nullptr || call->batch != nullptr || call->function != nullptr)
      return false;
  }
  return a.kind == b.kind && a.type == b.type && a.element_size == b.element_size && a.op == b.op &&
         a.root == b.root && a.counts == b.counts && a.receives == b.receives && a.name == b.name;
}

std::string Describe(const GroupCall& call) {
  if (!call.batch) return absl::StrFormat("%s (%s)", Subject(call), call.where.ToString());
  const GroupBatch& batch = *call.batch;
  const std::string name = call.name.empty() ? "" : absl::StrFormat(", '%s'", call.name);
  const std::string of =
      absl::StrFormat("a batch of %d%s (%s)", batch.calls.size(), name, batch.where.ToString());
  if (IsJoined(call)) return of;
  return absl::StrFormat("%s, part %d of %s", Describe(batch.calls[call.parts[0]]),
                         call.parts[0] + 1, of);
}

void Encode(const GroupCall& call, uint64_t group, int64_t number, control::GroupCall& message) {
  message.set_number(number);
  message.set_signature(SignatureOf(call, group, number));
  message.set_text(Describe(call));
  if (!IsPairwise(call.kind)) return;
  message.mutable_sends()->Assign(call.counts.begin(), call.counts.end());
  message.mutable_receives()->Assign(call.receives.begin(), call.receives.end());
}

void EncodeBatch(const GroupCall& call, control::GroupCall& message) {
  if (!call.batch) return;
  message.set_num_parts(static_cast<int64_t>(call.batch->calls.size()));
  for (const GroupCall& part : call.batch->calls) {
    if (message.parts_size() == kMostParts) return;
    std::string subject;
    AppendSubject(part, subject);
    control::GroupCall::Part& encoded = *message.add_parts();
    encoded.set_signature(StableHash(subject));
    encoded.set_text(Describe(part));
  }
}

}  // namespace braid::dist
