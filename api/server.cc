#include "api/server.h"

#include <optional>

#include "absl/strings/str_format.h"
#include "graph/op_roles.h"

namespace braid {
namespace {

// Where the op works, as far as the job says it.
Placement PlaceOf(const LogicalGraph& graph, const Op& op, const Placement& devices) {
  if (op.placement.has_value()) return *op.placement;
  for (const TensorId input : op.inputs) {
    const Op& producer = graph.producer(input);
    if (!IsVariable(graph, producer)) return PlaceOf(graph, producer, devices);
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
  if (server.placement.size() == 0 || server.max_staleness < 0) {
    return fail(absl::InvalidArgumentError(absl::StrFormat(
        "its placement has %d devices and max_staleness is %d; at least 1 and 0 were expected",
        server.placement.size(), server.max_staleness)));
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
