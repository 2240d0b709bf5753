// channel_sum, batch_moment, batch_norm and its gradients with attribute groups: groups of images
// are batches one after the other.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/batch_norm.h"

namespace braid::cpu {
namespace {

// The operands that are statistics, [groups, c].
struct StatisticOperands {
  std::vector<int> inputs, outputs;
};
StatisticOperands StatisticsOf(BatchNormPart part) {
  switch (part) {
    case BatchNormPart::kSum:
      return {{}, {0}};
    case BatchNormPart::kMoment:
      return {{1}, {0}};
    case BatchNormPart::kNorm:
      return {{1, 2}, {}};
    case BatchNormPart::kSums:
      return {{1, 2}, {0, 1}};
    case BatchNormPart::kInputGradient:
      return {{1, 2, 5, 6}, {}};
  }
  return {};
}

class GroupedKernel final : public Kernel {
 public:
  // `inputs` and `outputs`: bytes from one group to the next, 0 where all share the operand.
  GroupedKernel(std::unique_ptr<Kernel> of_one, int64_t groups, std::vector<int64_t> inputs,
                std::vector<int64_t> outputs)
      : of_one_(std::move(of_one)),
        groups_(groups),
        input_bytes_(std::move(inputs)),
        output_bytes_(std::move(outputs)),
        inputs_(input_bytes_.size()),
        outputs_(output_bytes_.size()) {}

  absl::Status Run(const KernelRun& run) override {
    KernelRun of_group = run;
    of_group.inputs = inputs_.data();
    of_group.outputs = outputs_.data();
    for (int64_t group = 0; group < groups_; ++group) {
      Advance(run.inputs, input_bytes_, group, inputs_);
      Advance(run.outputs, output_bytes_, group, outputs_);
      BRAID_RETURN_IF_ERROR(of_one_->Run(of_group));
    }
    return absl::OkStatus();
  }

 private:
  static void Advance(void* const* from, const std::vector<int64_t>& bytes, int64_t group,
                      std::vector<void*>& to) {
    for (size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<char*>(from[i]) + group * bytes[i];
    }
  }

  const std::unique_ptr<Kernel> of_one_;
  const int64_t groups_;
  const std::vector<int64_t> input_bytes_, output_bytes_;
  std::vector<void*> inputs_, outputs_;
};

// Makes the operands those of one group; returns the bytes from one group to the next.
std::vector<int64_t> CutToGroup(std::vector<OperandSpec>& operands,
                                const std::vector<int>& statistics, int64_t images) {
  std::vector<int64_t> bytes(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    OperandSpec& operand = operands[i];
    const bool is_statistic = std::ranges::find(statistics, i) != statistics.end();
    if (!is_statistic && operand.logical.rank() == 1) continue;  // gamma, beta
    Region& region = operand.region;
    if (operand.micro_batch_axis == 0) operand.micro_batch_axis = -1;
    if (is_statistic) {
      operand.logical = Shape{operand.logical[1]};
      region = {.offset = {region.offset[1]}, .size = Shape{region.size[1]}};
    } else {
      operand.logical[0] = region.size[0] = images;
      region.offset[0] = 0;
    }
    bytes[i] = operand.num_elements() * static_cast<int64_t>(SizeOf(operand.dtype));
  }
  return bytes;
}

}  // namespace

KernelFactory ForEachGroup(BatchNormPart part, KernelFactory factory) {
  return [part,
          factory = std::move(factory)](const KernelSpec& spec) -> absl::StatusOr<PlannedKernel> {
    if (!spec.attrs.Has("groups")) return factory.PlanKernel(spec);
    const OperandSpec& x = spec.inputs[0];
    const int64_t images = x.logical[0] / spec.attrs.Int("groups"), here = x.shape()[0];
    if (images > 0 && here % images != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s '%s': a part of %d images has no whole groups of %d images", spec.op,
                          spec.name, here, images));
    }
    KernelSpec of_one = spec;
    const StatisticOperands statistics = StatisticsOf(part);
    const std::vector<int64_t> inputs = CutToGroup(of_one.inputs, statistics.inputs, images);
    const std::vector<int64_t> outputs = CutToGroup(of_one.outputs, statistics.outputs, images);
    BRAID_ASSIGN_OR_RETURN(PlannedKernel planned, factory.PlanKernel(of_one));
    const auto make = [make_one = std::move(planned.make), inputs, outputs,
                       groups = images > 0 ? here / images
                                           : 0]() -> absl::StatusOr<std::unique_ptr<Kernel>> {
      BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> one, make_one());
      return std::make_unique<GroupedKernel>(std::move(one), groups, inputs, outputs);
    };
    return PlannedKernel{.memory = planned.memory, .make = make};
  };
}

}  // namespace braid::cpu
