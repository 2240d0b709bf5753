#include "api/place_on_server.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "graph/op_roles.h"

namespace braid {
namespace {

// A step that far behind serves nobody, and what workers get has so many slots.
constexpr int kMostStaleness = 1 << 16;

// Where the op works, as far as the job says it: else where what it reads was made.
const Placement& PlaceOf(const LogicalGraph& graph, const Op& op, const Placement& devices) {
  for (const Op* at = &op; at != nullptr;) {
    if (at->placement.has_value()) return *at->placement;
    const auto input = std::ranges::find_if(
        at->inputs, [&](TensorId tensor) { return !IsVariable(graph, graph.producer(tensor)); });
    at = input == at->inputs.end() ? nullptr : &graph.producer(*input);
  }
  return devices;
}

absl::Status CheckAsynchronous(const MinimizeRequest& request) {
  const char* what = request.clip_global_norm > 0         ? ".clip_global_norm"
                     : request.attrs.Has("norms")         ? ".norms"
                     : request.attrs.Has("ema")           ? ".ema"
                     : request.micro_batches > 1          ? ".micro_batches"
                     : request.optimizer == "adafactor"   ? "Adafactor"
                     : request.optimizer == "lars_update" ? "Lars"
                     : request.optimizer == "lamb_update" ? "Lamb"
                                                          : nullptr;
  if (what == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrFormat("an asynchronous server (max_staleness %d) does not go with %s; let "
                      "max_staleness be 0, or leave that out",
                      request.attrs.Int("max_staleness"), what));
}

// One variable on the server.
absl::Status Place(const Placement& server, bool is_asynchronous, Op& op, const Shape& shape) {
  op.placement = server;
  if (server.size() == 1) return absl::OkStatus();
  if (!HasHint(op) && shape.rank() > 0 && shape[0] >= server.size()) {
    op.hints = {NdSbp(sbp::S(0))};
  }
  const bool is_split =
      HasHint(op) && op.hints[0]->rank() == 1 && op.hints[0]->dims()[0].is_split();
  if (!is_asynchronous || is_split) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "variable '%s', %s, is not split over the %d devices of an asynchronous server, and copies "
      "would go apart; give it a hint S(axis), or the server one device",
      op.name, shape.ToString(), server.size()));
}

}  // namespace

void PlaceOnServer(LogicalGraph& graph, MinimizeRequest& request, const Server& server,
                   const Placement& devices, SourceLocation where) {
  const auto fail = [&](const absl::Status& status) {
    graph.Fail(absl::Status(
        status.code(), absl::StrFormat("Minimize: .server: %s (%s)", std::string(status.message()),
                                       where.ToString())));
  };
  if (const absl::Status problem = server.placement.CheckIsIn(devices); !problem.ok()) {
    return fail(absl::Status(problem.code(),
                             absl::StrFormat("its placement cannot be used: %s; the cluster has %s",
                                             std::string(problem.message()), devices.ToString())));
  }
  if (server.max_staleness < 0 || server.max_staleness > kMostStaleness) {
    return fail(absl::InvalidArgumentError(
        absl::StrFormat("max_staleness is %d; a number from 0 to %d was expected",
                        server.max_staleness, kMostStaleness)));
  }
  const bool is_asynchronous = server.max_staleness > 0;
  if (!is_asynchronous && !server.staleness.empty()) {
    return fail(absl::InvalidArgumentError(absl::StrFormat(
        "it fetches '%s', and with max_staleness 0 nothing is stale", server.staleness)));
  }
  if (is_asynchronous) {
    const Op& loss = graph.producer(request.loss);
    request.attrs.Set("max_staleness", int64_t{server.max_staleness});
    request.attrs.Set("workers", int64_t{PlaceOf(graph, loss, devices).size()});
    if (!server.staleness.empty()) request.attrs.Set("staleness", server.staleness);
    if (absl::Status status = CheckAsynchronous(request); !status.ok()) return fail(status);
  }
  const std::vector<bool> is_ancestor = AncestorsOf(graph, request.loss);
  for (Op& op : graph.mutable_ops()) {
    if (!is_ancestor[op.id] || !IsTrained(graph, request, op)) continue;
    const absl::Status status =
        Place(server.placement, is_asynchronous, op, graph.type(op.outputs[0]).shape);
    if (!status.ok()) return fail(status);
  }
}

}  // namespace braid
