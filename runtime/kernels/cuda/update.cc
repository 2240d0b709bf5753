// Of KernelSpecs: updates of variables by optimizers.
#include <string>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/picks.h"
#include "runtime/kernels/update_attrs.h"

namespace braid::cuda {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Its inputs: variable, gradient, states..., learning rate[, step][, ratio][, applies].
struct Update {
  UpdateRule rule = UpdateRule::kSgd;
  int states = 0;
  bool takes_step = false, takes_ratio = false;
  // Reads the attributes.
  void (*read)(const Attrs&, UpdateLaunch&) = nullptr;
};

bool IsScalarType(DType dtype) { return IsFloating(dtype) || IsIndexType(dtype); }

// Without pointers and parameters. The first `same` operands are computed with as one type, those
// that follow are scalars.
absl::StatusOr<UpdateLaunch> LaunchOf(const KernelSpec& spec, int same, int scalars) {
  UpdateLaunch launch = {.is_double = spec.inputs[0].dtype == DType::kF64,
                         .elements = spec.inputs[0].num_elements()};
  for (int i = 0; i < same + scalars; ++i) {
    const DType dtype = spec.inputs[i].dtype;
    const bool is_same = IsFloating(dtype) && (dtype == DType::kF64) == launch.is_double;
    if (i < same ? !is_same : !IsScalarType(dtype)) return UnsupportedTypes(spec);
    if (i < same) launch.types[i] = dtype;
  }
  return launch;
}

void SetOperands(const KernelRun& run, int states, UpdateLaunch& launch) {
  launch.variable = run.inputs[0];
  launch.gradient = run.inputs[1];
  for (int s = 0; s < states; ++s) launch.states[s] = run.inputs[2 + s];
}

// With what its attributes choose.
UpdateRule RuleOf(const Update& update, const UpdateLaunch& launch) {
  if (update.rule == UpdateRule::kMomentum && launch.sgd.nesterov) return UpdateRule::kNesterov;
  if (update.rule == UpdateRule::kAdam && launch.adam.lazy) return UpdateRule::kLazyAdam;
  return update.rule;
}

KernelOr MakeUpdate(const UpdateTable& table, const KernelSpec& spec, const Update& update) {
  const int rate = 2 + update.states, step = rate + 1;
  const int ratio = step + (update.takes_step ? 1 : 0);
  const int condition = ratio + (update.takes_ratio ? 1 : 0);
  BRAID_ASSIGN_OR_RETURN(UpdateLaunch launch, LaunchOf(spec, rate, condition - rate));
  const bool is_conditional = static_cast<int>(spec.inputs.size()) > condition;
  if (is_conditional && spec.inputs[condition].dtype != DType::kBool) return UnsupportedTypes(spec);
  launch.learning_rate.type = spec.inputs[rate].dtype;
  if (update.takes_step) launch.step.type = spec.inputs[step].dtype;
  if (update.takes_ratio) launch.ratio.type = spec.inputs[ratio].dtype;
  update.read(spec.attrs, launch);
  const UpdateRule rule = RuleOf(update, launch);
  return MakeKernel([=, function = table.update](const Queue& queue, const KernelRun& run) {
    UpdateLaunch now = launch;
    SetOperands(run, update.states, now);
    now.learning_rate.data = run.inputs[rate];
    if (update.takes_step) now.step.data = run.inputs[step];
    if (update.takes_ratio) now.ratio.data = run.inputs[ratio];
    if (is_conditional) now.applies = static_cast<const uint8_t*>(run.inputs[condition]);
    return function(queue, rule, now);
  });
}

// (variable, indices, rows, states..., learning rate[, step][, applies]).
absl::StatusOr<PlannedKernel> PlanRowUpdate(const KernelTable& table, const KernelSpec& spec,
                                            const Update& update) {
  const int rate = 3 + update.states, step = rate + 1;
  const int condition = step + (update.takes_step ? 1 : 0);
  KernelSpec whole = spec;  // without the indices
  whole.inputs.erase(whole.inputs.begin() + 1);
  if (!IsIndexType(spec.inputs[1].dtype)) return UnsupportedTypes(spec);
  BRAID_ASSIGN_OR_RETURN(UpdateLaunch launch, LaunchOf(whole, rate - 1, condition - rate));
  const bool is_conditional = static_cast<int>(spec.inputs.size()) > condition;
  if (is_conditional && spec.inputs[condition].dtype != DType::kBool) return UnsupportedTypes(spec);
  launch.learning_rate.type = spec.inputs[rate].dtype;
  if (update.takes_step) launch.step.type = spec.inputs[step].dtype;
  update.read(spec.attrs, launch);
  const PickOperands operands = {.by = PickBy::kRows, .indices = 1, .table_is_input = true};
  BRAID_ASSIGN_OR_RETURN(const Picks first, CountablePicks(spec, operands));
  return PlanWithWork(
      spec, 2 * first.count * kPickEntryBytes,
      [=, &table](const Queue& queue, const KernelRun& run, std::byte* work) {
        const Picks picks = *PicksOf(spec, operands, run.micro_batch, run.inputs[1]);
        RowUpdateLaunch now = {.update = launch, .count = picks.count, .row = picks.row};
        const Error error = SortPicks(table, queue, picks, work, now.entries);
        if (error != kDone) return error;
        now.update.variable = run.inputs[0];
        now.update.gradient = run.inputs[2];
        for (int s = 0; s < update.states; ++s) now.update.states[s] = run.inputs[3 + s];
        now.update.learning_rate.data = run.inputs[rate];
        if (update.takes_step) now.update.step.data = run.inputs[step];
        if (is_conditional) now.update.applies = static_cast<const uint8_t*>(run.inputs[condition]);
        return table.update.update_rows(queue, update.rule, now);
      });
}

absl::StatusOr<PlannedKernel> PlanLambSquare(const UpdateTable& table, const KernelSpec& spec) {
  BRAID_ASSIGN_OR_RETURN(UpdateLaunch launch, LaunchOf(spec, 4, 1));
  const DType out_type = spec.outputs[0].dtype;
  if (!IsFloating(out_type) || (out_type == DType::kF64) != launch.is_double) {
    return UnsupportedTypes(spec);
  }
  launch.step.type = spec.inputs[4].dtype;
  launch.adam = AdamParametersOf(spec.attrs);
  const auto bytes = static_cast<int64_t>(kLambSquareParts * sizeof(double));
  return PlanWithWork(
      spec, bytes,
      [=, function = table.lamb_square](const Queue& queue, const KernelRun& run, std::byte* work) {
        UpdateLaunch now = launch;
        SetOperands(run, 2, now);
        now.step.data = run.inputs[4];
        const ScalarOperand sum = {.type = out_type, .data = run.outputs[0]};
        return function(queue, now, reinterpret_cast<double*>(work), sum);
      });
}

KernelOr MakeAssign(const PointwiseTable& table, const KernelSpec& spec) {
  const bool is_conditional = spec.inputs.size() > 2;
  if (spec.inputs[0].dtype != spec.inputs[1].dtype ||
      (is_conditional && spec.inputs[2].dtype != DType::kBool)) {
    return UnsupportedTypes(spec);
  }
  const int64_t bytes =
      spec.inputs[0].num_elements() * static_cast<int64_t>(SizeOf(spec.inputs[0].dtype));
  return MakeKernel([=, copy = table.copy](const Queue& queue, const KernelRun& run) {
    BytesLaunch launch = {.from = run.inputs[1], .to = run.inputs[0], .bytes = bytes};
    if (is_conditional) launch.applies = static_cast<const uint8_t*>(run.inputs[2]);
    return copy(queue, launch);
  });
}

void ReadSgd(const Attrs& attrs, UpdateLaunch& launch) { launch.sgd = SgdParametersOf(attrs); }
void ReadAdam(const Attrs& attrs, UpdateLaunch& launch) { launch.adam = AdamParametersOf(attrs); }
void ReadRmsprop(const Attrs& attrs, UpdateLaunch& launch) {
  launch.rmsprop = RmspropParametersOf(attrs);
}
void ReadAdagrad(const Attrs& attrs, UpdateLaunch& launch) {
  launch.adagrad = AdagradParametersOf(attrs);
  launch.lr_decay = attrs.Double("lr_decay");
}

struct NamedUpdate {
  const char* name;
  Update update;
};
constexpr NamedUpdate kRowUpdates[] = {
    {"sgd_rows_update", {.rule = UpdateRule::kSgd, .read = ReadSgd}},
    {"adam_rows_update",
     {.rule = UpdateRule::kLazyAdam, .states = 2, .takes_step = true, .read = ReadAdam}},
    {"adagrad_rows_update",
     {.rule = UpdateRule::kAdagrad, .states = 1, .takes_step = true, .read = ReadAdagrad}}};
constexpr NamedUpdate kUpdates[] = {
    {"sgd_update", {.rule = UpdateRule::kSgd, .read = ReadSgd}},
    {"momentum_update", {.rule = UpdateRule::kMomentum, .states = 1, .read = ReadSgd}},
    {"adam_update", {.rule = UpdateRule::kAdam, .states = 2, .takes_step = true, .read = ReadAdam}},
    {"lamb_update",
     {.rule = UpdateRule::kLamb,
      .states = 2,
      .takes_step = true,
      .takes_ratio = true,
      .read = ReadAdam}},
    {"lars_update", {.rule = UpdateRule::kLars, .states = 1, .takes_ratio = true, .read = ReadSgd}},
    {"adagrad_update",
     {.rule = UpdateRule::kAdagrad, .states = 1, .takes_step = true, .read = ReadAdagrad}},
    {"rmsprop_update", {.rule = UpdateRule::kRmsprop, .states = 1, .read = ReadRmsprop}},
    {"rmsprop_momentum_update",
     {.rule = UpdateRule::kRmspropMomentum, .states = 2, .read = ReadRmsprop}},
    {"rmsprop_centered_update",
     {.rule = UpdateRule::kRmspropCentered, .states = 2, .read = ReadRmsprop}},
    {"rmsprop_centered_momentum_update",
     {.rule = UpdateRule::kRmspropCenteredMomentum, .states = 3, .read = ReadRmsprop}}};

}  // namespace

absl::Status RegisterUpdateKernels(const KernelTable& kernels, KernelRegistry& registry) {
  const UpdateTable& table = kernels.update;
  for (const NamedUpdate& named : kUpdates) {
    BRAID_RETURN_IF_ERROR(
        registry.Register(named.name, [&table, update = named.update](const KernelSpec& s) {
          return MakeUpdate(table, s, update);
        }));
  }
  for (const NamedUpdate& named : kRowUpdates) {
    BRAID_RETURN_IF_ERROR(
        registry.Register(named.name, [&kernels, update = named.update](const KernelSpec& s) {
          return PlanRowUpdate(kernels, s, update);
        }));
  }
  BRAID_RETURN_IF_ERROR(registry.Register(
      "lamb_square", [&table](const KernelSpec& s) { return PlanLambSquare(table, s); }));
  return registry.Register(
      "assign", [&table = kernels.pointwise](const KernelSpec& s) { return MakeAssign(table, s); });
}

}  // namespace braid::cuda
