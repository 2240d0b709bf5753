// Of KernelSpecs: updates of variables by optimizers.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

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
  UpdateLaunch launch = {.is_double = spec.inputs[0].dtype == DType::kF64};
  for (int i = 0; i < same + scalars; ++i) {
    const DType dtype = spec.inputs[i].dtype;
    const bool is_same = IsFloating(dtype) && (dtype == DType::kF64) == launch.is_double;
    if (i < same ? !is_same : !IsScalarType(dtype)) return UnsupportedTypes(spec);
    if (i < same) launch.types[i] = dtype;
  }
  return launch;
}

// The variable, its gradient and the states, which begin with input `first`.
UpdatePart PartOf(const KernelSpec& spec, const KernelRun& run, int first, int states) {
  UpdatePart part = {.elements = spec.inputs[0].num_elements(),
                     .variable = run.inputs[0],
                     .gradient = run.inputs[first - 1]};
  for (int s = 0; s < states; ++s) part.states[s] = run.inputs[first + s];
  return part;
}

// With what its attributes choose.
UpdateRule RuleOf(const Update& update, const UpdateLaunch& launch) {
  if (update.rule == UpdateRule::kMomentum && launch.sgd.nesterov) return UpdateRule::kNesterov;
  if (update.rule == UpdateRule::kAdam && launch.adam.lazy) return UpdateRule::kLazyAdam;
  return update.rule;
}

// Updates that follow one another are of variables of their own: all that go by the same numbers
// are launched together.
class UpdateKernel final : public Kernel {
 public:
  struct Operands {
    int rate = 0, step = 0, ratio = 0, condition = 0;  // numbers of inputs
  };
  UpdateKernel(const UpdateTable& table, const KernelSpec& spec, const Update& update,
               const UpdateLaunch& launch, const Operands& operands)
      : table_(table),
        spec_(spec),
        update_(update),
        launch_(launch),
        operands_(operands),
        rule_(RuleOf(update, launch)) {}

  absl::Status Run(const KernelRun& run) override {
    Kernel* const self = this;
    return RunTogether({&self, 1}, {&run, 1});
  }
  bool is_repeatable() const override { return true; }
  bool joins(const Kernel& next) const override {
    return dynamic_cast<const UpdateKernel*>(&next) != nullptr;
  }
  absl::Status RunTogether(std::span<Kernel* const> kernels,
                           std::span<const KernelRun> runs) override {
    struct Launch {
      UpdateRule rule;
      UpdateLaunch update;
      std::vector<UpdatePart> parts;
    };
    std::vector<Launch> launches;
    for (size_t i = 0; i < kernels.size(); ++i) {
      const auto& kernel = static_cast<const UpdateKernel&>(*kernels[i]);
      const UpdateLaunch update = kernel.LaunchIn(runs[i]);
      const auto same = std::ranges::find_if(launches, [&](const Launch& launch) {
        return launch.rule == kernel.rule_ && launch.update == update;
      });
      Launch& launch =
          same != launches.end()
              ? *same
              : launches.emplace_back(Launch{.rule = kernel.rule_, .update = update, .parts = {}});
      launch.parts.push_back(PartOf(kernel.spec_, runs[i], 2, kernel.update_.states));
    }
    for (const Launch& launch : launches) {
      const Error error =
          table_.update(QueueOf(runs[0]), launch.rule, launch.update, launch.parts.data(),
                        static_cast<int64_t>(launch.parts.size()));
      BRAID_RETURN_IF_ERROR(LaunchStatus(runs[0], error));
    }
    return absl::OkStatus();
  }

 private:
  UpdateLaunch LaunchIn(const KernelRun& run) const {
    UpdateLaunch now = launch_;
    now.learning_rate.data = run.inputs[operands_.rate];
    if (update_.takes_step) now.step.data = run.inputs[operands_.step];
    if (update_.takes_ratio) now.ratio.data = run.inputs[operands_.ratio];
    if (static_cast<int>(spec_.inputs.size()) > operands_.condition) {
      now.applies = static_cast<const uint8_t*>(run.inputs[operands_.condition]);
    }
    return now;
  }

  const UpdateTable& table_;
  const KernelSpec spec_;
  const Update update_;
  const UpdateLaunch launch_;
  const Operands operands_;
  const UpdateRule rule_;
};

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
  return std::make_unique<UpdateKernel>(
      table, spec, update, launch,
      UpdateKernel::Operands{.rate = rate, .step = step, .ratio = ratio, .condition = condition});
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
        now.part = PartOf(spec, run, 3, update.states);
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
        now.step.data = run.inputs[4];
        const ScalarOperand sum = {.type = out_type, .data = run.outputs[0]};
        return function(queue, now, PartOf(spec, run, 2, 2), reinterpret_cast<double*>(work), sum);
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
