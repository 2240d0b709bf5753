#include "compiler/compile.h"

#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/logical/autograd.h"
#include "compiler/logical/channel_layout.h"
#include "compiler/logical/fold_norms.h"
#include "compiler/logical/fuse.h"
#include "compiler/logical/infer_sbp.h"
#include "compiler/logical/loss_scale.h"
#include "compiler/logical/micro_batch.h"
#include "compiler/logical/optimizer.h"
#include "compiler/logical/precision.h"
#include "compiler/logical/prune.h"
#include "compiler/logical/read_into.h"
#include "compiler/logical/training_mode.h"
#include "compiler/logical/update_rows.h"
#include "compiler/lower.h"
#include "compiler/lower_servers.h"
#include "compiler/physical/assign_slots.h"
#include "compiler/physical/assign_streams.h"
#include "compiler/physical/bucket_collectives.h"
#include "compiler/physical/chains.h"
#include "compiler/physical/check_memory.h"
#include "compiler/physical/choose_methods.h"
#include "compiler/physical/defer_groups.h"
#include "compiler/physical/fold_sums.h"
#include "compiler/physical/keep_steady.h"
#include "compiler/physical/order_collectives.h"
#include "compiler/physical/plan_memory.h"
#include "compiler/physical/stage_through_host.h"
#include "compiler/physical/take_turns.h"
#include "compiler/plan/invariants.h"
#include "compiler/verify.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

// Where a job does not fit its devices, variables from this size on are split over them.
constexpr int64_t kLeastSplitBytes = 64 << 10;

// What is computed, on whole tensors, and where, and how often.
absl::StatusOr<LogicalGraph> Prepare(LogicalGraph graph, const CompileOptions& options) {
  graph = SettleTraining(std::move(graph));
  if (options.precision == DType::kF16) graph = AddLossScales(std::move(graph));
  BRAID_ASSIGN_OR_RETURN(graph, Autograd(std::move(graph)));
  BRAID_ASSIGN_OR_RETURN(graph, Optimizer(std::move(graph)));
  graph = Prune(std::move(graph));
  // Placements first, since a layout needs its devices' number; micro-batches last, since they cut
  // the shapes that are then laid out.
  BRAID_ASSIGN_OR_RETURN(
      graph, InferPlacement(std::move(graph), options.all_devices, options.master, options.fixed));
  graph = UpdateRows(std::move(graph));
  graph = ReadIntoVariables(std::move(graph), [&](const Placement& placement) {
    return options.kinds.AreHost(placement);
  });
  graph = Fuse(FoldNorms(std::move(graph)));
  const bool is_narrow = options.precision != DType::kF32;
  const auto keeps_narrow = [&](const Placement& placement) {
    return is_narrow && options.kinds.KeepNarrow(placement);
  };
  graph = LayOutChannels(std::move(graph), {.winograd = options.winograd,
                                            .channel_block = options.channel_block,
                                            .may_fit_blocks = !is_narrow,
                                            .puts_channels_last = keeps_narrow});
  if (is_narrow) graph = NarrowProducts(std::move(graph), options.precision, keeps_narrow);
  return MicroBatch(std::move(graph));
}

// Bytes of each device for this job; 0: not known.
int64_t RoomOf(const CompileOptions& options) {
  if (options.device_memory_bytes == 0) return 0;
  return std::max<int64_t>(1, options.device_memory_bytes - options.kept_bytes);
}

absl::Status CheckRoom(const PhysicalGraph& graph, const CompileOptions& options) {
  const absl::Status status = CheckMemory(graph, RoomOf(options));
  if (status.ok() || options.kept_bytes == 0) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), " (of ", options.device_memory_bytes, " bytes of a device ",
                   options.kept_bytes, " are kept by jobs that are loaded: Unload some)"));
}

// Results are kept where the devices have the room (`device_bytes` each; 0: not known).
absl::StatusOr<PhysicalGraph> PlaceInMemory(PhysicalGraph graph, const OpRegistry& registry,
                                            int64_t device_bytes) {
  if (graph.writes_variables) return PlanMemory(std::move(graph), registry);
  BRAID_ASSIGN_OR_RETURN(PhysicalGraph keeping, PlanMemory(KeepSteady(graph, registry), registry));
  if (device_bytes == 0 || CheckMemory(keeping, device_bytes).ok()) return keeping;
  return PlanMemory(std::move(graph), registry);
}

// The smallest buckets that a Minimize of the graph asks for, or the pass's own.
BucketOptions BucketsOf(const LogicalGraph& graph) {
  std::optional<int64_t> first, others;
  const auto take = [](const std::optional<int64_t>& asked, std::optional<int64_t>& least) {
    if (asked.has_value()) least = std::min(*asked, least.value_or(*asked));
  };
  for (const MinimizeRequest& request : graph.minimize()) {
    take(request.first_bucket_bytes, first);
    take(request.bucket_bytes, others);
  }
  const BucketOptions usual;
  const int64_t bytes = others.value_or(usual.bytes);
  return {.first_bytes = first.value_or(std::min(usual.first_bytes, bytes)), .bytes = bytes};
}

