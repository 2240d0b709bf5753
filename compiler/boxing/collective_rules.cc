#include "compiler/boxing/collective_rules.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/boxing/edge.h"
#include "compiler/collective_methods.h"
#include "glog/logging.h"

namespace braid::compiler {
namespace {

bool SplitLater(const NdSbp& sbp, int dim, const Sbp& changed) {
  if (!changed.is_split()) return false;
  for (int later = dim + 1; later < sbp.rank(); ++later) {
    if (sbp[later] == changed) return true;
  }
  return false;
}

// Whether blocks along `axis` lie scattered in the largest local box.
bool NeedsPacking(const TensorLayout& layout, const Placement& placement, int axis) {
  const Shape local = RegionOf(layout, placement, 0).size;
  int64_t rows = 1;
  for (int outer = 0; outer < axis; ++outer) rows *= local[outer];
  return rows > 1;
}

Attrs PackingAttrs(int axis, int64_t parts) {
  return {{"axis", static_cast<int64_t>(axis)}, {"parts", parts}};
}

}  // namespace

std::optional<CollectiveView> ViewAsCollective(const BoxingEdge& edge) {
  std::optional<BoxingEdge> merged = MergeDims(edge);
  if (!merged) return std::nullopt;
  std::optional<int> changed;
  for (int dim = 0; dim < merged->source_sbp.rank(); ++dim) {
    if (merged->source_sbp[dim] == merged->destination_sbp[dim]) continue;
    if (changed) return std::nullopt;
    changed = dim;
  }
  if (!changed) return std::nullopt;
  const Sbp from = merged->source_sbp[*changed];
  const Sbp to = merged->destination_sbp[*changed];
  if (SplitLater(merged->source_sbp, *changed, from)) return std::nullopt;
  if (SplitLater(merged->source_sbp, *changed, to)) return std::nullopt;
  const int64_t members = merged->source.hierarchy()[*changed];
  return CollectiveView{.placement = merged->source,
                        .source = SourceLayout(*merged),
                        .destination = DestinationLayout(*merged),
                        .dim = *changed,
                        .from = from,
                        .to = to,
                        .members = members};
}

int64_t SourceBytes(const CollectiveView& view, int rank) {
  return BytesOf(view.source, view.placement, rank);
}

int64_t DestinationBytes(const CollectiveView& view, int rank) {
  return BytesOf(view.destination, view.placement, rank);
}

bool AllRanksAlike(const CollectiveView& view) {
  return SplitsEvenly(view.source, view.placement) &&
         SplitsEvenly(view.destination, view.placement);
}

BoxingCost CollectiveCost(CollectiveKind kind, const CollectiveView& view, const Machine& machine) {
  CollectiveUse use = UseOf(kind, view.source, view.destination, view.placement, view.dim);
  const LinkClass link = machine.LinkAlong(view.placement, view.dim);
  if (link == LinkClass::kNetwork) use.hosts = HostsAlong(machine, view.placement, view.dim);
  use.spread = link == LinkClass::kProcess ? MemberSpread::kProcess
               : use.hosts > 1             ? MemberSpread::kHosts
                                           : MemberSpread::kProcesses;
  return {.messages = MessagesOf(use, MethodOf(use)),
          .least_messages = LeastMessagesOf(kind, view.members),
          .link = link};
}

GroupRegisterId BuildCollective(CollectiveKind kind, std::string_view name,
                                const CollectiveView& view, const BoxingRule::Source& source,
                                PhysicalGraph& graph) {
  BoxingRule::Source input = source;
  const bool cuts_input =
      kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
  if (cuts_input && NeedsPacking(view.source, view.placement, view.to.axis)) {
    input.reg = AddKernelGroup("block_pack", PackingAttrs(view.to.axis, view.members), view.source,
                               view.source, view.placement, input, graph);
    input.part = 0;
  }

  TaskGroup group;
  group.name = absl::StrCat(std::string(source.name), ".", std::string(name));
  group.stream = StreamKind::kTransfer;
  auto& collective = group.work.emplace<Collective>();
  Movement& movement = collective.movement;
  movement.part = input.part;
  movement.source = view.source;
  movement.destination = view.destination;
  if (view.from.is_partial()) movement.reduction = view.from.kind;
  collective.kind = kind;
  collective.hierarchy_dim = view.placement.hierarchy().size() == 1 ? -1 : view.dim;
  GroupRegisterId result =
      AddBoxingGroup(std::move(group), view.placement, view.destination, input, graph);

  const bool joins_output = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll;
  if (joins_output && NeedsPacking(view.destination, view.placement, view.from.axis)) {
    input.reg = result;
    input.part = 0;
    result = AddKernelGroup("block_unpack", PackingAttrs(view.from.axis, view.members),
                            view.destination, view.destination, view.placement, input, graph);
  }
  return result;
}

}  // namespace braid::compiler
