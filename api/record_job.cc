#include "api/record_job.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "graph/op_roles.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/status.h"

namespace braid {

absl::Status RecordJob(const std::string& name, LogicalGraph& graph,
                       const std::function<void()>& record) {
  BRAID_RETURN_IF_ERROR(
      CatchExceptions(absl::StrFormat("the function that records job '%s'", name), [&] {
        record();
        return absl::OkStatus();
      }));
  return graph.status();
}

std::set<std::string, std::less<>> FetchedLosses(const LogicalGraph& graph) {
  std::set<std::string, std::less<>> losses;
  for (const Op& op : graph.ops()) {
    if (!HasRole(graph, op, OpRole::kFetch)) continue;
    const bool is_loss =
        std::any_of(graph.minimize().begin(), graph.minimize().end(),
                    [&](const MinimizeRequest& request) { return request.loss == op.inputs[0]; });
    if (is_loss) losses.insert(op.attrs.String("name"));
  }
  return losses;
}

int64_t SamplesPerStep(const LogicalGraph& graph) {
  int64_t samples = 0;
  for (const Op& op : graph.ops()) {
    if (HasRole(graph, op, OpRole::kReader)) samples = std::max(samples, op.attrs.Int("batch"));
  }
  return samples;
}

absl::Status CheckHasEffect(const std::string& name, const LogicalGraph& graph) {
  const bool has_effect = !graph.minimize().empty() ||
                          std::any_of(graph.ops().begin(), graph.ops().end(), [&](const Op& op) {
                            return HasRole(graph, op, OpRole::kFetch) || IsUpdate(graph, op);
                          });
  if (has_effect) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "job '%s' fetches nothing, minimizes nothing and assigns to no variable, so that nothing of "
      "it would be computed; add job.Fetch or job.Minimize",
      name));
}

}  // namespace braid