// How a prepared graph lies on its devices, and the plan of that. `split_from`: of InferSbpOptions.
absl::StatusOr<Compiled> LayOut(LogicalGraph graph, const CompileOptions& options,
                                BoxingPlanner& planner, int64_t split_from) {
  std::map<std::string, std::string> explanations;
  InferSbpOptions sbp_options;
  sbp_options.fixed = options.fixed;
  sbp_options.split_from = split_from;
  sbp_options.layout_seed = options.layout_seed;
  if (options.explain) sbp_options.explanations = &explanations;
  BRAID_ASSIGN_OR_RETURN(graph, InferSbp(std::move(graph), planner, sbp_options));

  // One TaskGroup per op, boxing in between; then fewer, larger ones.
  BRAID_ASSIGN_OR_RETURN(PhysicalGraph physical, Lower(graph, planner));
  physical.job = options.job;
  physical.num_nodes = options.num_nodes;
  physical.kinds = options.kinds;
  // Each node as a host of its own, wherever they are: the order of sums, and so a job's bits, are
  // those of its layout.
  physical.hosts.resize(options.num_nodes);
  std::iota(physical.hosts.begin(), physical.hosts.end(), uint32_t{0});
  physical.seed = options.seed;
  physical.writes_variables = WritesVariables(physical, graph.registry());
  BRAID_RETURN_IF_ERROR(VerifyInvariants(physical));
  BRAID_RETURN_IF_ERROR(CheckServersAreHosts(physical));
  physical = AssignStreams(std::move(physical), graph.registry());
  BRAID_ASSIGN_OR_RETURN(physical, BucketCollectives(std::move(physical), BucketsOf(graph)));
  physical = ChooseMethods(std::move(physical));
  BRAID_RETURN_IF_ERROR(VerifyInvariants(physical));
  BRAID_ASSIGN_OR_RETURN(physical, FormChains(std::move(physical)));
  physical = FoldSums(std::move(physical), graph.registry());
  BRAID_RETURN_IF_ERROR(VerifyInvariants(physical));
  // After the chains, which leave fewer registers to be copied.
  physical = StageThroughHost(std::move(physical));
  BRAID_ASSIGN_OR_RETURN(physical, OrderCollectives(std::move(physical)));
  // Slots before memory: they multiply it. Turns after it: they look at addresses. Verification
  // last: memory planning adds edges.
  BRAID_ASSIGN_OR_RETURN(physical, AssignSlots(std::move(physical)));
  BRAID_ASSIGN_OR_RETURN(physical,
                         PlaceInMemory(std::move(physical), graph.registry(), RoomOf(options)));
  physical = TakeTurns(std::move(physical), graph.registry());
  physical = DeferGroups(std::move(physical));
  BRAID_RETURN_IF_ERROR(Verify(physical, graph.registry()));

  StepEstimate estimate = EstimateStep(graph, planner, options.estimate);
  return Compiled{std::move(graph), std::move(physical), std::move(estimate),
                  std::move(explanations)};
}

}  // namespace

absl::StatusOr<Compiled> Compile(LogicalGraph graph, const CompileOptions& options) {
  BRAID_RETURN_IF_ERROR(graph.status());
  BoxingPlanner planner(options.machine);
  BRAID_ASSIGN_OR_RETURN(graph, Prepare(std::move(graph), options));
  if (options.device_memory_bytes == 0) {
    return LayOut(std::move(graph), options, planner, /*split_from=*/0);
  }
  BRAID_ASSIGN_OR_RETURN(Compiled whole,
                         LayOut(std::move(graph), options, planner, /*split_from=*/0));
  const absl::Status fits = CheckRoom(whole.physical, options);
  if (fits.ok()) return whole;
  if (options.all_devices.size() == 1 || options.layout_seed.has_value()) return fits;
  graph = std::move(whole.logical);
  for (Op& op : graph.mutable_ops()) {  // as it was prepared
    op.input_sbp.clear();
    op.output_sbp.clear();
  }
  BRAID_ASSIGN_OR_RETURN(Compiled split,
                         LayOut(std::move(graph), options, planner, kLeastSplitBytes));
  const absl::Status fits_split = CheckRoom(split.physical, options);
  if (!fits_split.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        fits_split.message(), " (variables of which no layout was asked for are split already)"));
  }
  LOG(INFO) << "job '" << options.job << "' does not fit devices of " << options.device_memory_bytes
            << " bytes with whole variables, so those of " << kLeastSplitBytes
            << " bytes or more are split over them";
  return split;
}

}  // namespace braid::compiler
